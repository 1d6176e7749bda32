"""Read the stored trace of one process as Python objects, from which a step is simulated.

``logparse/libraries/torch_profiler/timeline.py`` describes how a trace is stored and from which events it is made.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from logparse.libraries.kinds.format import Source
from logparse.libraries.torch_profiler.timeline import CALL_KINDS, CallKind, KernelIdentity

Thread = tuple[str, str]


@dataclass(slots=True)
class Call:
    """A call of the CUDA or HIP runtime by the host. Times in µs."""

    kind: CallKind
    thread: Thread
    start: float
    end: float
    correlation: int


@dataclass(slots=True)
class Work:
    """A kernel, copy or fill that ran on a device stream. Times in µs.

    * ``kernel``: index of the kernel, −1 for a copy or fill.
    * ``ranks``: a collective's group, "" if unknown. None for other work.
    * ``host_copy``: True between device and host.
    """

    stream: tuple[int, int]
    start: float
    us: float
    correlation: int
    # The index is among the trace's kernels.
    kernel: int = -1
    ranks: str | None = None
    # A copy between device and host memory may block the call.
    host_copy: bool = False

    @property
    def end(self) -> float:
        return self.start + self.us


class Wait(NamedTuple):
    """A call that lets one GPU stream wait for another (CUDA's or HIP's ``StreamWaitEvent``).

    ``stream`` waits for the work on the stream ``on`` that was launched before the call ``record``.
    """

    stream: tuple[int, int]
    on: tuple[int, int] | None
    record: int


class Unit(NamedTuple):
    """A step that the profiler marked on a thread: begin and end in µs, and its kind."""

    start: float
    end: float
    kind: str


class Handoff(NamedTuple):
    """A moment (``at``, µs) at which one thread hands its work over to another, for example to autograd's thread.

    Thread ``one`` hands over, and thread ``other`` continues.
    """

    at: float
    one: Thread
    other: Thread


class Load(NamedTuple):
    """A period in which a thread got a batch from a data loader, µs.

    ``by_workers`` is True if the thread waited for worker processes, False if it loaded the batch itself.
    """

    start: float
    end: float
    thread: Thread
    by_workers: bool


@dataclass
class RankTrace:
    """The trace of one process (rank) in one period in which the profiler recorded."""

    rank: int = 0
    window: str = ""
    main: Thread = ("", "")
    calls: list[Call] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    waits: dict[int, Wait] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    handoffs: list[Handoff] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    identities: Sequence[KernelIdentity] = ()


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Context manager that pauses the garbage collector.

    A trace has many objects without cycles. The garbage collector would visit them again and again for nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read_trace(source: Source) -> RankTrace:
    """Read a trace from a file, without damaged events and without events that lack necessary values.

    ``ingest`` counts the events that are left out.
    """
    # Imported here because it imports all code that reads traces.
    from logparse.libraries.torch_profiler.events import read_events

    (row,) = (table for outcome in read_events(source) for table in outcome.tables.values())
    return trace_of(row)


@pause_garbage_collector()
def trace_of(row: pa.Table) -> RankTrace:
    """Convert the stored trace of one process, a row of the table ``timelines``, to Python objects."""
    threads: list[Thread] = [*zip(*_columns(row, "threads"), strict=True)]
    groups = _columns(row, "groups")[0]
    distinct = [KernelIdentity(*x) for x in zip(*_columns(row, "identities"), strict=True)]
    trace = RankTrace(_value(row, "rank"), _value(row, "unit_window"))
    main = _value(row, "main")
    trace.main = threads[main] if main >= 0 else trace.main
    trace.calls = [
        Call(CALL_KINDS[kind], threads[thread], start, end, correlation)
        for kind, thread, start, end, correlation in zip(*_columns(row, "calls"), strict=True)
    ]
    kernels: list[KernelIdentity] = []
    for device, stream, start, us, correlation, identity, ranks, host_copy in zip(*_columns(row, "works"), strict=True):
        work = Work((device, stream), start, us, correlation, -1, groups[ranks] if ranks >= 0 else None, host_copy > 0)
        if identity >= 0:
            work.kernel = len(kernels)
            kernels.append(distinct[identity])
        trace.works.append(work)
    trace.identities = kernels
    trace.waits = {
        correlation: Wait((device, stream), (device, on) if on >= 0 else None, record)
        for correlation, device, stream, on, record in zip(*_columns(row, "waits"), strict=True)
    }
    trace.units = [Unit(*x) for x in zip(*_columns(row, "units"), strict=True)]
    trace.handoffs = [
        Handoff(at, threads[one] if one >= 0 else trace.main, threads[other] if other >= 0 else trace.main)
        for at, one, other in zip(*_columns(row, "handoffs"), strict=True)
    ]
    trace.loads = [
        Load(start, end, threads[thread], by_workers > 0)
        for start, end, thread, by_workers in zip(*_columns(row, "loads"), strict=True)
    ]
    return trace


def _value(row: pa.Table, column: str) -> Any:
    return row[column][0].as_py()


def _columns(row: pa.Table, column: str) -> list[list[Any]]:
    """Split a column of a stored trace into one list per field, for example all starts and all ends."""
    return [x.to_pylist() for x in row[column].combine_chunks().flatten().flatten()]
