"""Check the entries of a MIOpen perf-db (database of tuned parameters): does MIOpen read and use them?

A perf-db does not choose a solver.  Source: ROCm/MIOpen ``src/db_record.cpp``, ``src/ramdb.cpp``,
``src/conv/problem_description.cpp`` (``VisitAll``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from logparse.libraries.kinds.format import Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.kinds.reading import Breach, Row, Rule, Verdicts, why_unused
from logparse.libraries.miopen import records as miopen_records
from logparse.libraries.miopen.problem_key import TYPES, split_types
from logparse.libraries.miopen.records import Item, items_of, unknown_solver
from logparse.libraries.miopen.solvers import SPLIT_K, TUNABLE
from logparse.model import ConvProblem, Measurement, Reject, Solution
from logparse.target import Facts

ORIGIN = "perf-db"
RETUNE = (
    "let MIOpen tune this convolution on the target (MIOPEN_FIND_ENFORCE=3), or copy the row from a perf-db that "
    "the target's MIOpen wrote"
)
NUMBERS = (
    *("spatial_dim", "in_channels", "in_h", "in_w", "in_d", "fil_h", "fil_w", "fil_d", "out_channels", "batchsize"),
    *("pad_h", "pad_w", "pad_d", "conv_stride_h", "conv_stride_w", "conv_stride_d"),
    *("dilation_h", "dilation_w", "dilation_d", "bias", "group_count"),
)
_SIZE = r"(?:0|[1-9]\d{0,8})"
# 2D problems have depth 1, and their pad, stride and dilation of the depth are 0.
_2D = rf"2x(?:{_SIZE}x){{3}}1x(?:{_SIZE}x){{2}}1x(?:{_SIZE}x){{2}}(?:{_SIZE}x{_SIZE}x0x){{3}}{_SIZE}x{_SIZE}"
_TENSOR = rf"(?:NCHW(?:c4|c8)?|CHWN(?:c4|c8)?|NHWC|NCDHW|NDHWC)x(?:{'|'.join(TYPES)})\w*x[FBW]"
KEY = regex(rf"(?:{_2D}|3x(?:{_SIZE}x){{{len(NUMBERS) - 2}}}{_SIZE})x{_TENSOR}", re.ASCII)
_PADDED = "Xdlops_Padded_Gemm"
"""End of the names of solvers that divide by three of their parameters without a check (MIOpen 3.5.1).

The parameters are numbers 7 to 9, the factors by which M, N and K are padded.
"""
_NUMBER = re.compile(r"[ \t-\r]*[+-]?(?P<digits>\d+)", re.ASCII)


# ---------------------------------------------------------------------------------------------------- keys


def _field(column: str, forward: bool) -> str:
    """Return the field of ``ConvProblem`` that a size in a key of MIOpen's tuned parameters states.

    For example, ``in_channels`` is the field ``c``, or ``k`` if a gradient is computed.
    """
    named = {"spatial_dim": "spatial", "batchsize": "n", "group_count": "groups"}
    # A key begins with the sizes of the input. In a gradient's computation the input is the gradient of the output
    # (dy).
    named |= {"in_channels": "c", "out_channels": "k"} if forward else {"in_channels": "k", "out_channels": "c"}
    sizes = column.replace("in_", "" if forward else "out_") if column.startswith("in_") else column
    return named.get(column, sizes.replace("conv_stride", "stride").replace("fil_", "filter_"))


_FIELDS = {forward: [_field(column, forward) for column in NUMBERS] for forward in (True, False)}
_ROLES = {True: ("in", "weights", "out"), False: ("out", "weights", "in")}


@lru_cache(maxsize=65536)
def problem_from_perf_key(key: str) -> ConvProblem:
    """Read a key of MIOpen's perf-db (its database of tuned parameters) as a convolution.

    Only the fields that the key states are set.  Raises ValueError if the text is not a key.
    """
    if KEY.fullmatch(key) is None:
        raise ValueError(f"{key[:80]!r} is not a perf-db key")
    cells = key.split("x")
    layout, data_type, direction = cells[len(NUMBERS) :]
    forward = direction == "F"
    sizes: dict[str, Any] = dict(zip(_FIELDS[forward], map(int, cells[: len(NUMBERS)]), strict=True))
    three = sizes["spatial"] == 3
    known = {name: size for name, size in sizes.items() if three or name[-2:] not in ("d", "_d")}
    unknown = {f"{'out_' if forward else ''}{x}": None for x in ("dhw" if three else "hw")}
    roles = _ROLES[forward]
    types: dict[str, Any] = {f"{role}_type": x for role, x in zip(roles, split_types(data_type), strict=True)}
    casts: dict[str, Any] = {f"{role}_cast": None for role in roles}
    first: dict[str, Any] = {f"{roles[0]}_layout": layout}
    return ConvProblem(
        direction=direction,  # type: ignore[arg-type]
        mode="convolution",
        **{**known, **unknown, **types, **casts, **first},
    )


def perf_key_of(problem: ConvProblem) -> str | None:
    """Return the key of a convolution in MIOpen's perf-db (its database of tuned parameters).

    Returns None if a field that the key needs is unknown, or if the convolution is transposed.
    """
    if problem.direction not in ("F", "B", "W") or problem.mode != "convolution":
        return None
    forward, flat = problem.direction == "F", ("pad_d", "stride_d", "dilation_d") if problem.spatial == 2 else ()
    numbers = [0 if name in flat else getattr(problem, name) for name in _FIELDS[forward]]
    roles = _ROLES[forward]
    layout, types = getattr(problem, f"{roles[0]}_layout"), [getattr(problem, f"{role}_type") for role in roles]
    if None in (layout, *types, *numbers):
        return None
    data_type = types[0] if len(set(types)) == 1 else "".join(types)
    return "x".join(map(str, [*numbers, layout, data_type, problem.direction]))


# -------------------------------------------------------------------------------------------------- rules about items


def _bad_key(item: Item, target: Facts) -> str | None:
    if item.key.startswith("\ufeff"):
        return "the line has a byte order mark before its key"
    return f"MIOpen makes no key like {item.key[:100]!r}" if item.problem is None else None


def _no_parameters(item: Item, target: Facts) -> str | None:
    if not item.solver or item.values[0].strip():
        return None
    return (
        f"the item has no parameters for {item.solver}, so MIOpen warns of an invalid config and runs the solver's "
        "defaults"
    )


def _crash(item: Item, target: Facts) -> str | None:
    """Return a message if the tuned parameters in a database entry may crash MIOpen, which divides by some of them."""
    if not item.solver.endswith(_PADDED):
        return None
    for number, cell in enumerate(item.values[0].split(",")[:9], start=1):
        # MIOpen reads each parameter as ``strtol`` does, so a text without a number becomes 0, but an empty text does
        # not. MIOpen reads no further parameters after a text without a number.
        found = _NUMBER.match(cell)
        digits = found["digits"].lstrip("0") if found else ""
        if number >= 7 and cell and (not digits or (len(digits) < 19 and int(digits) % (1 << 32) == 0)):
            return (
                f"parameter {number} of {item.solver} is 0, and MIOpen divides by this parameter, so the process may "
                "crash"
            )
        if not found:
            return None
    return None


def _line_end(item: Item, target: Facts) -> str | None:
    message = "the line ends with a carriage return, which MIOpen reads as part of the parameters"
    return message if item.text[-1:] == "\r" else None


def _split_k(item: Item, target: Facts) -> str | None:
    """Return a message if tuned parameters make MIOpen run a split-K reduction with too little workspace.

    Only some versions of MIOpen do so. Source: ROCm/rocm-libraries pull requests 1426 and 9427 (the backport to ROCm
    7.0.2).
    """
    parts = re.search(r"\+(\d{1,6})\s*$", item.values[0]) if item.solver and SPLIT_K.match(item.solver) else None
    version = [int(x) for x in re.findall(r"\d{1,6}", target.get("miopen_version", ""))[:3]]
    if parts is None or int(parts[1]) < 2 or not version or version > [3, 5, 0]:
        return None
    return (
        f"the item asks for a split-K reduction in {parts[1]} parts: MIOpen {target['miopen_version']} gives it too "
        "little workspace and returns wrong results, unless its build has rocm-libraries pull request 1426 or 9427"
    )


def _not_tunable(item: Item, target: Facts) -> str | None:
    if unknown_solver(item, target) or not item.solver or TUNABLE.match(item.solver):
        return None
    return f"logparse knows no parameters of {item.solver}, which the item states"


RULES = (
    *miopen_records.rules(
        "parameters",
        "put the items of both records of this key into one record",
        RETUNE,
        (
            Rule("bad-key", "error", "matched", _bad_key, RETUNE),
            Rule("parameters", "error", "honoured", _no_parameters, RETUNE),
            Rule("crash", "error", "honoured", _crash, RETUNE),
            Rule("line-ends", "error", None, _line_end, "save the file with LF line ends, without carriage returns"),
        ),
    ),
    Rule(
        "split-k",
        "warning",
        None,
        _split_k,
        "remove this solver from the line; keep the solver only if its results equal the results of another solver",
    ),
    Rule("not-tunable", "info", None, _not_tunable, ""),
)


# -------------------------------------------------------------------------------------------------- what they become


def split(id: str, rest: str) -> tuple[str, Sequence[str]]:
    return id, (rest,)


def read_record(text: str, line: int = 1, first: int = 1) -> Outcome:
    """Read one line of a perf-db (MIOpen's database of tuned parameters).

    ``first`` is the line number of the first record with the same key.
    """

    def items(key: str, payload: str, problem: ConvProblem) -> Iterator[Item]:
        return items_of(line, key, payload, first, problem, split)

    return miopen_records.read_record(text, problem_from_perf_key, items, read_parameters)


def read_parameters(item: Item, problem: ConvProblem) -> Measurement | Reject:
    """Read an entry of MIOpen's database of tuned parameters as a measurement without a time.

    Its status is ``skipped`` if MIOpen does not use the entry.  Returns a Reject if the entry names no solver.
    """
    why = why_unused(item, {}, RULES)
    if not item.solver:
        return Reject(why)
    return Measurement(
        problem=problem,
        solution=Solution("miopen", item.solver, item.values[0]),
        origin=ORIGIN,
        status="skipped" if why else "no_time",
        error=why or None,
        key_text=item.key,
    )


def row_of(item: Item, verdicts: Verdicts, breaches: tuple[Breach, ...]) -> Row:
    text = item.text.rstrip("\r")
    return Row(
        line=item.line,
        key=item.key,
        problem=item.problem,
        solution=Solution("miopen", item.solver, text) if item.solver else None,
        verdicts=verdicts,
        text=text,
        breaches=breaches,
    )
