"""One process's trace as the simulation reads it: the row that ingest stored, as objects.

What the row holds, and of which events it is made: ``logparse/libraries/torch_profiler/timeline.py``.
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
    """A call of the runtime; times in µs."""

    kind: CallKind
    thread: Thread
    start: float
    end: float
    correlation: int


@dataclass(slots=True)
class Work:
    """A kernel, copy or fill on a stream; ``kernel`` is its index among the trace's kernels, -1 of a copy.  ``ranks``
    is the group of a collective ("" where it is not stated), None of other work.  ``host_copy``: between device and
    the host's memory, which may block the call.
    """

    stream: tuple[int, int]
    start: float
    us: float
    correlation: int
    kernel: int = -1
    ranks: str | None = None
    host_copy: bool = False

    @property
    def end(self) -> float:
        return self.start + self.us


class Wait(NamedTuple):
    """What a wait for an event waits for: the work on ``on`` that was launched before the call ``record``."""

    stream: tuple[int, int]
    on: tuple[int, int] | None
    record: int


class Unit(NamedTuple):
    """A marked unit of work on its thread, µs."""

    start: float
    end: float
    kind: str


class Handoff(NamedTuple):
    """At this time thread ``other`` goes on where thread ``one`` is."""

    at: float
    one: Thread
    other: Thread


class Load(NamedTuple):
    """When a thread got a batch of a loader: it waited for workers, or loads itself."""

    start: float
    end: float
    thread: Thread
    by_workers: bool


@dataclass
class RankTrace:
    """One process in one window."""

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
def uncollected() -> Iterator[None]:
    """Pause the garbage collector: it would visit a trace's many objects over and over, and they form no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read_trace(source: Source) -> RankTrace:
    """The trace of a file.  Events that are damaged or lack what theirs need are left out, as ingest counts them."""
    from logparse.libraries.torch_profiler.events import read_events  # with all that reads traces

    (row,) = (table for outcome in read_events(source) for table in outcome.tables.values())
    return trace_of(row)


@uncollected()
def trace_of(row: pa.Table) -> RankTrace:
    """The trace of a row of ``timelines``."""
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
    """The columns of a list of rows."""
    return [x.to_pylist() for x in row[column].combine_chunks().flatten().flatten()]
