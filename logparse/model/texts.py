"""Read a matrix product, a convolution or an operator from the text that describes it.

Some functions read only the first words of a text, because this is faster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from logparse.model.problems import (
    CONV_WORDS,
    GEMM_FLAGS,
    GEMM_LATER,
    GEMM_WORDS,
    Argument,
    ConvProblem,
    GemmProblem,
    Member,
    Operand,
    OperatorProblem,
    Problem,
    of_fields,
)

_INT = re.compile(r"-?\d+\Z")


def kind_of(text: str) -> str:
    """Return the first word of a problem's text: ``gemm``, ``grouped``, ``conv`` or ``operator``."""
    return text.partition(" ")[0]


def layer_of(text: str) -> tuple[str, str] | None:
    """Split the text of a convolution into its direction and the text of its layer.

    Returns None if the text does not describe a convolution.
    """
    kind, _, rest = text.partition(" ")
    direction, _, layer = rest.partition(" ")
    return (direction, layer) if kind == "conv" else None


def problem_from_text(text: str) -> Problem:
    """Parse the text of a matrix product, convolution or operator, for example ``gemm trans=T,N mnk=…``.

    Raises ValueError if it is not such a text.
    """
    kind, *words = text.split(" ")
    if kind == "conv" and words:
        values: dict[str, Any] = _CONV_DEFAULTS | {"direction": words[0]}
        for word in words[1:]:
            values |= _conv_values(word)
        return of_fields(ConvProblem, values)
    if kind == "operator" and words:
        return OperatorProblem(words[0], tuple(map(_argument, words[1:])))
    if kind not in ("gemm", "grouped", "family"):  # older stores have families: problems with some sizes left open
        raise ValueError(f"{text[:80]!r} is not the name of a matrix product, convolution or operator")
    values = {}
    for word in words:
        values |= _members(word) if word.startswith("members=") else _gemm_values(word)
    return GemmProblem(**_with_plain({name: value for name, value in values.items() if value != "*"}))


def _with_plain(values: dict[str, Any]) -> dict[str, Any]:
    """Add the usual values to those read from a matrix product's text.

    A value that the text omits, or states as ``-``, is the usual one.
    """
    if values.get("scale_c") == "none" and values.get("beta") == "zero":
        del values["scale_c"]  # with beta zero C is not read
    for x in "ab":
        name = f"compute_input_{x}_type"
        if values.get(name, "-") == "-":
            values[name] = values.get(f"{x}_type")
        elif values[name] == "?":
            del values[name]
    values.setdefault("sm_count", 0)
    if values["sm_count"] in ("?", "-"):
        values["sm_count"] = None if values["sm_count"] == "?" else 0
    return values


def _argument(text: str) -> Argument:
    if text.startswith("="):
        return text[1:]
    if text.startswith("["):
        return tuple(map(_operand, text[1:-1].split(";"))) if len(text) > 2 else ()
    return _operand(text)


def _operand(text: str) -> Operand:
    found = _OPERAND.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:80]!r} is not an operand (its type, sizes and strides)")
    dtype, sizes, strides = found.groups()
    return Operand(dtype, *(tuple(map(int, x.split(","))) if x else () for x in (sizes, strides)))


_OPERAND = re.compile(r"([\w?]+)\(([-\d,]*)\|([-\d,]*)\)")
_CONV_DEFAULTS = {x.name: x.default for x in fields(ConvProblem)}
_WORDS = 1 << 16
"""Largest number of parsed words that the cache keeps.

Hundreds of thousands of texts contain few different words, and parsing a word takes longer than finding it in the
cache.
"""


@lru_cache(maxsize=_WORDS)
def _conv_values(word: str) -> Mapping[str, int | str | None]:
    cells = _cells(word, _CONV_NAMES).items()
    return {name: int(cell) if cell and _INT.match(cell) else cell for name, cell in cells}


@lru_cache(maxsize=_WORDS)
def _gemm_values(word: str) -> Mapping[str, int | bool | str]:
    out: dict[str, int | bool | str] = {}
    texts = word.partition("=")[2].split(",")
    for (name, cell), text in zip(_cells(word, _GEMM_NAMES).items(), texts, strict=True):
        if cell is not None:
            number = _INT.match(cell)
            out[name] = bool(int(cell)) if name in GEMM_FLAGS and number else int(cell) if number else cell
        elif name in _LATER:
            out[name] = text
        elif text == "-" and name in _PLAIN:
            out[name] = _PLAIN[name]
    return out


_PLAIN: Mapping[str, bool | str] = {
    **dict.fromkeys(("swizzle_a", "swizzle_b"), False),
    **{f"scale_{x}": "none" for x in "abcd"},
}
_LATER = frozenset(name for word, names in GEMM_WORDS if word in GEMM_LATER for name in names)


def _members(word: str) -> Mapping[str, tuple[Member, ...]]:
    names = [f.name for f in fields(Member)]
    rows = [[None if c == "?" else int(c) for c in x.split("/")] for x in word[len("members=") :].split(",")]
    return {"members": tuple(Member(**dict(zip(names, row, strict=True))) for row in rows)}  # type: ignore[arg-type]


_CONV_NAMES, _GEMM_NAMES = dict(CONV_WORDS), dict(GEMM_WORDS)


def _cells(word: str, groups: Mapping[str, tuple[str, ...]]) -> dict[str, str | None]:
    name, eq, rest = word.partition("=")
    cells = rest.split(",")
    if not eq or name not in groups or len(cells) != len(groups[name]):
        raise ValueError(f"{word[:80]!r} cannot be part of the name of a matrix product or convolution")
    return {key: None if cell in ("?", "-") else cell for key, cell in zip(groups[name], cells, strict=True)}
