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
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from logparse.formats.format import Source
from logparse.formats.patterns import regex
from logparse.formats.traces.torch.busy import COMMUNICATION
from logparse.formats.traces.torch.event_cutter import Batch, TraceEvents, parse
from logparse.formats.traces.torch.events import FIRST_UNIT, UNIT_KINDS, kernel_identities
from logparse.formats.traces.torch.graphs import RUNTIME
from logparse.formats.traces.torch.records import KernelIdentity

CallKind = Literal["launch", "graph", "device", "allocator", "stream", "event", "copy", "copied", "wait", "record"]
"""``copied``: the return of a copy's call that waited for the copy."""

_SHORT = regex(r"(?:cuda|hip|cu)([A-Z]\w*?)(?:_v\d+|_ptsz|_ptds)*$")
_KINDS: Mapping[str, CallKind] = {
    "GraphLaunch": "graph",
    "DeviceSynchronize": "device",
    "CtxSynchronize": "device",
    "Free": "device",
    "Malloc": "allocator",
    "HostAlloc": "allocator",
    "HostMalloc": "allocator",
    "MallocHost": "allocator",
    "HostFree": "allocator",
    "FreeHost": "allocator",
    "StreamSynchronize": "stream",
    "EventSynchronize": "event",
    "StreamWaitEvent": "wait",
    "EventRecord": "record",
    "EventRecordWithFlags": "record",
}
_STEP = regex(r"ProfilerStep#(\d+)")
_BACKWARD = "autograd::engine::evaluate_function"
_LOADER = regex(r"enumerate\(DataLoader\)#_(Multi|Single)Process\w*\.__next__")
_WAITED_US = 500.0
"""A ``__next__`` of a loader with workers that takes less finds its batch ready: taking it out of the queue costs so
much.
"""
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_HOST_COPY = regex(r"Memcpy (?:DtoH|HtoD).*Pageable|Memcpy (?:DtoH|HtoD) \((?:Device -> Host|Host -> Device)\)")
"""ROCm's traces do not state whether memory of the host is pageable."""
_HEAD = regex(
    rb'\s*"ph":\s*"X",\s*"cat":\s*"(\w+)",\s*"name":\s*"((?:[^"\\]|\\.)*)",\s*"pid":\s*"?([^",\s]+)"?,\s*'
    rb'"tid":\s*"?([^",\s]+)"?,\s*"ts":\s*(-?\d+(?:\.\d+)?),\s*"dur":\s*(-?\d+(?:\.\d+)?)'
)
_ARROW = regex(rb'\s*"ph":\s*"[a-zM]"')
_CORRELATION = regex(rb'"correlation":\s*(\d+)')
_HOST_EVENTS = frozenset({"cpu_op", "user_annotation", *RUNTIME})
_PARSED = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"})

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


@dataclass(frozen=True)
class Wait:
    """What a wait for an event waits for: the work on ``on`` that was launched before the call ``record``."""

    stream: tuple[int, int]
    on: tuple[int, int] | None
    record: int


@dataclass(frozen=True)
class Unit:
    """A marked unit of work on its thread, µs."""

    start: float
    end: float
    kind: str


@dataclass
class RankTrace:
    """One process in one window.  ``handoffs``: at this time the second thread goes on where the first one is.
    ``loads``: from when to when a thread got a batch of a loader; whether it waited for workers, or loads itself.
    """

    rank: int = 0
    window: str = ""
    main: Thread = ("", "")
    calls: list[Call] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    waits: dict[int, Wait] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    handoffs: list[tuple[float, Thread, Thread]] = field(default_factory=list)
    loads: list[tuple[float, float, Thread, bool]] = field(default_factory=list)
    identities: Sequence[KernelIdentity] = ()


def read_trace(source: Source) -> RankTrace:
    """The trace of a process.  Events that are damaged or lack what theirs need are left out, as ingest counts them."""
    trace, reader, header = RankTrace(), _Reader(), dict[str, Any]()
    trace.calls, trace.works, trace.waits = reader.calls, reader.works, reader.waits
    for event in _events(source, header):
        reader.take(event)
    distributed = header.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    trace.rank = rank if isinstance(rank, int) else 0
    trace.window = str(header.get(FIRST_UNIT, ""))
    launched = {work.correlation for work in trace.works} - {-1}
    trace.calls = [call for call in trace.calls if call.kind not in ("launch", "copy") or call.correlation in launched]
    backward = {thread for _, _, thread in reader.backward}
    trace.main = reader.main(backward)
    kinds = header.get(UNIT_KINDS)
    kinds = kinds if isinstance(kinds, dict) else {}
    trace.units = [Unit(a, b, str(kinds.get(number, ""))) for number, (a, b) in reader.steps.items()]
    trace.units.sort(key=lambda x: x.start)
    trace.loads = sorted(reader.loads)
    trace.handoffs = handoffs(trace.main, reader.activity.get(trace.main, []), reader.backward)
    found = kernel_identities(source)
    names = [KernelIdentity("", None, name) for name in reader.names]
    trace.identities = found if len(found) == len(names) else names
    return trace


def _events(source: Source, header: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The events that matter; those of the host, which are most, only by their heads.  Fills the header at the end."""
    with source.open() as stream:
        events = TraceEvents(stream)
        for batch in events.batches():
            i = 0
            while i < len(batch.bodies):
                event, taken = _event(batch, i)
                if event is not None:
                    yield event
                i += taken
    header.update({**events.tail, **events.header})


def _event(batch: Batch, i: int) -> tuple[Mapping[str, Any] | None, int]:
    """The event that begins with body ``i``, None where it does not matter, and how many bodies it takes."""
    body = batch.bodies[i]
    head = _HEAD.match(body)
    category = head[1].decode() if head else ""
    if category in _PARSED or not (head or _ARROW.match(body)) or body.count(b"{") != body.count(b"}"):
        return parse(batch, i)[:2]
    if head is None or category not in _HOST_EVENTS:
        return None, 1
    name, pid, tid = (head[k].decode("utf-8", "replace") for k in (2, 3, 4))
    event: dict[str, Any] = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    found = _CORRELATION.search(body, head.end()) if category in RUNTIME else None
    args = {"correlation": int(found[1])} if found else {}
    return event | {"ts": float(head[5]), "dur": float(head[6]), "args": args}, 1


class _Reader:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.works: list[Work] = []
        self.waits: dict[int, Wait] = {}
        self.steps: dict[str, tuple[float, float]] = {}
        self.marked: Thread | None = None
        self.backward: list[tuple[float, float, Thread]] = []
        self.loads: list[tuple[float, float, Thread, bool]] = []
        self.activity: dict[Thread, list[float]] = {}
        self.names: list[str] = []

    def main(self, backward: set[Thread]) -> Thread:
        """The thread that marks the steps, else the busiest one that runs no backward pass."""
        if self.marked is not None:
            return self.marked
        others = {thread: len(times) for thread, times in self.activity.items() if thread not in backward}
        return max(others or {("", ""): 0}, key=lambda x: (others.get(x, 0), x))

    def take(self, event: Mapping[str, Any]) -> None:
        category, start, us, args = event.get("cat"), event.get("ts"), event.get("dur"), event.get("args")
        if event.get("ph") != "X" or not isinstance(start, (int, float)) or not isinstance(us, (int, float)):
            return
        if not math.isfinite(start) or not 0 <= us < math.inf:
            return
        args = args if isinstance(args, dict) else {}
        if category in _ON_DEVICE:
            self._work(str(event.get("name")), float(start), float(us), args, category == "kernel")
        elif category in RUNTIME:
            self._call(event, float(start), float(us), args)
        elif category == "cuda_sync":
            self._sync(event, args)
        elif category in ("cpu_op", "user_annotation"):
            self._operator(event, float(start), float(us), category == "cpu_op")

    def _work(self, name: str, start: float, us: float, args: Mapping[str, Any], kernel: bool) -> None:
        stream = (_number(args.get("device")), _number(args.get("stream")))
        work = Work(stream, start, us, _number(args.get("correlation")))
        if kernel:
            work.kernel = len(self.names)
            self.names.append(name)
            if COMMUNICATION.search(name):
                work.ranks = str(args.get("Process Group Ranks") or args.get("Process Group Name") or "")
        else:
            work.host_copy = _HOST_COPY.match(name) is not None
        self.works.append(work)

    def _call(self, event: Mapping[str, Any], start: float, us: float, args: Mapping[str, Any]) -> None:
        thread = (str(event.get("pid")), str(event.get("tid")))
        self.activity.setdefault(thread, []).append(start)
        short = _SHORT.match(str(event.get("name")))
        name = short[1] if short else ""
        kind = _KINDS.get(name) or ("copy" if name.startswith("Memcpy") else "launch")
        self.calls.append(Call(kind, thread, start, start + us, _number(args.get("correlation"))))

    def _sync(self, event: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        device, stream = _number(args.get("device", event.get("pid"))), _number(args.get("stream"))
        on, record = args.get("wait_on_stream"), args.get("wait_on_cuda_event_record_corr_id")
        correlation = _number(args.get("correlation"))
        if correlation >= 0:
            waited = (device, on) if isinstance(on, int) and on >= 0 else None
            self.waits[correlation] = Wait((device, stream), waited, _number(record))

    def _operator(self, event: Mapping[str, Any], start: float, us: float, is_operator: bool) -> None:
        name, thread = str(event.get("name")), (str(event.get("pid")), str(event.get("tid")))
        step = _STEP.fullmatch(name)
        if step:
            self.steps[step[1]] = (start, start + us)
            self.marked = thread
        elif loader := _LOADER.match(name):
            if loader[1] == "Single" or us >= _WAITED_US:
                self.loads.append((start, start + us, thread, loader[1] == "Multi"))
        elif is_operator:
            self.activity.setdefault(thread, []).append(start)
            if name.startswith(_BACKWARD):
                self.backward.append((start, start + us, thread))


def handoffs(
    main: Thread, activity: Sequence[float], backward: Sequence[tuple[float, float, Thread]]
) -> list[tuple[float, Thread, Thread]]:
    """Where the main thread hands over to a thread of autograd's engine, and where it goes on.

    ``Engine::execute`` (pytorch, ``torch/csrc/autograd/engine.cpp``) queues the root on the device's thread, and its
    caller waits for the result.  So the nodes of a backward pass that follow each other without any event on the main
    thread are one episode: the first follows what the main thread did last, the main thread follows the last.
    """
    busy = sorted(activity)
    found: list[tuple[float, Thread, Thread]] = []
    last: dict[Thread, tuple[int, float]] = {}
    for start, end, thread in sorted(backward):
        if thread == main:
            continue
        place = bisect.bisect_right(busy, start)
        before = last.get(thread)
        if before is None or before[0] != place:
            if before is not None:
                found.append((before[1], thread, main))
            found.append((start, main, thread))
            last[thread] = (place, end)
        else:
            last[thread] = (place, max(before[1], end))
    found += [(end, thread, main) for thread, (_, end) in last.items()]
    return sorted(found)


def _number(value: object) -> int:
    return value if type(value) is int else -1
