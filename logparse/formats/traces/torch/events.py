"""The events of torch.profiler's traces, read as fast as their spelling allows (see ``torch_profiler``).

A block of events that all look as Kineto writes them is parsed by one regular expression; where one does not, its
events are parsed one by one.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logparse.formats.format import Outcome, Source
from logparse.formats.patterns import regex
from logparse.formats.traces.torch.epilogues import STEPS, step
from logparse.formats.traces.torch.event_cutter import Batch, TraceEvents, is_kernel, is_operator, loads, parse
from logparse.formats.traces.torch.graphs import GRAPH
from logparse.formats.traces.torch.inputs import Backend
from logparse.formats.traces.torch.launches import operators_by_time
from logparse.formats.traces.torch.operands import COLLECTIVE, WITHOUT_KERNELS, operator
from logparse.formats.traces.torch.operators import OPERATORS, operation
from logparse.formats.traces.torch.records import Columns, KernelIdentity, Records
from logparse.model import Fact, Record, Reject

_NUMBER = rb"(-?\d+(?:\.\d+)?)"
_NAME = rb'"([^"]*(?:(?<=\\)"[^"]*)*)"'
"""A quote behind a backslash ends the name only where the event goes on there."""
_GROUP = b"Process Group"
"""In the names of those arguments of a collective's kernel that state its ranks."""
_RANKS = regex(rb'"Process Group (Ranks|Name)":\s*("[^"\\]*"|\[[\d, ]*\])')


def _group_of(arguments: bytes) -> str:
    """The ranks of a collective, else the name of their group."""
    found = {name: value.strip(b'"').decode("utf-8", "replace") for name, value in _RANKS.findall(arguments)}
    return str(found.get(b"Ranks") or found.get(b"Name", ""))


def _whole_block(space: bytes, line: bytes, inner: bytes, end: bytes = b"") -> re.Pattern[bytes]:
    """All events of a block at once, with this white space after a colon or comma, between lines, and in arguments.

    The last group are the arguments (behind the id, where that comes first) up to the first closing brace, which is
    followed by ``end``.
    """
    number, colon, comma = _NUMBER, b'":' + space, b"," + space
    return regex(
        rb"\{" + line + rb'"(?:ph' + colon + rb'"(?:X"' + comma + rb'"cat' + colon
        + rb'"(?:(cpu_op|kernel|gpu_memcpy|gpu_memset)"' + comma + rb'"name' + colon + _NAME
        + comma + rb'"pid' + colon + rb"(-?\d+)" + comma + rb'"tid' + colon + rb"-?\d+"
        + rb"," + line + rb'"ts' + colon + number + comma + rb'"dur' + colon + number
        + rb"," + line + rb'"args' + colon + rb"\{(?:" + inner + rb'"External id' + colon + rb"(\d+))?([^}]*)\}" + end
        + rb'|(?!(?:cpu_op|kernel|gpu_memcpy|gpu_memset)")[^"\\]*")|[a-zM]")'
        + rb'|name' + colon + rb'"[^"\\]*"' + comma + rb'"ph' + colon + rb'"[Mi]")'
    )  # fmt: skip


_KINETO_BLOCK = _whole_block(b" ", rb"\n    ", rb"\n      ", rb"(?=\n  \}|\Z)")  # no string holds a line feed
_ANY_BLOCK = _whole_block(rb"\s*", rb"\s*", rb"\s*")


def _are_whole(arguments: Sequence[bytes]) -> bool:
    """Whether each text up to its first closing brace is all: no object within, and the brace in no string."""
    text = b"".join(arguments)
    return b"{" not in text and b"\\" not in text and not any(one.count(b'"') & 1 for one in arguments)


_ID = regex(rb'"[Ee]xternal id":\s*(\d+)')  # "external id" before PyTorch 1.11
_DEVICE = regex(rb'"device":\s*(\d+)')
_INPUTS = regex(rb'"(?:Concrete Inputs|Input type|Input Strides|Input Dims)":')
_COLLECTIVE = COLLECTIVE.encode()
_MESSAGE = regex(rb'"(?:Collective name|dtype|(?:In|Out) msg nelems|Group size)":\s*(?:"[^"\\]*"|\d+)')
_NOT_READ = frozenset(name.encode() for name in WITHOUT_KERNELS - {*OPERATORS, *STEPS})
"""Operators whose inputs are not read: they launch no kernels."""
_REMEMBERED = 65_536
_STEP = b'"ProfilerStep#'
_STEP_NAME = regex(r"ProfilerStep#(\d+)")
_ON_DEVICE = "gpu_user_annotation"
_STEP_CATEGORIES = ("user_annotation", "cpu_op", "python_function")
"""Of the thread that called ``step()``, by versions of PyTorch; ``gpu_user_annotation`` is its copy on the device."""
_GRAPH = b"GraphLaunch"
"""In the names of the runtime's calls that replay a graph."""


def read_events(source: Source) -> Iterator[Outcome]:
    """Every event of the trace, in exactly one unit; records come at the end."""
    columns = Columns()
    reader = _Reader(columns)
    with source.open() as stream:
        events = TraceEvents(stream)
        yield from _taken(events, reader)
    yield from events.damage
    header = {**events.tail, **events.header}
    if GRAPH in header:  # the trace of a capture, no window: what ran before it began is not of the job's units
        reader.foreign += columns.forget_kernels()
    yield Outcome("fact", [*_facts(header, columns), *reader.step_facts(), *reader.take_units(header)], lines=0)
    by_time, replays = (None, []) if columns.ids_suffice else operators_by_time(source, columns, reader.kind_of, header)
    yield Outcome("fact", replays, lines=0)
    yield from Records(columns, by_time).outcomes()
    yield Outcome("foreign", lines=reader.foreign)


def _taken(events: TraceEvents, reader: _Reader) -> Iterator[Outcome]:
    """Have the reader take every event; damaged ones come back as rejects."""
    for batch in events.batches():
        reader.backend = _backend(events.header)
        yield from reader.take(batch)


def kernel_identities(source: Source) -> list[KernelIdentity]:
    """What each kernel of the trace computes, in the order of the file, as the records of ``read_events`` state it."""
    columns = Columns()
    reader = _Reader(columns)
    with source.open() as stream:
        events = TraceEvents(stream)
        deque(_taken(events, reader), maxlen=0)
    header = {**events.tail, **events.header}
    by_time = None if columns.ids_suffice else operators_by_time(source, columns, reader.kind_of, header)[0]
    return Records(columns, by_time).identities()


class _Reader:
    """Fills columns from events."""

    def __init__(self, columns: Columns) -> None:
        self.foreign = 0
        self.backend: Backend | None = None
        """The library of the device, by the header of the trace."""
        self._columns = columns
        self._remembered: dict[bytes, int] = {}
        self._steps: dict[tuple[str, str], float] = {}
        self._begun: dict[str, float] = {}
        self._on_device: dict[str, float] = {}

    def take(self, batch: Batch) -> Iterator[Outcome]:
        """All events of a batch; damaged ones come back as rejects."""
        if _STEP in batch.block:
            self._take_steps(batch)
        self._columns.graphs |= _GRAPH in batch.block
        if self._block(batch):
            return
        for event, i, reason in batch.events():
            if event is None:
                yield Outcome("reject", [Reject(reason, 0, len(batch.bodies[i]) + 2)], at=batch.offset(i))
            else:
                self._parsed(event)

    def _take_steps(self, batch: Batch) -> None:
        """Times of the steps in it.  They are so few that their blocks may be cut into events once more."""
        for i, body in enumerate(batch.bodies):
            event = parse(batch, i)[0] if _STEP in body else None
            name = _STEP_NAME.fullmatch(str(event.get("name"))) if event is not None else None
            if event is None or name is None or not isinstance(start := event.get("ts"), (int, float)):
                continue
            if event.get("cat") == _ON_DEVICE:  # the first kernel that the thread of ``step()`` launched, on any stream
                self._on_device[name[1]] = min(start, self._on_device.get(name[1], math.inf))
            elif event.get("ph") == "X" and event.get("cat") in _STEP_CATEGORIES:
                self._begun[name[1]] = min(start, self._begun.get(name[1], math.inf))
                us = event.get("dur")
                if isinstance(us, (int, float)) and us > 0:
                    self._steps[str(event.get("pid")), name[1]] = float(us)
                    self._columns.steps_end = max(self._columns.steps_end or 0.0, start + us)

    def take_units(self, header: Mapping[str, Any]) -> Iterator[Fact]:
        """The kinds of the units that the trace holds, as far as its header (``in_job/logparse_in_job/observer.py``) names them."""
        kinds = header.get(UNIT_KINDS)
        if not isinstance(kinds, dict):
            return
        named = {str(number): str(kind) for number, kind in kinds.items()}
        begun = self._on_device if named.keys() <= self._on_device.keys() else self._begun
        self._columns.units = sorted((begun[number], kind) for number, kind in named.items() if number in begun)
        counts = Counter(kind for _, kind in self._columns.units)
        yield Fact("unit_kinds", json.dumps(dict(sorted(counts.items()))))
        if isinstance(header.get(FIRST_UNIT), int):
            yield Fact("first_unit", str(header[FIRST_UNIT]))

    def step_facts(self) -> list[Fact]:
        """How many steps were seen (those of each process, where a trace was merged), and how long they took."""
        if not self._steps:
            return []
        wall = math.fsum(self._steps.values())
        return [Fact("profiler_steps", str(len(self._steps))), Fact("profiler_steps_us", f"{wall:.3f}")]

    def _block(self, batch: Batch) -> bool:
        """A whole block of events that all look as expected; False (and nothing done) where one does not."""
        pattern = _KINETO_BLOCK if batch.kineto else _ANY_BLOCK
        found = pattern.findall(b"{" + batch.block)
        if len(found) != batch.count or not (batch.kineto or _are_whole([event[-1] for event in found])):
            return False
        columns, foreign, process = self._columns, 0, b""
        kinds, names = columns.plain_kinds, columns.raw_names
        add_id, add_kind = columns.op_id.append, columns.op_kind.append
        for category, name, pid, start, duration, id, args in found:
            if not category:
                foreign += 1
                continue
            late = None if id else _ID.search(args)
            number = int(id or (late[1] if late else -1))
            if category == b"cpu_op":
                add_id(number)
                add_kind(kinds[name] if name in _NOT_READ else self._kind(args, name))
                if pid != process:
                    columns.pids.add(pid)
                    process = pid
            elif category == b"kernel":
                device = _DEVICE.search(args)
                index = int(device[1]) if device else -1
                columns.add_kernel(names[name], number, float(start), float(duration), index)
                if _GROUP in args:
                    columns.kernel_group[len(columns.kernel_id) - 1] = _group_of(args)
            else:
                columns.copies[columns.names[names[name]]] += 1
                columns.copies_us += float(duration)
        self.foreign += foreign
        return True

    def _kind(self, args: bytes, name: bytes) -> int:
        """The kind of an operator; the same inputs are parsed once.

        ``args`` are its arguments from anywhere before the inputs, with or without the closing brace.
        """
        inputs = _INPUTS.search(args)
        end = args.rfind(b'"Ev Idx"')
        text = args[inputs.start() : end if end > 0 else None].rstrip(b", \r\n\t}") if inputs else b""
        if name == _COLLECTIVE:  # what names it may stand before its inputs
            text = b", ".join((*filter(None, (text,)), *_MESSAGE.findall(args)))
        key = name + text
        kind = self._remembered.get(key)
        if kind is None:
            names = self._columns
            kind = self._kind_of(names.names[names.raw_names[name]], _arguments(text) if text else None)
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = kind
        return kind

    def _kind_of(self, name: str, args: object) -> int:
        known, at = args if isinstance(args, dict) else {}, self._columns.text(name)
        if name in OPERATORS:
            found = operation(name, known, self.backend)
            return self._columns.kind(at, found, unread=found is None)
        return self._columns.kind(at, step=step(name, known) if name in STEPS else None, operator=operator(name, known))

    def kind_of(self, event: Mapping[str, Any]) -> int:
        """The kind of an operator's event."""
        return self._kind_of(event["name"], event.get("args"))

    def _parsed(self, event: Mapping[str, Any]) -> None:
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        id = args.get("External id", args.get("external id"))
        number = id if type(id) is int else -1
        columns = self._columns
        if is_operator(event):
            columns.add_operator(number, self._kind_of(event["name"], args), str(event.get("pid")).encode())
        elif is_kernel(event):
            device = args.get("device")
            index = columns.text(event["name"])
            columns.add_kernel(index, number, event["ts"], event["dur"], device if type(device) is int else -1)
            if _GROUP.decode() in args:
                columns.kernel_group[len(columns.kernel_id) - 1] = _group_of(json.dumps(args).encode())
        elif event.get("cat") in ("gpu_memcpy", "gpu_memset"):
            columns.copies[str(event.get("name"))] += 1
            us = event.get("dur")
            columns.copies_us += us if isinstance(us, (int, float)) and 0 <= us < math.inf else 0.0
        else:
            self.foreign += 1


def _arguments(text: bytes) -> object:
    try:
        return loads(b"{" + text + b"}")
    except (ValueError, RecursionError):
        return None


def _facts(top: Mapping[str, Any], columns: Columns) -> list[Record]:
    """The machine and the process of the header."""
    devices, backend, untraced = top.get("deviceProperties"), _backend(top), top.get(UNTRACED_STEP)
    known = [x for x in devices if isinstance(x, dict)] if isinstance(devices, list) else []
    facts: list[Record] = [fact for device in known for fact in _device_facts(device)]
    facts += [Fact("backend", "HIP" if backend == "miopen" else "CUDA")] if backend is not None else []
    facts += [Fact(name, str(top[key])) for key, name in _VERSIONS.items() if key in top]
    if isinstance(untraced, (int, float)) and 0 < untraced < math.inf:
        facts.append(Fact("untraced_step_us", f"{untraced:.3f}"))
    distributed = top.get("distributedInfo")
    if isinstance(distributed, dict) and "rank" in distributed:
        facts.append(Fact("rank", str(distributed["rank"])))
    process = next(iter(columns.pids)).decode("utf-8", "replace") if len(columns.pids) == 1 else ""
    if process.isdigit():
        facts.append(Fact("pid", process))
    return list(dict.fromkeys(facts))


def _backend(top: Mapping[str, Any]) -> Backend | None:
    if any(str(key).startswith(("hip_", "roctracer", "rocprofiler")) for key in top):
        return "miopen"
    return "cudnn" if "cuda_runtime_version" in top or "cupti_version" in top else None


UNIT_KINDS, FIRST_UNIT = "logparse_unit_kinds", "logparse_first_unit"
"""The kind of each marked step by its number, and how many units the process had counted before the first one."""
UNTRACED_STEP = "logparse_untraced_step_us"
"""Wall time of a step (µs) before the profiler was on, which earlier captures added."""

_VERSIONS = {
    "cuda_runtime_version": "cuda_runtime_version",
    "cuda_driver_version": "driver",
    "hip_runtime_version": "hip_version",
    "hip_driver_version": "driver",
    "pytorch_version": "pytorch_version",
}


def _device_facts(device: Mapping[str, Any]) -> list[Record]:
    name, units = device.get("name"), device.get("numSms")
    facts: list[Record] = [Fact("device", str(name))] if name else []
    facts += [Fact("cu_count", str(units))] if type(units) is int else []
    if device.get("gcnArchName"):
        facts.append(Fact("arch", str(device["gcnArchName"])))
    elif device.get("warpSize") == 32 and str(name).startswith(("NVIDIA", "Tesla", "GeForce", "Quadro")):
        facts.append(Fact("arch", f"sm_{device.get('computeMajor')}{device.get('computeMinor')}"))
    return facts
