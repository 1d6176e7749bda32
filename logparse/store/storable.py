"""Check records before they are stored: numbers must be in range, and texts must be readable again later.

A record that fails is replaced by a reject with the reason. The rules are in ``logparse.model``.
"""

# The rules are: which texts of products, convolutions and kernels can be read back (``faults``), the ranges of numbers
# (``ranges``), and the grammar of texts (``grammar``).

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from logparse.devices import DESCRIBE, too_fast
from logparse.libraries.kinds.format import Outcome
from logparse.model import (
    MOST_CALLS,
    MOST_US,
    Call,
    Collective,
    Fact,
    Kernel,
    Measurement,
    Message,
    Record,
    Reject,
    SolutionName,
    describe_value,
    is_moment,
    is_time,
    is_whole,
    problem_fault,
    solution_fault,
)
from logparse.model import fault as text_fault

_MOST_DEVICE = (1 << 31) - 1


_NOTHING: Mapping[str, str] = MappingProxyType({})


def describe(device: dict[str, str], records: Iterable[Record]) -> None:
    """Add to ``device`` what a file's facts state about its GPU (``DESCRIBE``). A fact with two values becomes empty.

    An empty value means that the GPU is unknown, for example because the file holds the output of two machines.
    """
    for record in records:
        if isinstance(record, Fact) and record.name in DESCRIBE:
            # The features of an architecture (``:sramecc+``) do not change what the GPU can reach.
            value = record.value.partition(":")[0] if record.name == "arch" else record.value
            if device.setdefault(record.name, value) != value:
                device[record.name] = ""


def storable(outcome: Outcome, device: Mapping[str, str] = _NOTHING) -> Outcome:
    """Check that everything that was read from a log line can be stored. Replace what cannot be stored.

    The replacement is a ``Reject`` with the reason. ``device`` holds the file's facts about its GPU. Returns the
    changed result.
    """
    if outcome.unit == "reject":
        return outcome
    reasons = [fault(record, device) for record in outcome.records]
    if not any(reasons):
        return outcome
    records = [Reject(why) if why else record for record, why in zip(outcome.records, reasons, strict=True)]
    left = any(not isinstance(record, Reject | Message) for record in records)
    # If only messages and rejects are left, the whole line is counted as rejected.
    return Outcome(outcome.unit if left else "reject", records, outcome.lines, outcome.at, outcome.tables)


def fault(record: Record, device: Mapping[str, str] = _NOTHING) -> str | None:
    """Return the reason why a record cannot be stored, or None if it can.

    For example, a number is out of range, or a text does not fit its grammar. ``device``: facts about the GPU.
    """
    if isinstance(record, Measurement):
        return _measurement(record, device) or text_fault(record)
    check = _CHECKS.get(type(record))
    return (check(record) if check is not None else None) or text_fault(record)


def _call(call: Call) -> str | None:
    if call.count is not None and not is_whole(call.count, 0, MOST_CALLS):
        return f"{describe_value(call.count)} calls: only 0 to {MOST_CALLS:,} can be stored"
    return (
        problem_fault(call.problem)
        or (call.solution and solution_fault(call.solution))
        or _workspace(call.workspace_bytes)
        or _device(call.device)
        or (None if call.pid is None or is_whole(call.pid) else f"process {describe_value(call.pid)}")
    )


def _measurement(item: Measurement, device: Mapping[str, str]) -> str | None:
    for name in ("time_us", "min_us", "max_us", "std_us"):
        if (value := getattr(item, name)) is not None and not is_time(value):
            return _time_fault(name, value)
    bad = next((value for value in item.samples_us if not is_time(value)), None)
    if bad is not None:
        return _time_fault("a sample", bad)
    wrong = problem_fault(item.problem) or solution_fault(item.solution) or _workspace(item.workspace_bytes)
    return wrong or too_fast(item.problem.least_flops, item.time_us, device) or None


def _kernel(kernel: Kernel) -> str | None:
    if not is_whole(kernel.calls, 1, MOST_CALLS):
        return f"{describe_value(kernel.calls)} calls of a kernel: only 1 to {MOST_CALLS:,} can be stored"
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
        return f"start_us is {describe_value(item.start_us)}, not a time stamp"
    bad = next((x for x in (item.us, item.alone_us) if not is_time(x)), None)
    return _device(item.device) if bad is None else _time_fault("a collective", bad)


def _message(message: Message) -> str | None:
    known = is_whole(message.count, 0, MOST_CALLS)
    return None if known else f"{describe_value(message.count)} messages: only 0 to {MOST_CALLS:,} can be stored"


def _workspace(value: int | None) -> str | None:
    known = value is None or is_whole(value)
    return None if known else f"workspace_bytes is {describe_value(value)}: only 0 to 2^63 - 1 can be stored"


def _device(value: int | None) -> str | None:
    known = value is None or is_whole(value, 0, _MOST_DEVICE)
    return None if known else f"device is {describe_value(value)}: only 0 to 2^31 - 1 can be stored"


def _time_fault(name: str, value: object) -> str:
    return f"{name} is {describe_value(value)}: times must be finite and from 0 to {MOST_US:g} µs"


_CHECKS: Mapping[type, Callable[[Any], str | None]] = {
    Call: _call,
    Kernel: _kernel,
    Collective: _collective,
    Message: _message,
    SolutionName: lambda item: solution_fault(item.solution),
}
