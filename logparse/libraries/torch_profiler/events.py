"""Read the events of a torch.profiler trace in one pass, and keep them as columns (see ``profiler``)."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import UNSET

from logparse.libraries.kinds.format import TRACE_ID, Outcome, Source
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.coverage import Coverage, Floats
from logparse.libraries.torch_profiler.epilogues import STEPS, step
from logparse.libraries.torch_profiler.event import (
    NO_ARGUMENTS,
    Arguments,
    Event,
    StackArguments,
    can_be,
    is_kernel,
    loads,
    number,
)
from logparse.libraries.torch_profiler.event_cutter import Batch, TraceEvents
from logparse.libraries.torch_profiler.graphs import CAPTURE, LAUNCH, LAUNCHES_GRAPH, Read, captured, is_capture
from logparse.libraries.torch_profiler.inputs import Backend
from logparse.libraries.torch_profiler.launches import operators_by_time, take_ids_for_correlations
from logparse.libraries.torch_profiler.operands import COLLECTIVE, WITHOUT_KERNELS, operator
from logparse.libraries.torch_profiler.operators import OPERATORS, operation
from logparse.libraries.torch_profiler.records import Columns, Ints, Records
from logparse.libraries.torch_profiler.stacks import CATEGORY as FUNCTION
from logparse.libraries.torch_profiler.step_kinds import step_kinds
from logparse.libraries.torch_profiler.timeline import FIRST_UNIT, MARK, RUNTIME, UNIT_KINDS, serving_steps, timeline
from logparse.libraries.torch_profiler.trace_id import trace_id
from logparse.model import Fact, Record, Reject

_INPUTS = {"dims": "Input Dims", "strides": "Input Strides", "types": "Input type", "values": "Concrete Inputs"}
_MESSAGE = {
    "collective": "Collective name",
    "dtype": "dtype",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "group_size": "Group size",
}
"""Arguments that are read from the events of communication operators: the field and its name in the trace.

The fields belong to ``Arguments``.  ``_INPUTS`` are the arguments that are read for other operators.
"""
_NOT_READ = WITHOUT_KERNELS - {*OPERATORS, *STEPS}
"""The operators whose inputs are not read, because they launch no kernels."""
_REMEMBERED = 65_536
_NAN = math.nan
_NAMES = 4096
"""The maximum number of event names for which the reader remembers whether they mark a step or a batch."""
_STEP = b'"ProfilerStep#'
_OPTIMIZER = "Optimizer.step#"
_STEP_NAME = regex(r"ProfilerStep#(\d+)")
_ON_DEVICE = "gpu_user_annotation"
_ANNOTATION = "user_annotation"
_STEP_CATEGORIES = (_ANNOTATION, "cpu_op", "python_function")
"""The categories that the event of a step can have on the thread that called ``step()``.

The categories differ between versions of PyTorch.  ``gpu_user_annotation`` is the copy of such an event on the device.
"""


def read_events(source: Source) -> Iterator[Outcome]:
    """Read a trace of torch.profiler. Yields a count for each event, and then the records in the trace.

    The records are calls, kernels and facts.
    """
    columns = Columns()
    reader = _Reader(columns)
    with source.open() as stream:
        events = TraceEvents(stream)
        yield from _read_all_events(events, reader)
    yield from events.damage
    header = {**events.tail, **events.header}
    yield Outcome("fact", _identity(columns, header), lines=0)
    reader.of_capture = is_capture(columns, header)
    # This trace is not a window of the job: work before or after the capture is not part of the job's units.
    if reader.of_capture:
        known = [*_facts(header, columns), _of_capture(columns)]
        reader.foreign += columns.forget_kernels()
    else:
        columns.left_out = captured(columns)
        known = _facts(header, columns)
    yield Outcome("fact", known, lines=0)
    take_ids_for_correlations(columns)
    by_time, replays = (None, []) if columns.ids_suffice else operators_by_time(source, columns, reader.beside, header)
    yield Outcome("fact", replays, lines=0)
    records = Records(columns, by_time)
    if not reader.of_capture:
        if UNIT_KINDS not in header:  # Else the header says which steps the job did.
            reader.drop_empty_last_steps()
        # If the header lists the kinds of steps, their times are already weighted as in the whole job.
        mixed = () if isinstance(header.get(UNIT_KINDS), dict) else step_kinds(columns)
        yield Outcome("fact", [*reader.step_facts(), *mixed, *reader.take_units(header)], lines=0)
    yield from records.outcomes()
    yield Outcome("foreign", lines=reader.foreign)
    yield Outcome("fact", lines=0, tables={"timelines": timeline(columns, *records.identities(), header)})


def _read_all_events(events: TraceEvents, reader: _Reader) -> Iterator[Outcome]:
    """Read every event of the trace with this reader. Yield an error for each damaged event."""
    for batch in events.batches():
        reader.backend = reader.backend or _backend(events.header)
        reader.stacks = batch.stacks = events.header.get(WITH_STACK) == 1
        yield from reader.take(batch)


_TIMED = frozenset({"cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "user_annotation", "gpu_user_annotation"})
"""The categories of events whose times are read."""


class _Reader:
    """Reads the events of a trace, and sorts them into columns for operators, kernels, copies and runtime calls."""

    def __init__(self, columns: Columns, backend: Backend | None = None) -> None:
        self.foreign = 0
        self.of_capture = False
        self.backend = backend
        """The library that computes convolutions on the device, as far as the trace's header shows it."""
        self.stacks = False
        """True if the trace's header says that calls of Python functions are recorded."""
        self._columns = columns
        self._remembered: dict[tuple[str, bytes], int] = {}
        self._not_read: dict[str, int] = {}
        self._threads: dict[tuple[object, object], int] = {}
        self._names: dict[str, int] = {}
        self._steps: dict[tuple[str, str], tuple[float, float]] = {}
        """The beginning and the duration of each step (µs), by its process and its number."""
        self._begun: dict[str, float] = {}
        self._on_device: dict[str, float] = {}

    def take(self, batch: Batch) -> Iterator[Outcome]:
        """Read all events of one block of the trace. Yield an error with the reason for each damaged event."""
        self._columns.graphs |= LAUNCHES_GRAPH in batch.block
        self._columns.captures |= CAPTURE in batch.block
        marked = _STEP in batch.block
        if (events := batch.whole()) is not None:
            bad = {i: x for i, x in enumerate(events) if x.cat in _TIMED and not can_be(x.ts, x.dur)}
            for i, x in bad.items():
                # Events may have been cut wrongly, because an event may contain text that looks like the place of a
                # cut.
                place = i if len(events) == len(batch.bodies) else 0
                yield self._reject(batch, place, f"ts {x.ts} or dur {x.dur} µs is impossible")
            self._all([x for i, x in enumerate(events) if i not in bad] if bad else events, marked)
            return
        for event, i, reason in batch.one_by_one():
            if event is None:
                yield self._reject(batch, i, reason)
            elif event.cat in _TIMED and not can_be(event.ts, event.dur):
                yield self._reject(batch, i, f"ts {event.ts} or dur {event.dur} µs is impossible")
            else:
                self._all([event], marked)

    @staticmethod
    def _reject(batch: Batch, i: int, reason: str) -> Outcome:
        return Outcome("reject", [Reject(reason, 0, len(batch.bodies[i]) + 2)], at=batch.offset(i))

    def _all(self, events: Sequence[Event], marked: bool) -> None:
        """Read the events of a block, all events of one kind together.

        This needs fewer function calls than to read them in order.  Most of the time goes into such calls.
        """
        operators, device, calls, waits, annotations, functions, others = [list[Event]() for _ in range(7)]
        kinds = {
            "cpu_op": operators,
            **dict.fromkeys(("kernel", "gpu_memcpy", "gpu_memset"), device),
            **dict.fromkeys(RUNTIME, calls),
            "cuda_sync": waits,
            _ANNOTATION: annotations,
            FUNCTION: functions,
        }
        for event in events:
            kinds.get(event.cat or "", others).append(event)
        self.foreign += len(calls) + len(waits) + len(annotations) + len(functions) + len(others)
        self._operators(operators)
        for event in device:
            if event.cat == "kernel":
                self._kernel(event)
            else:
                self._copy(event)
        self._calls(calls)
        for event in waits:
            self._wait(event)
        for event in annotations:
            self._annotation(event)
        for event in functions:
            self._function(event)
        if marked:
            self._take_steps(events)

    def _take_steps(self, events: Sequence[Event]) -> None:
        """Find the events that mark the steps of the job, such as ``ProfilerStep#3``, and keep their times."""
        for event in events:
            name = _STEP_NAME.fullmatch(event.name or "")
            if name is None or (start := event.ts) is None or not can_be(start, event.dur):
                continue
            # This event begins with the first kernel of the thread that called ``step()``, on any stream.
            if event.cat == _ON_DEVICE:
                self._on_device[name[1]] = min(start, self._on_device.get(name[1], math.inf))
            elif event.ph == "X" and event.cat in _STEP_CATEGORIES:
                self._begun[name[1]] = min(start, self._begun.get(name[1], math.inf))
                if event.dur is not None and event.dur > 0:
                    self._add_step((str(event.pid), name[1]), start, event.dur)
                    if event.cat != _ANNOTATION:  # the old profilers record steps in these categories
                        self._note(name[0], start, event.dur)

    def _add_step(self, key: tuple[str, str], start: float, us: float) -> None:
        columns = self._columns
        self._steps[key] = start, us
        columns.steps_begin = start if columns.steps_begin is None else min(columns.steps_begin, start)
        columns.steps_end = max(columns.steps_end or 0.0, start + us)

    def drop_empty_last_steps(self) -> None:
        """Drop the last step of a process if it contains no operator and no launch, and all steps before contain some.

        A program begins such a step if it calls ``step()`` after its last iteration and then stops the profiler.
        """
        columns = self._columns
        if len(self._steps) < 2:
            return
        start, thread = _host_work(columns)
        for process in {process for process, _ in self._steps}:
            steps = sorted((begin, us, number) for (of, number), (begin, us) in self._steps.items() if of == process)
            threads = [i for i, (of, _) in enumerate(columns.threads) if of == process]
            at = np.sort(start[np.isin(thread, threads)])
            begins, lasts = (np.array([x[i] for x in steps], dtype=np.float64) for i in (0, 1))
            works = np.searchsorted(at, begins) < np.searchsorted(at, begins + lasts)
            # A job in which another step is empty, too, has steps without work.
            if len(steps) > 1 and works[:-1].all() and not works[-1]:
                number = steps[-1][2]
                del self._steps[process, number]
                mark = f"ProfilerStep#{number}"
                columns.marks = [x for x in columns.marks if x[0] != mark or columns.threads[x[3]][0] != process]
                columns.steps_end = max(begin + us for begin, us in self._steps.values())

    def take_units(self, header: Mapping[str, Any]) -> Iterator[Fact]:
        """State how many steps of each kind are in the trace.

        A kind is, for example, all steps with the same batch size.  Only traces that ``logparse capture`` made list the
        kinds, in their header.  ``logparse/capture/in_job/logparse_in_job/observer.py`` writes that header.
        """
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
        """State how many steps are in the trace, and their total time in µs.

        * If a trace was merged from several processes, the steps of each process are counted.
        * If the profiler marks no steps, the steps of a serving engine (vLLM, SGLang) are counted, without a time.
        * If there are no such steps either, the steps of optimizers are counted as another fact, because a program may
          have several optimizers, or do several forward passes for each of their steps.
        """
        served = [] if self._steps else serving_steps(self._columns)
        for i, (start, end, _) in enumerate(served):
            self._add_step(("", str(i)), start, end - start)
        if not self._steps:
            stepped = self._count_optimizer_steps()
            return [Fact("optimizer_steps", str(stepped))] if stepped else []
        count, wall = Fact("profiler_steps", str(len(self._steps))), math.fsum(us for _, us in self._steps.values())
        cuts = np.array(self._columns.left_out, dtype=np.float64).reshape(-1, 2).T
        begin, end = self._columns.steps_begin or 0.0, self._columns.steps_end or 0.0
        cut = float(Coverage(*cuts).within(np.array([begin]), np.array([end]))[0])
        wall = max(wall - cut, 0.0)
        # a serving engine marks when the host issues a step, not when the device has finished the step
        return [count] if served else [count, Fact("profiler_steps_us", f"{wall:.3f}")]

    def _count_optimizer_steps(self) -> int:
        """Count the steps of optimizers. A step within another one belongs to an optimizer that wraps another."""
        columns, count, end = self._columns, 0, -math.inf
        ids = {x for x in set(columns.annotation_name) if columns.names[x].startswith(_OPTIMIZER)}
        rows = zip(columns.annotation_name, columns.annotation_start, columns.annotation_us, strict=True)
        for start, us in sorted((start, us) for name, start, us in rows if name in ids):
            count += start >= end
            end = max(end, start + us)
        return count

    def beside(self, source: Source) -> Read:
        """Read another trace file, which may show how a CUDA graph was captured that this trace replays.

        Returns the other trace's columns and header.  Both traces share the lists of names and operators.
        """
        columns = Columns(self._columns.known)
        reader = _Reader(columns, self.backend)
        with source.open() as stream:
            events = TraceEvents(stream)
            for _ in _read_all_events(events, reader):
                pass
        return columns, {**events.tail, **events.header}

    def _thread(self, event: Event) -> int:
        key = (event.pid, event.tid)
        thread = self._threads.get(key)
        if thread is None:
            thread = self._threads[key] = self._columns.thread(*key)
        return thread

    def _name(self, name: str) -> int:
        index = self._names.get(name)
        if index is None:
            index = self._names[name] = self._columns.text(name)
        return index

    def _operators(self, events: Sequence[Event]) -> None:
        not_read, threads, columns = self._not_read, self._threads, self._columns
        rows = []
        for event in events:
            if event.ph != "X" or (name := event.name) is None:
                self.foreign += 1
                continue
            args = event.args or NO_ARGUMENTS
            kind, thread = not_read.get(name), threads.get((event.pid, event.tid))
            rows.append(
                (
                    args.external_id,
                    self._kind(name, args) if kind is None else kind,
                    self._thread(event) if thread is None else thread,
                    _NAN if event.ts is None else event.ts,
                    _NAN if event.dur is None else event.dur,
                )
            )
            if _marks(name):
                self._mark(event)
        _extend(rows, columns.op_id, columns.op_kind, columns.op_thread, columns.op_start, columns.op_us)
        if self.stacks:
            kept = (event for event in events if event.ph == "X" and event.name is not None)
            columns.frames.sequence.extend(
                number(event.args.sequence) if isinstance(event.args, StackArguments) else -1 for event in kept
            )

    def _calls(self, events: Sequence[Event]) -> None:
        names, threads, columns = self._names, self._threads, self._columns
        rows = []
        for event in events:
            if event.ph != "X" or (ts := event.ts) is None:
                continue
            args, called = event.args or NO_ARGUMENTS, str(event.name)
            name, thread, kernel = names.get(called), threads.get((event.pid, event.tid)), args.kernel
            rows.append(
                (
                    self._name(called) if name is None else name,
                    self._thread(event) if thread is None else thread,
                    args.external_id,
                    ts,
                    _NAN if event.dur is None else event.dur,
                    number(args.correlation),
                    self._name(kernel) if isinstance(kernel, str) else -1,
                )
            )
        told = (columns.call_start, columns.call_us, columns.call_correlation, columns.call_kernel)
        _extend(rows, columns.call_name, columns.call_thread, columns.call_id, *told)

    def _kind(self, name: str, args: Arguments) -> int:
        """Return a number that stands for an operator's name together with its inputs.

        Operators with the same name and inputs have the same number, so equal inputs are parsed only once.
        """
        if name in _NOT_READ:
            kind = self._not_read[name] = self._columns.kind(self._columns.text(name))
            return kind
        fields = _INPUTS if name != COLLECTIVE else {**_INPUTS, **_MESSAGE}
        key = (name, b"\n".join([bytes(getattr(args, field)) for field in fields]))
        known = self._remembered.get(key)
        if known is None:
            given = {text: _value(value) for field, text in fields.items() if (value := bytes(getattr(args, field)))}
            known = self._kind_of(name, given)
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = known
        return known

    def _kind_of(self, name: str, args: Mapping[str, Any]) -> int:
        at = self._columns.text(name)
        if name in OPERATORS:
            found = operation(name, args, self.backend)
            return self._columns.kind(at, found, unread=found is None)
        return self._columns.kind(at, step=step(name, args) if name in STEPS else None, operator=operator(name, args))

    def _kernel(self, event: Event) -> None:
        if not is_kernel(event):
            self.foreign += 1
            return
        columns, args = self._columns, event.args or NO_ARGUMENTS
        if group := _group_of(args):
            columns.kernel_group[len(columns.kernel_id)] = group
        name, start, us = self._name(event.name or ""), event.ts or 0.0, event.dur or 0.0
        columns.add_kernel(name, args.external_id, start, us, number(args.device))
        columns.kernel_stream.append(number(args.stream))
        columns.kernel_correlation.append(number(args.correlation))

    def _copy(self, event: Event) -> None:
        columns, args = self._columns, event.args or NO_ARGUMENTS
        columns.copies[str(event.name)] += 1
        if event.dur is not None and 0 <= event.dur < math.inf:
            columns.copies_us += event.dur
        if event.timed:
            columns.copy_before.append(len(columns.kernel_id))
            columns.copy_name.append(columns.text(str(event.name)))
            columns.copy_device.append(number(args.device))
            columns.copy_stream.append(number(args.stream))
            columns.copy_start.append(event.ts or 0.0)
            columns.copy_us.append(event.dur or 0.0)
            columns.copy_correlation.append(number(args.correlation))

    def _wait(self, event: Event) -> None:
        if event.timed and event.args is not None and (correlation := number(event.args.correlation)) >= 0:
            args = event.args
            device = number(event.pid if args.device is UNSET else args.device)
            at = (correlation, device, number(args.stream))
            self._columns.waits.append((*at, max(number(args.wait_on_stream), -1), number(args.recorded_by)))

    def _annotation(self, event: Event) -> None:
        if event.timed:
            self._note(event.name or "", event.ts or 0.0, event.dur or 0.0)
        if _marks(event.name or ""):
            self._mark(event)

    def _function(self, event: Event) -> None:
        frames = self._columns.frames
        if event.name and (place := frames.index(event.name)) >= 0 and event.timed and can_be(event.ts, event.dur):
            frames.add(place, self._thread(event), event.ts or 0.0, event.dur or 0.0)

    def _note(self, name: str, start: float, us: float) -> None:
        columns = self._columns
        columns.annotation_name.append(self._name(name))
        columns.annotation_start.append(start)
        columns.annotation_us.append(us)

    def _mark(self, event: Event) -> None:
        if event.timed:
            self._columns.marks.append((event.name or "", event.ts or 0.0, event.dur or 0.0, self._thread(event)))


def _extend(rows: Sequence[tuple[Any, ...]], *columns: array[Any]) -> None:
    """Append table rows to lists of column values: the first value of each row to the first column, and so on."""
    for column, values in zip(columns, zip(*rows, strict=True), strict=False):
        column.extend(values)


def _host_work(columns: Columns) -> tuple[Floats, Ints]:
    """Return when operators and launches of device work began (µs), and on which threads."""
    marks = np.array([MARK.match(columns.names[name]) is not None for name, _, _ in columns.kinds], dtype=bool)
    kind = np.array(columns.op_kind, dtype=np.int64)[: len(columns.op_start)]
    operators = ~marks[kind] if len(kind) else np.zeros(0, dtype=bool)
    device = np.r_[np.array(columns.kernel_correlation), np.array(columns.copy_correlation)]
    graphs = [i for i in set(columns.call_name) if LAUNCH.match(columns.names[i])]
    calls = np.isin(np.array(columns.call_correlation), device[device >= 0]) | np.isin(columns.call_name, graphs)
    start = np.r_[np.array(columns.op_start)[operators], np.array(columns.call_start)[calls]]
    threads = np.r_[np.array(columns.op_thread)[operators], np.array(columns.call_thread)[calls]]
    return start, threads.astype(np.int64)


@lru_cache(_NAMES)
def _marks(name: str) -> bool:
    return MARK.match(name) is not None


def _group_of(args: Arguments) -> str:
    """Return which ranks take part in a communication kernel, as text.

    The trace states the ranks as a text or as a list of numbers. If they are unknown, the result is the name of their
    group.
    """
    ranks, name = args.group_ranks, args.group_name
    if isinstance(ranks, list) and ranks and all(type(x) is int for x in ranks):
        return json.dumps(ranks)
    return next((x for x in (ranks, name) if isinstance(x, str) and x), "")


def _value(text: bytes) -> object:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return None


def _facts(top: Mapping[str, Any], columns: Columns) -> list[Record]:
    """Return what the trace's header states about the machine and the process, for example the GPU's name."""
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
    process = next(iter(columns.pids)) if len(columns.pids) == 1 else ""
    if process.isdigit():
        facts.append(Fact("pid", process))
    return list(dict.fromkeys(facts))


def _identity(columns: Columns, header: Mapping[str, Any]) -> list[Record]:
    """Return a fact that identifies the trace by its events (see ``trace_id``)."""
    identity = trace_id(columns, header)
    return [] if identity is None else [Fact(TRACE_ID, identity)]


def _of_capture(columns: Columns) -> Fact:
    """State how many kernels are left out because the trace only shows the capture of a CUDA graph.

    The result also has their time in µs.  These kernels are not part of the job's work.
    """
    left_out = {"kernels": len(columns.kernel_id), "us": round(math.fsum(columns.kernel_us), 3)}
    return Fact("graph_capture", json.dumps(left_out))


def _backend(top: Mapping[str, Any]) -> Backend | None:
    if any(str(key).startswith(("hip_", "roctracer", "rocprofiler")) for key in top):
        return "miopen"
    return "cudnn" if "cuda_runtime_version" in top or "cupti_version" in top else None


WITH_STACK = "with_stack"
"""Key in the trace's header that is 1 if the profiler recorded calls of Python functions."""

UNTRACED_STEP = "logparse_untraced_step_us"
"""Key in the trace's header for the time of a step before the profiler was switched on, in µs.

Earlier versions of ``logparse capture`` wrote it.
"""

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
