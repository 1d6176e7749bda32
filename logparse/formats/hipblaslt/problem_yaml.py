"""Lists of problems for ``hipblaslt-bench --yaml``, as people write them: YAML in block style, or in braces.

::

    - function: matmul                    - {function: matmul, transA: T, transB: N, a_type: f8_r, b_type: f8_r,
      M: 4096                                c_type: f16_r, d_type: f16_r, compute_type: c_f32_r,
      N: 512                                 M: 4096, N: 512, K: 1024}
      K: 1024
      transA: T
      …

What the library logs under mask 64 has the same keys and one record per line, ``- { function: matmul, …}``; it is no
YAML and is read by ``profile``.  ``logparse export --as yaml-block`` writes the block style.  An item is one problem, a
call without a count unless it has a ``call_count``.  Where a key is missing hipblaslt-bench's defaults hold: one
batch, β 0, no epilogue, no scales, tight leading dimensions; transposes and types have none and stay unknown.  Keys
that do not concern the problem (``iters``, ``initialization`` …) are left out.  A list of values, an alias or an anchor
stands for several problems and is a reject.
Source: ROCm/hipBLASLt clients/include/hipblaslt_common.yaml (``Arguments``, ``Defaults``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from logparse.formats.format import FileFormat, Head, Line, Outcome, Source
from logparse.formats.hipblaslt.arguments import SCALE_WORDS, SWITCHES, WORDS, problem
from logparse.formats.hipblaslt.enums import tight_leading_dimensions
from logparse.formats.patterns import regex
from logparse.model import Call, GemmProblem, Reject, Solution

CATEGORY = "yaml"

_HEAD = regex(
    rb"(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*|---[ \t]*)?\r?\n)*[ \t]*-[ \t]+(?!\{ function: matmul)"
    rb"(?=\{?[ \t]*[A-Za-z_]\w*:)(?:[^-]|-(?![ \t]))*?\bfunction:[ \t]*[\"']?matmul"
)
_ITEM = regex(r"\s*-\s+(?P<rest>\S.*)\Z")
_PAIR = regex(r"\s*(?P<key>[A-Za-z_]\w*):\s*(?P<value>.*)\Z")
_COMMENT = regex(r"(?:\A|\s)#.*\Z")
_MOST_LINES = 200
"""Of one item: it has no more keys."""
_SIZES = ("lda", "ldb", "ldc", "ldd", "stride_a", "stride_b", "stride_c", "stride_d")


def recognise(head: Head) -> bool:
    """A list whose first item has the function ``matmul``, and is no record of a log."""
    return _HEAD.match(head.data) is not None


def read(source: Source) -> Iterator[Outcome]:
    """Each item as a call; comments are foreign."""
    held: list[Line] = []
    for line in source.lines():
        text = _bare(line.text)
        if not text:
            yield Outcome("blank" if not line.text.strip() else "foreign")
        elif text == "---":
            yield Outcome("foreign")
        elif held and (_ITEM.match(text) is None or _is_open(held)) and len(held) < _MOST_LINES:
            held.append(line)
        else:
            yield from _item(held)
            held = [line]
    yield from _item(held)


def _bare(text: str) -> str:
    """A line without its comment and the end of a line."""
    return _COMMENT.sub("", text.removeprefix("\ufeff").rstrip()).rstrip()


def _is_open(lines: Sequence[Line]) -> bool:
    """Whether the item is in braces that are not closed yet."""
    text = _bare(lines[0].text).lstrip("- \t")
    return text.startswith("{") and not _bare(lines[-1].text).endswith("}")


def _item(lines: Sequence[Line]) -> Iterator[Outcome]:
    if not lines:
        return
    try:
        values = dict(_pairs([_bare(line.text) for line in lines]))
        if values.get("function", "matmul") != "matmul":
            raise ValueError(f"function {values['function'][:40]!r} is no matmul")
        call = _call(values)
    except ValueError as error:
        length = sum(len(line.text.encode("utf-8", "surrogateescape")) + 1 for line in lines) - 1
        reason = Reject(f"an item of a problem list: {error}", 0, length)
        yield Outcome("reject", [reason], lines=len(lines), at=lines[0].offset)
    else:
        yield Outcome("call", [call], lines=len(lines), at=lines[0].offset)


def _pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The keys and values of an item in block style or in braces.  Raises ValueError."""
    first = _ITEM.match(texts[0])
    if first is None:
        raise ValueError("it does not begin with a dash")
    parts = [first["rest"], *texts[1:]]
    if parts[0].startswith("{"):
        body = " ".join(part.strip() for part in parts)
        if not body.endswith("}"):
            raise ValueError("no closing brace")
        parts = [part for part in body[1:-1].split(",") if part.strip()]
    for part in parts:
        pair = _PAIR.match(part)
        value = pair["value"].strip().strip("\"'") if pair else ""
        if pair is None or value[:1] in ("[", "{", "*", "&", "|", ">"):
            raise ValueError(f"{part.strip()[:60]!r} is no key with one value")
        yield pair["key"], value


def _call(values: Mapping[str, str]) -> Call:
    """The problem with the tool's defaults.  Raises ValueError for a value that the tool does not know."""
    index = values.get("solution_index", "")
    count = values.get("call_count", "")
    return Call(
        problem=_problem(values),
        category=CATEGORY,
        count=int(count) if count else None,
        solution=Solution("hipblaslt", str(int(index)), raw=index) if index.isdecimal() else None,
    )


def _problem(values: Mapping[str, str]) -> GemmProblem:
    for name, words in _WORDS.items():
        if values.get(name) and values[name] not in words:
            raise ValueError(f"{name} cannot be {values[name][:40]!r}")
    trans: dict[str, Any] = {f"trans_{x.lower()}": values.get(f"trans{x}") for x in "AB"}
    m, n, k = (int(values.get(name) or 128) for name in "MNK")
    shape = GemmProblem(**trans, m=m, n=n, k=k)
    tight = {} if None in trans.values() else tight_leading_dimensions(shape)
    given = {name: int(values[name]) for name in _SIZES if values.get(name)}
    return problem({"beta": "0", **values}, {"m": m, "n": n, "k": k, **tight, **given}, absent=False)


_WORDS: Mapping[str, Collection[str]] = {
    **WORDS,
    **dict.fromkeys(("bias_vector", "gradient", "use_e", "scaleAlpha_vector", "swizzleA", "swizzleB"), SWITCHES),
    **dict.fromkeys(("scaleA", "scaleB", "scaleC", "scaleD"), SCALE_WORDS),
}


def block(record: str) -> str:
    """A profile record (``profile.record``) in block style: one key per line."""
    body = record.strip().removeprefix("- {").removesuffix("}")
    return "- " + "\n  ".join(pair.strip() for pair in body.split(","))


FORMAT = FileFormat(
    name="hipblaslt-yaml",
    about="problem lists of hipblaslt-bench --yaml, in block style or braces",
    recognise=recognise,
    read=read,
)
