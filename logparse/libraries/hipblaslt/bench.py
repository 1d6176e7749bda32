"""``hipblaslt-bench …`` command lines: lines that the library logs per launch, and lines that people type.

The library writes them with ``HIPBLASLT_LOG_MASK=32 HIPBLASLT_LOG_FILE=hipblaslt_%i.log``.  There is no prefix, and
each launch gives one line (ROCm 6.4)::

    hipblaslt-bench --api_method c -m 48 -n 176 -k 1024 --lda 48 --ldb 176 --ldc 48 --ldd 48  --stride_a 0 --stride_b 0
    --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 0.000000 --transA N --transB T --batch_count 1 --scaleA 0
    --scaleB 0  --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --scale_type f32_r --bias_type f32_r
    --compute_type f32_r --algo_method index --solution_index 218160 --activation_type none

Grammar: ROCm/hipBLASLt ``library/src/amd_detail/rocblaslt/src/tensile_host.cpp`` (6.3 on), ``rocblaslt_mat.cpp`` (6.1,
6.2) and ``clients/benchmarks/client.cpp`` (the options of the tool).

* The vocabulary of flags is closed, because a torn line would pass a lenient parser.
* A logged line ends in ``--iters``.  Flags of a later version may stand behind it and are left out.
* ``--compute_input_typeA``, which a later version writes too, may stand anywhere.
* A missing flag that a version always writes means *unknown*.
* A missing flag that a version writes only when it is set means *not set*.
* A line is ``by_tool`` if it has a shell command (path, ``$ ``, ``VAR=x``), a flag that only the tool takes, or
  iterations that are not 0.  In such a line hipblaslt-bench's documented defaults hold.
* No version writes the kernel name, the workspace, the device or the time.

``--api_method cpp`` is a call through hipBLASLt's C++ object, as rocBLAS calls it.  Its look-up in a tuning file
differs (``tuning_file.object_key``), so a message beside the call states the method.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from logparse.errors import EmissionError
from logparse.libraries.hipblaslt.arguments import (
    SWITCHES,
    TYPES,
    WORDS,
    arguments,
    no_scale,
    problem,
    sizes,
    tight_strides,
    unlogged_scale,
)
from logparse.libraries.hipblaslt.enums import (
    BENCH_COMPUTE_TYPES,
    BENCH_TYPES,
    SCALES,
    SHORT_COMPUTE_TYPES,
    SHORT_TYPES,
    tight_leading_dimensions,
)
from logparse.libraries.kinds.format import FOREIGN, LineFormat, Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.kinds.typed_command import end_of_command
from logparse.model import Call, GemmProblem, Member, Message, Problem, Record, Reject, Solution
from logparse.quoting import Shell, shell_line

# ------------------------------------------------------------------------------------------- the flags


class Flag(NamedTuple):
    """Describes a flag of the hipblaslt-bench command line.

    * ``allows`` is a function that returns a true value for a valid value of the flag.
    * ``bare`` is the value that the flag has if no value follows it.  Without ``bare`` the flag needs a value.
    """

    allows: Callable[[str], object]
    bare: str | None = None


_INT = re.compile(r"-?\d+").fullmatch
_FLOAT = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf)", re.IGNORECASE).fullmatch
_TYPE = (BENCH_TYPES | SHORT_TYPES.keys()).__contains__
_WORD = re.compile(r"[^\s-]\S*").fullmatch


def _one_of(*words: str) -> Callable[[str], bool]:
    return frozenset(words).__contains__


_SWITCH = _one_of("0", "1", "true", "false")

SIZES = ("m", "n", "k", "lda", "ldb", "ldc", "ldd", "lde", *(f"stride_{x}" for x in "abcde"))
"""Flags that are repeated for each member of a grouped GEMM.

``-m``, ``-n`` and ``-k`` have one dash, the others two.
"""

LOGGED: Mapping[str, Flag] = {
    "--api_method": Flag(_one_of("c", "cpp", "mix")),
    **{f"-{name}" if len(name) == 1 else f"--{name}": Flag(_INT) for name in SIZES},
    **dict.fromkeys(("--alpha", "--alphai", "--beta", "--betai"), Flag(_FLOAT)),
    **dict.fromkeys(("--transA", "--transB"), Flag(_one_of(*"NTCntc"))),
    **dict.fromkeys(("--batch_count", "--batch_mode", "--bias_stride", "--splitk", "--wgm"), Flag(_INT)),
    **dict.fromkeys(("--scaleA", "--scaleB"), Flag(_one_of(*SCALES), "1")),
    **dict.fromkeys(("--scaleC", "--scaleD", "--swizzleA", "--swizzleB", "--scaleAlpha_vector"), Flag(_SWITCH, "1")),
    **dict.fromkeys(("--gradient", "--use_e", "--bias_vector", "--grouped_gemm"), Flag(_SWITCH, "1")),
    **dict.fromkeys(("--flush", "--any_stride"), Flag(_SWITCH, "1")),
    "--bias_source": Flag(_one_of(*WORDS["bias_source"])),
    # If the library cannot name a type, the flag has no value.
    **dict.fromkeys((f"--{x}_type" for x in ("a", "b", "c", "d", "scale", "bias", "aux")), Flag(_TYPE, "")),
    "--compute_type": Flag(_one_of(*BENCH_COMPUTE_TYPES, *SHORT_COMPUTE_TYPES), ""),
    **dict.fromkeys(("--compute_input_typeA", "--compute_input_typeB"), Flag(_TYPE, "")),
    "--algo_method": Flag(_one_of("heuristic", "all", "index", "0", "1", "2")),
    "--solution_index": Flag(_INT),
    "--activation_type": Flag(_one_of(*WORDS["activation_type"]), ""),
    **dict.fromkeys(("--rotating", "--cold_iters", "--iters"), Flag(_INT)),
}
"""Flags that hipBLASLt writes into its log, in any version."""

_TOOL_ONLY: Mapping[str, Flag] = {
    **dict.fromkeys(("--sizem", "--sizen", "--sizek", "-i", "-j", "--requested_solution", "--device"), Flag(_INT)),
    **dict.fromkeys(("--workspace", "--max_workspace_size"), Flag(_INT)),
    **dict.fromkeys(("-f", "--function", "--initialization", "--function_filter"), Flag(_WORD)),
    **dict.fromkeys(("-r", "--precision"), Flag(_TYPE)),
    **dict.fromkeys(("--activation_arg1", "--activation_arg2", "--skip_slow_solution_ratio"), Flag(_FLOAT)),
    **dict.fromkeys(
        ("-v", "--verify", "--use_gpu_timer", "--print_kernel_info", "--c_equal_d", "--HMM"), Flag(_SWITCH, "1")
    ),
    **dict.fromkeys(("--amaxScaleA", "--amaxScaleB", "--amaxD", "--use_user_args"), Flag(_SWITCH, "1")),
    "--log_function_name": Flag(_SWITCH, "1"),
}
"""Flags that hipBLASLt never logs.  A line with such a flag was typed by a person."""

_ADAPTIVE = "--adaptive"
"""Beginning of the option names for adaptive timing in hipblaslt-bench (2026: ``--adaptive``, ``--adaptive_noise`` …).
"""

_OTHER_MODE = frozenset({"--yaml", "--data", "--help", "-h", "--version"})
"""Flags with which hipblaslt-bench does not run a matrix product that the command line describes, such as ``--help``.
"""

FLAGS: Mapping[str, Flag] = {**LOGGED, **_TOOL_ONLY}
_ALIASES = {"sizem": "m", "sizen": "n", "sizek": "k", "r": "precision", "i": "iters", "j": "cold_iters"}
_SIZE_NAMES = frozenset(SIZES)
_NAMES: Mapping[str, str] = {token: _ALIASES.get(token.lstrip("-"), token.lstrip("-")) for token in FLAGS}

_SPELLED: Mapping[str, Mapping[str, str]] = {
    **{_NAMES[token]: SHORT_TYPES for token, flag in FLAGS.items() if flag.allows is _TYPE},
    "compute_type": SHORT_COMPUTE_TYPES,
}
"""Other spellings of a flag's values.  They occur only in lines typed by a person."""

ALWAYS_SIZES = (*SIZES[:7], "stride_a", "stride_b", "stride_c", "stride_d")
_ALWAYS = ("transA", "transB", "batch_count", *TYPES, "compute_type")
"""Flags that every version of hipBLASLt logs in every line.  A logged line without such a flag was cut."""

# ------------------------------------------------------------------------------------------- reading

_PROMPT = r"(?:\S*[$#+][ \t]+)?"
_WRAPPERS = (
    r"(?:[A-Za-z_]\w*=\S*[ \t]+)*"
    r"(?:(?:sudo|env|time|nohup|timeout|numactl|taskset|srun|mpirun)[ \t]+(?:\S+[ \t]+)*?)?"
)
_PATH = r"(?:[\w.~+-]*/)*"
_NAME = r"hipblaslt-bench(?:\.exe)?"
_COMMAND = regex(
    rf"(?:\A[ \t]*(?P<shell>{_PROMPT}{_WRAPPERS}{_PATH})|(?P<path>(?<!\S){_PATH}))?{_NAME}(?P<rest>\s+-.*)?\s*\Z"
)
"""Pattern of a complete hipblaslt-bench command in a line.

At the beginning of a line, a prompt, variables and wrappers may precede the command.  Elsewhere only its path may.
"""

OBJECT = "hipblaslt_ext::Gemm"
"""Value of ``function`` in the message that is kept beside a call through hipBLASLt's C++ object.

The text of the message describes the matrix product.
"""

_LATER = re.compile(r"--[A-Za-z]\w*").fullmatch


@dataclass
class _Words:
    """The flags of one hipblaslt-bench command.

    * ``values``: the value of each flag, by its name without dashes.
    * ``members``: the sizes of the product, or of each member of a grouped GEMM.
    * ``tool``: True if a person typed the command, False if the library logged it.
    """

    values: dict[str, str] = field(default_factory=dict)
    members: list[dict[str, int]] = field(default_factory=list)
    tool: bool = False

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def flag(self, name: str) -> bool:
        """Return True if a flag of the command is switched on.

        Examples are ``--flush``, ``--flush 1`` and ``--flush true``.
        """
        return SWITCHES[self.values.get(name, "0")]

    def number(self, name: str) -> int | None:
        text = self.values.get(name)
        return int(text) if text else None


def read(text: str) -> Outcome:
    """Read a log line that contains a ``hipblaslt-bench`` command or mentions the program.

    A complete command gives a call of a matrix product, and a damaged one gives an error.
    """
    match = _COMMAND.search(text)
    if match is None or match["rest"] is None:
        # The line only mentions the tool.
        return FOREIGN
    rest, quoted, _ = match["rest"].partition("`")  # Issues quote a command as `hipblaslt-bench …`.
    end = end_of_command(rest)
    tokens = rest[:end].split()
    # A command with ``--yaml FILE`` or ``--help`` states no product.
    if _OTHER_MODE.intersection(tokens):
        return Outcome("message", (Message(category="bench", text=text.strip()),))
    try:
        words = _words(tokens)
        words.tool |= bool(match["shell"] or match["path"] or quoted or end < len(rest))
        gemm = _tool_problem(words) if words.tool else _logged_problem(words)
    except ValueError as torn:
        return Outcome("reject", (Reject(str(torn)),))
    call = Call(
        problem=gemm,
        category="bench",
        count=1,
        solution=_solution(words),
        workspace_bytes=words.number("workspace"),
        by_tool=words.tool,
        device=words.number("device"),
    )
    beside: list[Record] = [call]
    if words.values.get("api_method") == "cpp" and not words.tool and not gemm.members:
        beside.append(Message(category="bench", function=OBJECT, text=gemm.text))
    if unlogged_scale(gemm) and not words.tool:
        beside.append(no_scale(gemm))
    return Outcome("call", beside)


def _words(tokens: Sequence[str]) -> _Words:
    words = _Words()
    values, members = words.values, words.members
    tokens = (*tokens, "")  # The empty text ends the loop, because no flag allows it as a value.
    at = 0
    while token := tokens[at]:
        flag = FLAGS.get(token)
        if flag is None:
            if token.startswith(_ADAPTIVE):
                words.tool, at = True, at + (1 if tokens[at + 1].startswith("-") or not tokens[at + 1] else 2)
                continue
            if token == "\\":
                raise ValueError("the command continues on the next line, which is missing")
            if values.get("iters") == "0" and _LATER(token):
                at += 1 if tokens[at + 1].startswith("-") or not tokens[at + 1] else 2
                continue
            raise ValueError(f"unknown flag {token[:60]!r}")
        name, value = _NAMES[token], tokens[at + 1]
        size, given = name in _SIZE_NAMES, flag.allows(value)
        if not given:
            _may_be_missing(token, value, flag.bare)
        at += 2 if given else 1
        words.tool |= token in _TOOL_ONLY
        # A person may state other sizes before -m. They are of the same product.
        if size and (not members or (name == "m" and "m" in members[-1])):
            members.append({})
        if name in (members[-1] if size else values):
            raise ValueError(f"--{name} occurs twice")
        if size:
            members[-1][name] = int(value)
        else:
            values[name] = _SPELLED.get(name, {}).get(value, value) if given else flag.bare or ""
    if len(members) > 1 and not words.flag("grouped_gemm"):
        raise ValueError("-m occurs twice in the command, but the command is not for a grouped GEMM")
    if any(words.number(name) for name in ("rotating", "cold_iters", "iters")) or values.get("api_method") == "mix":
        words.tool = True
    return words


def _may_be_missing(token: str, following: str, bare: str | None) -> None:
    """Check that a flag of a hipblaslt-bench command may be without a value.  Raises ValueError if not.

    ``following`` is the next text in the line.  It must be another flag or the end of the command.
    """
    if following and following not in FLAGS:
        raise ValueError(f"{token} cannot have the value {following[:60]!r}")
    if bare is None:
        raise ValueError(f"{token} has no value")


def _solution(words: _Words) -> Solution | None:
    index = words.values.get("solution_index")
    if index is None or index.startswith("-") or words.values.get("algo_method", "index") not in ("index", "2"):
        return None
    return Solution("hipblaslt", str(int(index)), raw=index)


def _logged_problem(words: _Words) -> GemmProblem:
    """Return the matrix product of a hipblaslt-bench command that the library itself logged.

    Raises ValueError if a flag is missing that this version of the library always writes.  Then the line was cut or
    edited.
    """
    first = words.members[0] if words.members else {}
    for needed, given in ((ALWAYS_SIZES, first), (_ALWAYS, words.values)):
        for name in needed:
            if name not in given:
                raise ValueError(f"cut line: --{name} is missing")
    if ("any_stride" in words or "rotating" in words) and "iters" not in words:
        raise ValueError("cut line: --iters is missing")
    # From 6.4 on the library always writes scaleA, scaleB and activation_type.
    since_64 = "algo_method" in words
    unknown: dict[str, Any] = {}
    if since_64:
        unknown |= {f"scale_{x.lower()}": None for x in "AB" if f"scale{x}" not in words}
    if since_64 and "scale_type" in words and "activation_type" not in words:
        # rocRoller's own emitter writes neither scales nor activation, because it has none of them.
        unknown["activation"] = None
    logged = "iters" in words  # Builds that scale in blocks write it, and an exported command does not.
    return problem(words.values, {**_sizes(words), **unknown}, absent=False, logged=logged)


def _tool_problem(words: _Words) -> GemmProblem:
    """Return the matrix product of a hipblaslt-bench command that a person typed.

    Missing flags get the defaults that ``hipblaslt-bench --help`` states.
    """
    types = dict.fromkeys(TYPES, words.values.get("precision", ""))
    defaults = {"transA": "N", "transB": "N", "batch_count": "1", "compute_type": "f32_r", "beta": "0"}
    words.values = {**types, **defaults, **words.values}
    words.members = [_with_default_layout({**dict.fromkeys("mnk", 128), **x}, words) for x in words.members or [{}]]
    return problem(words.values, _sizes(words), absent=False)


def _with_default_layout(member: Mapping[str, int], words: _Words) -> dict[str, int]:
    """Return a product's sizes with the leading dimensions and strides that hipblaslt-bench uses for a command.

    Source: ``client.cpp``, ``run_bench_test``.
    """
    trans: Any = {f"trans_{x.lower()}": words.values[f"trans{x}"].upper() for x in "AB"}
    shape = GemmProblem(**trans, m=member["m"], n=member["n"], k=member["k"])
    # hipblaslt-bench increases a leading dimension that is too small. So ``--lda 0`` gives the smallest possible one.
    # Strides are increased only without ``--any_stride``.
    out = {**member, **_at_least(tight_leading_dimensions(shape), member)}
    strides = tight_strides(shape, out)
    if words.number("batch_count") == 1:
        return {**dict.fromkeys(strides, 0), **out}
    return {**strides, **out} if words.flag("any_stride") else {**out, **_at_least(strides, out)}


def _at_least(least: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    return {name: max(size, given.get(name, size)) for name, size in least.items()}


def _sizes(words: _Words) -> dict[str, Any]:
    """Return the sizes that a hipblaslt-bench command states.

    The result has the sizes of one product, or the list of members of a grouped GEMM. Raises ValueError if a member
    lacks m, n or k.
    """
    found = [{name: value for name, value in member.items() if name in _OF_MEMBER} for member in words.members]
    if not words.flag("grouped_gemm"):
        return dict(found[0])
    for name in "mnk":
        if any(name not in member for member in found):
            raise ValueError(f"cut line: a member of the grouped GEMM lacks -{name}")
    return {"members": tuple(Member(**member) for member in found)}


_OF_MEMBER = frozenset(f.name for f in fields(Member))

# ------------------------------------------------------------------------------------------- writing


def command(gemm: Problem, solution: Solution | None = None) -> Shell:
    """Return the hipblaslt-bench command that runs a matrix product (with the flags of ROCm 6.4 and later).

    Unknown leading dimensions and strides are written for matrices without gaps.  An unknown epilogue or scale is left
    out, so hipblaslt-bench uses none.  ``solution`` adds the number of the kernel to run.

    Raises EmissionError if a transpose, a size, the batch count or a type is unknown, because hipblaslt-bench would
    then use a default.
    """
    if not isinstance(gemm, GemmProblem):
        raise EmissionError(f"hipblaslt-bench cannot run a {gemm.kind}")
    p, what = gemm.normal, "a hipblaslt-bench command"
    words = ["hipblaslt-bench", "--api_method", "cpp" if p.members else "c"]
    words += ["--grouped_gemm"] * bool(p.members)
    for size in p.members or (p,):
        words += [x for name, y in sizes(size, p, what).items() for x in (f"{_dashes(name)}{name}", str(y))]
    given = arguments(gemm, what)
    # The library logs the scales of C and D without a value, which its tool does not take.
    unset = {name for name in ("scaleC", "scaleD") if given[name] == "0"} | ({"bias_source"} if not p.bias else set())
    activation = given.pop("activation_type")
    for name, value in given.items():
        if value is not False and name not in unset:
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    words += ["--algo_method", "index", "--solution_index", solution.id] if solution else []
    return shell_line([*words, "--activation_type", str(activation)])


def _dashes(name: str) -> str:
    return "-" if name in "mnk" else "--"


# A record begins at the tool's name or, if a shell's words stand before the name, at these words.
_START = rf"(?:^[ \t]*{_PROMPT}{_WRAPPERS}{_PATH}|(?<!\S){_PATH})?{_NAME}(?=[ \t]+-)".encode()

FORMAT = LineFormat(
    name="hipblaslt-bench",
    about="hipblaslt-bench command lines (log mask 32, or typed)",
    markers=(b"hipblaslt-bench",),
    start=_START,
    read=read,
    seen="ROCm 6.4 to 7.2 and TheRock (AMD's builds of ROCm); ROCm 6.1 (source code only)",
    example="hipblaslt-bench --api_method c -m 48 …",
    gives="calls with solution index",
    how="set `HIPBLASLT_LOG_MASK=32` for a job, or write `hipblaslt-bench` commands into a file",
    since="ROCm 6.1",
)
