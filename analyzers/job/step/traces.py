"""What a step's simulation needs of one process's trace: calls of the runtime, work of the device, marked units.

Of the host only those calls are kept that launch, wait or record; what lies between two of them on a thread is the
host's work.  Names of CUDA's runtime and driver (``cudaLaunchKernel``, ``cuLaunchKernelEx``) and of HIP's
(``hipExtModuleLaunchKernel``) differ in their prefix alone (``_SHORT``).

Events of Kineto that are read (pytorch/kineto, ``libkineto/src``: ``output_json.cpp``, ``CuptiActivity.cpp``,
``CuptiActivityProfiler.cpp``, ``RoctracerActivity_inl.h``)::

    "cat": "cuda_runtime" | "cuda_driver" | ...   a call; "correlation" names the device's work that it launched
    "cat": "kernel" | "gpu_memcpy" | "gpu_memset" work; "device", "stream", "correlation"; a replayed graph's kernels
                                                  all have the correlation of its launch
    "cat": "cuda_sync", "args": {"cuda_sync_kind": "Stream Wait Event", "stream": 7, "correlation": 91,
        "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 88}
                                                  which event a call waited for; written only where the profiler ran
                                                  with ``enable_cuda_sync_events``, and never by ROCm's
    "cat": "user_annotation", "name": "ProfilerStep#3"
    "cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0"
                                                  a node of the backward pass, which a thread of its own runs
    "name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
"""

from __future__ import annotations

import bisect
import gc
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from logparse.formats.format import Source
from logparse.formats.patterns import regex
from logparse.formats.traces.torch.busy import COMMUNICATION
from logparse.formats.traces.torch.event_cutter import TraceEvents
from logparse.formats.traces.torch.events import FIRST_UNIT, UNIT_KINDS, kernel_identities
from logparse.formats.traces.torch.graphs import RUNTIME, thread_of
from logparse.formats.traces.torch.records import KernelIdentity

CallKind = Literal["launch", "graph", "device", "allocator", "stream", "event", "copy", "copied", "wait", "record"]
"""``copied``: the return of a copy's call that waited for the copy."""

_SHORT = regex(r"(?:cuda|hip|cu)([A-Z]\w*?)(?:_v\d+|_ptsz|_ptds)*$")
_KINDS: Mapping[str, CallKind] = {
    "GraphLaunch": "graph",
    **dict.fromkeys(("DeviceSynchronize", "CtxSynchronize", "Free"), "device"),
    **dict.fromkeys(("Malloc", "HostAlloc", "HostMalloc", "MallocHost", "HostFree", "FreeHost"), "allocator"),
    "StreamSynchronize": "stream",
    "EventSynchronize": "event",
    "StreamWaitEvent": "wait",
    **dict.fromkeys(("EventRecord", "EventRecordWithFlags"), "record"),
}
_BACKWARD = "autograd::engine::evaluate_function"
_MARK = regex(r"ProfilerStep#(\d+)\Z|enumerate\(DataLoader\)#_(Multi|Single)Process\w*\.__next__")
_WAITED_US = 500.0
"""A ``__next__`` of a loader with workers that takes less finds its batch ready: taking it out of the queue costs so
much.
"""
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_HOST_COPY = regex(r"Memcpy (?:DtoH|HtoD).*Pageable|Memcpy (?:DtoH|HtoD) \((?:Device -> Host|Host -> Device)\)")
"""ROCm's traces do not state whether memory of the host is pageable."""
_OTHER = regex(rb'\s*"ph":\s*(?:"[^X]|"X",\s*"cat":\s*"python_function")')
"""Events of which nothing is kept, and which may be most of them."""

_NAMES = 4096
"""Names of calls and kernels of which it is remembered what they are."""

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


@uncollected()
def read_trace(source: Source) -> RankTrace:
    """The trace of a process.  Events that are damaged or lack what theirs need are left out, as ingest counts them."""
    trace = RankTrace()
    reader = _Reader(trace)
    with source.open() as stream:
        events = TraceEvents(stream)
        for batch in events.batches():
            for event, _, _ in batch.events(skipped=_OTHER):
                reader.take(event or {})
    header = {**events.tail, **events.header}
    distributed, kinds = header.get("distributedInfo"), header.get(UNIT_KINDS)
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    trace.rank = rank if isinstance(rank, int) else 0
    trace.window = str(header.get(FIRST_UNIT, ""))
    launched = {work.correlation for work in trace.works} - {-1}
    trace.calls = [call for call in trace.calls if call.kind not in ("launch", "copy") or call.correlation in launched]
    trace.main = reader.main()
    kinds = kinds if isinstance(kinds, dict) else {}
    trace.units = sorted(Unit(*times, str(kinds.get(number, ""))) for number, times in reader.steps.items())
    trace.loads.sort()
    trace.handoffs = handoffs(trace.main, reader.activity[trace.main], reader.backward)
    found = kernel_identities(source)
    names = [KernelIdentity("", None, name) for name in reader.names]
    trace.identities = found if len(found) == len(names) else names
    return trace


class _Reader:
    """Fills a trace from events."""

    def __init__(self, trace: RankTrace) -> None:
        self._trace = trace
        self.steps: dict[str, tuple[float, float]] = {}
        self.marked: Thread | None = None
        self.backward: list[tuple[float, float, Thread]] = []
        self.activity: dict[Thread, list[float]] = defaultdict(list)
        self.names: list[str] = []

    def main(self) -> Thread:
        """The thread that marks the steps, else the busiest one that runs no backward pass."""
        backward = {thread for _, _, thread in self.backward}
        others = {thread: len(times) for thread, times in self.activity.items() if thread not in backward}
        return self.marked or max(others, key=lambda x: (others[x], x), default=("", ""))

    def take(self, event: Mapping[str, Any]) -> None:
        category, start, us, args = event.get("cat"), event.get("ts"), event.get("dur"), event.get("args")
        if event.get("ph") != "X" or not isinstance(start, (int, float)) or not isinstance(us, (int, float)):
            return
        if not math.isfinite(start) or not 0 <= us < math.inf:
            return
        start, us, args = float(start), float(us), args if isinstance(args, dict) else {}
        name = str(event.get("name"))
        if category in _ON_DEVICE:
            self._work(name, start, us, args, category == "kernel")
        elif category in RUNTIME:
            self._call(name, thread_of(event), start, us, args)
        elif category == "cuda_sync":
            self._sync(event, args)
        elif category in ("cpu_op", "user_annotation"):
            self._operator(name, thread_of(event), start, us, category == "cpu_op")

    def _work(self, name: str, start: float, us: float, args: Mapping[str, Any], kernel: bool) -> None:
        stream = (_number(args.get("device")), _number(args.get("stream")))
        work = Work(stream, start, us, _number(args.get("correlation")))
        if kernel:
            work.kernel = len(self.names)
            self.names.append(name)
            if _communicates(name):
                work.ranks = str(args.get("Process Group Ranks") or args.get("Process Group Name") or "")
        else:
            work.host_copy = _HOST_COPY.match(name) is not None
        self._trace.works.append(work)

    def _call(self, name: str, thread: Thread, start: float, us: float, args: Mapping[str, Any]) -> None:
        self.activity[thread].append(start)
        self._trace.calls.append(Call(_kind_of(name), thread, start, start + us, _number(args.get("correlation"))))

    def _sync(self, event: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        device, stream = _number(args.get("device", event.get("pid"))), _number(args.get("stream"))
        on, record = args.get("wait_on_stream"), args.get("wait_on_cuda_event_record_corr_id")
        correlation = _number(args.get("correlation"))
        if correlation >= 0:
            waited = (device, on) if isinstance(on, int) and on >= 0 else None
            self._trace.waits[correlation] = Wait((device, stream), waited, _number(record))

    def _operator(self, name: str, thread: Thread, start: float, us: float, is_operator: bool) -> None:
        if mark := _MARK.match(name):
            step, loader = mark.groups()
            if step:
                self.steps[step] = (start, start + us)
                self.marked = thread
            elif loader == "Single" or us >= _WAITED_US:
                self._trace.loads.append(Load(start, start + us, thread, loader == "Multi"))
        elif is_operator:
            self.activity[thread].append(start)
            if name.startswith(_BACKWARD):
                self.backward.append((start, start + us, thread))


def handoffs(main: Thread, activity: Sequence[float], backward: Sequence[tuple[float, float, Thread]]) -> list[Handoff]:
    """Where the main thread hands over to a thread of autograd's engine, and where it goes on.

    ``Engine::execute`` (pytorch, ``torch/csrc/autograd/engine.cpp``) queues the root on the device's thread, and its
    caller waits for the result.  So the nodes of a backward pass that follow each other without any event on the main
    thread are one episode: the first follows what the main thread did last, the main thread follows the last.
    """
    busy = sorted(activity)
    episodes: dict[tuple[Thread, int], tuple[float, float]] = {}
    for start, end, thread in sorted(backward):
        if thread != main:
            key = (thread, bisect.bisect_right(busy, start))
            first, last = episodes.get(key, (start, end))
            episodes[key] = (first, max(last, end))
    found = [Handoff(start, main, thread) for (thread, _), (start, _) in episodes.items()]
    return sorted(found + [Handoff(end, thread, main) for (thread, _), (_, end) in episodes.items()])


@lru_cache(_NAMES)
def _kind_of(name: str) -> CallKind:
    short = _SHORT.match(name)
    name = short[1] if short else ""
    return _KINDS.get(name) or ("copy" if name.startswith("Memcpy") else "launch")


@lru_cache(_NAMES)
def _communicates(name: str) -> bool:
    return COMMUNICATION.search(name) is not None


def _number(value: object) -> int:
    return value if type(value) is int else -1
