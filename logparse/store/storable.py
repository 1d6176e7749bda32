"""Which records the store takes: each can be read back as it was, and its numbers are in range.

A problem is stored as its text and read back from it, a solution likewise.  A blank in a type or a comma in a layout
would make a text that no verb can read, so such a record is a reject when it is ingested, whatever its format is.
``logparse.model.ranges`` states the ranges of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, get_args, get_origin, get_type_hints

from logparse.formats.format import Outcome
from logparse.model import (
    LIMIT,
    MOST_CALLS,
    MOST_US,
    Call,
    Collective,
    ConvProblem,
    GemmProblem,
    Kernel,
    Measurement,
    Message,
    OperatorProblem,
    Problem,
    Record,
    Reject,
    Solution,
    SolutionName,
    is_moment,
    is_time,
    is_whole,
    problem_from_text,
    solution_from_text,
)

_MOST_DEVICE = (1 << 31) - 1
_SHOWN = 80


def storable(outcome: Outcome) -> Outcome:
    """The outcome, in which a reject with its reason stands for each record that the store does not take.

    It is a reject as a whole where no other record is left.
    """
    if outcome.unit == "reject":
        return outcome
    reasons = [*map(fault, outcome.records)]
    if not any(reasons):
        return outcome
    records = [Reject(why) if why else record for record, why in zip(outcome.records, reasons, strict=True)]
    left = any(not isinstance(record, Reject) for record in records)
    return Outcome(outcome.unit if left else "reject", records, outcome.lines, outcome.at, outcome.tables)


def fault(record: Record) -> str | None:
    """Why the store does not take this record; None where it does."""
    check = _CHECKS.get(type(record))
    return check(record) if check is not None else None


# ------------------------------------------------------------------------------------------------------------ problems


def problem_fault(problem: Problem) -> str | None:
    """Why this problem cannot be stored; None where its text gives the same problem again."""
    if isinstance(problem, OperatorProblem):
        return _operator_fault(problem)
    of, values = _FIELDS[type(problem)], vars(problem)
    for name, value, least in zip(of.numbers, of.numbers_of(values), of.least, strict=True):
        if value is not None and not (type(value) is int and least <= value < LIMIT):
            return _number_fault(name, value, least)
    for member in values.get("members", ()):
        for name, value in vars(member).items():
            if value is not None and not is_whole(value):
                return _number_fault(f"{name} of a member", value, 0)
    return _texts_fault(type(problem), of.texts_of(values))


def _number_fault(name: str, value: object, least: int) -> str:
    if type(value) is not int:
        return f"{name} is {_shown(value)}, no whole number"
    why = "a number beyond 64 bits" if abs(value) >= LIMIT else f"at least {least} is read"
    return f"{name} is {_shown(value)}: {why}"


@lru_cache(maxsize=4096)
def _texts_fault(kind: type[GemmProblem | ConvProblem], values: tuple[object, ...]) -> str | None:
    """The fault of a problem's fields that are no numbers; files hold few combinations of them."""
    of = _FIELDS[kind]
    for name, value in zip(of.texts, values, strict=True):
        allowed = of.allowed.get(name)
        if value is not None and (value not in allowed if allowed else not isinstance(value, str)):
            return f"{name} is {_shown(value)}" + (f", not one of {', '.join(map(str, allowed))}" if allowed else "")
    named = dict(zip(of.texts, values, strict=True))
    if _reads_back(kind, named):
        return None
    needed = {"direction": named["direction"]} if "direction" in named else {}
    name = next((x for x, value in named.items() if not _reads_back(kind, needed | {x: value})), "a field")
    return f"{name} is {_shown(named.get(name))}: the text of the problem would not read back"


def _reads_back(kind: type[GemmProblem | ConvProblem], values: Mapping[str, Any]) -> bool:
    problem = kind(**values)
    try:
        return problem_from_text(problem.text) == problem.normal
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def _operator_fault(problem: OperatorProblem) -> str | None:
    try:
        same = problem_from_text(problem.text) == problem
    except ValueError:
        same = False
    numbers = (n for tensor in problem.tensors for n in (*tensor.sizes, *tensor.strides))
    if not all(map(is_whole, numbers)):
        return f"operator {_shown(problem.name)}: a size or stride is no number from 0 to 64 bits"
    return None if same else f"operator {_shown(problem.name)}: its text would not read back"


@dataclass(frozen=True)
class _Fields:
    """The fields of a class of problems: numbers with the least value of each, and the others with allowed values."""

    numbers: Sequence[str]
    least: Sequence[int]
    texts: Sequence[str]
    allowed: Mapping[str, Sequence[object]]
    numbers_of: Callable[[Mapping[str, Any]], tuple[object, ...]]
    texts_of: Callable[[Mapping[str, Any]], tuple[object, ...]]


def _fields(kind: type[GemmProblem | ConvProblem], from_zero: Iterable[str]) -> _Fields:
    types = {name: get_type_hints(kind)[name] for name in (x.name for x in fields(kind)) if name != "members"}
    allowed = {name: _allowed(type_) for name, type_ in types.items()}
    numbers = [name for name, type_ in types.items() if int in get_args(type_)]
    texts = [name for name in types if name not in numbers]
    zero = tuple(from_zero)
    return _Fields(
        numbers=numbers,
        least=[0 if name.startswith(zero) else 1 for name in numbers],
        texts=texts,
        allowed={name: values for name in texts if (values := allowed[name])},
        numbers_of=itemgetter(*numbers),
        texts_of=itemgetter(*texts),
    )


def _allowed(type_: Any) -> Sequence[object]:
    """The values of a Literal or of a truth value in a type; empty for others."""
    options = (type_, *get_args(type_))
    literals = [x for option in options if get_origin(option) is Literal for x in get_args(option)]
    return [*literals, *([False, True] if bool in options else [])]


_FIELDS: Mapping[type, _Fields] = {
    GemmProblem: _fields(GemmProblem, ("ld", "stride_")),
    ConvProblem: _fields(ConvProblem, ("pad_", "bias")),
}

# ------------------------------------------------------------------------------------------------------- other records


def solution_fault(solution: Solution) -> str | None:
    """Why this solution cannot be stored; None where its text gives the same solution again."""
    if solution_from_text(solution.text) == solution:
        return None
    named = f"solution {_shown(solution.id)} of library {_shown(solution.library)}"
    return f"{named}: its text {_shown(solution.text)} would not read back"


def _call(call: Call) -> str | None:
    if call.count is not None and not is_whole(call.count, 0, MOST_CALLS):
        return f"{_shown(call.count)} calls: 0 to {MOST_CALLS:,} are read"
    return (
        problem_fault(call.problem)
        or (call.solution and solution_fault(call.solution))
        or _workspace(call.workspace_bytes)
        or _device(call.device)
        or (None if call.pid is None or is_whole(call.pid) else f"process {_shown(call.pid)}")
    )


def _measurement(item: Measurement) -> str | None:
    for name in ("time_us", "min_us", "max_us", "std_us"):
        if (value := getattr(item, name)) is not None and not is_time(value):
            return _time_fault(name, value)
    bad = next((value for value in item.samples_us if not is_time(value)), None)
    if bad is not None:
        return _time_fault("a sample", bad)
    return problem_fault(item.problem) or solution_fault(item.solution) or _workspace(item.workspace_bytes)


def _kernel(kernel: Kernel) -> str | None:
    if not is_whole(kernel.calls, 1, MOST_CALLS):
        return f"{_shown(kernel.calls)} calls of a kernel: 1 to {MOST_CALLS:,} are read"
    for name, value in (("min_us", kernel.min_us), ("max_us", kernel.max_us)):
        if value is not None and not is_time(value):
            return _time_fault(name, value)
    if not is_time(kernel.total_us / kernel.calls):
        return _time_fault("total_us", kernel.total_us)
    return (
        (kernel.problem and problem_fault(kernel.problem))
        or (kernel.operator and problem_fault(kernel.operator))
        or _device(kernel.device)
    )


def _collective(item: Collective) -> str | None:
    if not is_moment(item.start_us):
        return f"start_us is {_shown(item.start_us)}, no time stamp"
    bad = next((x for x in (item.us, item.alone_us) if not is_time(x)), None)
    return _device(item.device) if bad is None else _time_fault("a collective", bad)


def _message(message: Message) -> str | None:
    known = is_whole(message.count, 0, MOST_CALLS)
    return None if known else f"{_shown(message.count)} messages: 0 to {MOST_CALLS:,} are read"


def _workspace(value: int | None) -> str | None:
    known = value is None or is_whole(value)
    return None if known else f"workspace_bytes is {_shown(value)}: 0 to 2^63 - 1 are read"


def _device(value: int | None) -> str | None:
    known = value is None or is_whole(value, 0, _MOST_DEVICE)
    return None if known else f"device {_shown(value)}: 0 to 2^31 - 1 are read"


def _time_fault(name: str, value: object) -> str:
    return f"{name} is {_shown(value)}: times are finite and 0 to {MOST_US:g} µs"


def _shown(value: object) -> str:
    """A value from a file for a message, shortened; Python prints no number of more than 4,300 digits."""
    if isinstance(value, int) and abs(value) >= 1 << 256:
        return "a number of more than 77 digits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


_CHECKS: Mapping[type, Callable[[Any], str | None]] = {
    Call: _call,
    Measurement: _measurement,
    Kernel: _kernel,
    Collective: _collective,
    Message: _message,
    SolutionName: lambda item: solution_fault(item.solution),
}
