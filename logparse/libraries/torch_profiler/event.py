"""One event of a trace.  Only the fields that are used are decoded.

msgspec decodes a block of events straight into these structs, as fast as a search for a few words in the text.  It also
checks that the text that it skips is JSON. msgspec accepts strict JSON only.  Kineto (PyTorch's profiler) also prints
control characters, bad UTF-8, NaN and a lone backslash in a name.  Such text is read by ``loads``, which takes several
times as long and gives the same structs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, field

from logparse.libraries.kinds.patterns import regex
from logparse.model import LIMIT, MOST_US

_NOTHING = Raw(b"")
_LEAST = -(1 << 63)
_DECODER = json.JSONDecoder(strict=False)
_ESCAPE = regex(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')


class Arguments(Struct, gc=False):
    """The arguments of a trace event that logparse uses.  A trace has more.

    An argument that the event lacks is UNSET, or an empty JSON text.
    """

    id: Any = field(default=UNSET, name="External id")
    old_id: Any = field(default=UNSET, name="external id")  # before PyTorch 1.11
    device: Any = UNSET
    stream: Any = UNSET
    correlation: Any = UNSET
    kernel: Any = UNSET
    group_ranks: Any = field(default=UNSET, name="Process Group Ranks")
    group_name: Any = field(default=UNSET, name="Process Group Name")
    wait_on_stream: Any = UNSET
    recorded_by: Any = field(default=UNSET, name="wait_on_cuda_event_record_corr_id")
    dims: Raw = field(default=_NOTHING, name="Input Dims")
    strides: Raw = field(default=_NOTHING, name="Input Strides")
    types: Raw = field(default=_NOTHING, name="Input type")
    values: Raw = field(default=_NOTHING, name="Concrete Inputs")
    collective: Raw = field(default=_NOTHING, name="Collective name")
    dtype: Raw = _NOTHING
    elements_in: Raw = field(default=_NOTHING, name="In msg nelems")
    elements_out: Raw = field(default=_NOTHING, name="Out msg nelems")
    group_size: Raw = field(default=_NOTHING, name="Group size")

    @property
    def external_id(self) -> int:
        """The id of the operator to which the event belongs.

        The result is -1 if the event has no id, or if the id is not a number of at most 64 bits.
        """
        value = self.old_id if self.id is UNSET else self.id
        return value if type(value) is int and _LEAST <= value < -_LEAST else -1


class StackArguments(Arguments, gc=False):
    """The arguments of an event in a trace with stacks. Other traces are read faster without the further argument."""

    sequence: Any = field(default=UNSET, name="Sequence number")


class Event(Struct, gc=False):
    """One event of a trace.

    A missing field, or a field of another type, is stored as None.  ``ts`` and ``dur`` are in µs.
    """

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Arguments | None = None

    @property
    def timed(self) -> bool:
        """True if the event has a beginning and a duration."""
        ts, dur = self.ts, self.dur
        return self.ph == "X" and ts is not None and dur is not None and math.isfinite(ts) and 0 <= dur < math.inf


class StackEvent(Event, gc=False):
    """One event of a trace with stacks."""

    args: StackArguments | None = None


def can_be(ts: float | None, dur: float | None) -> bool:
    """Return True if the times of a trace event are possible, so that the event can be used.

    A missing time is accepted. The limits are in ``logparse.model``.
    """
    return (dur is None or 0 <= dur <= MOST_US) and (ts is None or -LIMIT < ts < LIMIT)


NO_ARGUMENTS = Arguments()
_EVENTS = msgspec.json.Decoder(list[Event])
_STACK_EVENTS = msgspec.json.Decoder(list[StackEvent])
_NAMES: Mapping[str, str] = {x.name: x.encode_name for x in msgspec.structs.fields(StackArguments)}
_RAW = frozenset(x.name for x in msgspec.structs.fields(Arguments) if x.type is Raw)


def decode(text: bytes, stacks: bool = False) -> Sequence[Event]:
    """Parse a JSON list of trace events.  ``stacks`` is True for a trace with stacks.

    Raises ValueError or RecursionError if the text is not strict JSON.
    """
    try:
        return _STACK_EVENTS.decode(text) if stacks else _EVENTS.decode(text)
    except msgspec.MsgspecError as error:  # before msgspec 0.20 this is no ValueError
        raise ValueError(str(error)) from error


def event_of(value: Mapping[str, Any]) -> Event:
    """Return a trace event from a parsed JSON object.  A field of a wrong type becomes None."""
    ph, cat, name = (x if isinstance(x := value.get(key), str) else None for key in ("ph", "cat", "name"))
    pid, tid = (x if isinstance(x := value.get(key), (int, str)) else None for key in ("pid", "tid"))
    ts, dur = _time(value.get("ts")), _time(value.get("dur"))
    return Event(ph, cat, name, pid, tid, ts, dur, _arguments(value.get("args")))


def _arguments(value: object) -> Arguments | None:
    if not isinstance(value, dict):
        return None
    given = {name: value[encoded] for name, encoded in _NAMES.items() if encoded in value}
    return StackArguments(**{name: _raw(x) if name in _RAW else x for name, x in given.items()})


def _raw(value: object) -> Raw:
    try:
        return Raw(json.dumps(value).encode())
    except RecursionError:  # json can read deeper nesting than it can write
        return _NOTHING


def _time(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def number(value: object) -> int:
    """Return an argument of a trace event as an integer.

    Returns -1 if it is no integer, or an integer of more than 64 bits.
    """
    return value if type(value) is int and _LEAST <= value < -_LEAST else -1


def loads(text: bytes) -> Any:
    """Parse a JSON text that may be slightly wrong, as PyTorch's profiler writes it.

    Control characters, bad UTF-8 and single backslashes are accepted.  Raises ValueError for other text that is not
    JSON, or RecursionError if it is nested too deeply.
    """
    # Kineto prints control characters, bad UTF-8 and the backslashes of names without escapes
    decoded = text.decode("utf-8", "backslashreplace").removeprefix("\ufeff")
    try:
        return _DECODER.decode(decoded)
    except json.JSONDecodeError as error:
        if "escape" not in error.msg:
            raise
        return _DECODER.decode(_ESCAPE.sub(lambda found: found[0] if found[1] else "\\\\", decoded))


def is_kernel(event: Event) -> bool:
    """Return True if the event is a GPU kernel with a start and a duration."""
    timed = event.ts is not None and event.dur is not None
    return event.ph == "X" and event.cat == "kernel" and event.name is not None and timed
