"""Build the graph of a window of the job, by rules for the nodes that each call, kernel and collective follows.

The table gives each rule with its source. With unchanged kernels the graph gives the traced times. A kernel may follow
several nodes. The latest of them gets the observed lag. The others get the lag that is usual on this machine
(``_Usual``).

==================  =============================================================================================
stream order        Work of a stream runs in the order of its launches (CUDA C++ Programming Guide, "Streams";
                    HIP likewise).  The lag is the observed gap.
correlation         Work begins after the call that launched it.  Kineto links both by ``correlation``.  If the
                    stream was idle, the observed lag is taken from the beginning of the call.
event wait          ``cudaStreamWaitEvent``: later work of the stream follows all work before the event's record
                    (CUDA Runtime API, "Event Management").  ``cuda_sync`` events state stream and record.  Without
                    them (all of ROCm's traces) the order is taken from the trace: the stream of the thread's next
                    launch waits, and it waits for the work of other streams, given before, that ended last.
blocking calls      ``DeviceSynchronize`` waits for all work.  ``StreamSynchronize`` waits for its stream; if the
                    trace does not state it, for the stream of the thread's last launch.  ``EventSynchronize``
                    waits for its event; if the trace does not state it and the call took long, for the work that
                    ended last.  A copy between device and pageable memory waits for itself, if it ended before the
                    call did (CUDA Runtime API, "API synchronization behavior").  This is where ``item()`` waits.
allocator           ``Free`` waits for all work (same source, "implicit synchronization").  ``Malloc`` and the calls
                    for pinned memory wait if the trace shows that they returned after the work.
autograd's thread   ``libraries/torch_profiler/timeline.py``, ``handoffs``.
backlog             The device is busy until its first work begins, if that work was launched ``BACKLOG_US`` or more
                    before.  The trace does not hold what ran before (``libraries/torch_profiler/records.py``).
graph launch        The kernels of a graph follow its launch.  Kernels of one stream follow each other.  The first
                    kernel of a further stream follows the kernel that had ended last, because no trace has the
                    graph's edges.  Later work follows all of the graph.
collectives         They begin on each rank as a kernel, meet when the last rank comes, then transfer until their
                    end.  Calls of ranks are matched as in ``analyzers/job/ranks.py``.  Since they end together,
                    their ends also align the ranks' clocks (median).
data loading        If the thread waited for a batch, the batch came when the loader's workers had it.  The step
                    does not make the workers faster.  Loading without workers is work of the host.
full queue          A launch waits while about 1,024 works of its stream are outstanding, if the trace shows this.
                    The limit is the number that most waiting launches had left when they returned (1,022 on an
                    H200).
==================  =============================================================================================

Not modelled: kernels that slow each other down when they overlap, and the effect of the GIL on several host threads.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzers.job.step.graph import COMMUNICATION, HOST, KERNELS, LOADING, NEVER, Bounds, Graph, Nodes, make_graph
from analyzers.job.step.traces import Call, Handoff, Load, RankTrace, Thread, Unit, Wait, Work, pause_garbage_collector
from logparse.libraries.torch_profiler.timeline import BACKLOG_US, KernelIdentity

_QUEUE, _QUEUE_SLACK = 1024, 64
_LAUNCH_US, _GAP_US, _RETURN_US = 6.0, 1.0, 5.0
"""Delays that are used if a trace shows none, µs.

``_LAUNCH_US`` is the delay from launch to kernel, ``_GAP_US`` from one kernel to the next, and ``_RETURN_US`` from a
kernel to the host that waits for it.
"""
_ROUND_US = 1.0
"""Precision of the times in old traces: they are rounded to this many µs."""
_LATE_US = 50.0
"""If a call of the CUDA or HIP runtime takes at least this long (µs), it must have waited for something."""
_Place = tuple[int, int]


@dataclass
class _Stream:
    """The kernels and copies that were launched so far on one stream of the GPU.

    * ``launched``, ``ended``: times.
    * ``nodes``: their nodes in the graph.
    * ``tail``: the node after which the next work can begin.
    """

    # The time −inf means before the trace.
    launched: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    tail: int = 0

    def add(self, launched: float, ended: float, node: int) -> None:
        self.launched.append(max(launched, self.launched[-1] if self.launched else launched))
        self.ended.append(max(ended, self.ended[-1] if self.ended else ended))
        self.nodes.append(node)
        self.tail = node

    def given(self, by: float) -> int:
        """Return the kernel or copy (its node) that was launched last on this stream before the time ``by``.

        Returns 0 if nothing had been launched.
        """
        count = bisect.bisect_right(self.launched, by)
        return self.nodes[count - 1] if count else 0


@pause_garbage_collector()
def build(traces: Sequence[RankTrace]) -> Graph:
    """Build the graph of dependencies of a step, from the traces of all ranks that were recorded in the same period."""
    keys = _match_collectives(traces)
    offsets = _offsets(traces, keys)
    starts = (
        min((x.start for x in items), default=math.inf) + offset
        for trace, offset in zip(traces, offsets, strict=True)
        for items in (trace.calls, trace.works, trace.units)
    )
    begin = min(starts, default=0.0)
    nodes, identities = Nodes(), dict[KernelIdentity, int]()
    meetings: dict[object, list[tuple[int, int]]] = defaultdict(list)
    bounds: list[Bounds] = []
    unmatched = 0.0
    guessed = 0
    for trace, offset, of in zip(traces, offsets, keys, strict=True):
        kernels = [identities.setdefault(x, len(identities)) for x in trace.identities]
        rank = _Rank(nodes, trace, begin - offset, kernels, of)
        rank.run()
        bounds += rank.bounds()
        unmatched, guessed = unmatched + rank.unmatched_us, guessed + rank.guessed
        for key, arrives, done in rank.meetings:
            meetings[key].append((arrives, done))
    for each in meetings.values():
        meets = nodes.join([arrives for arrives, _ in each], COMMUNICATION)
        for _, done in each:
            transfer = nodes.at[done] - nodes.at[meets]
            nodes.a[done], nodes.us[done], nodes.lag_a[done] = meets, max(transfer, 0.0), min(transfer, 0.0)
    notes = {
        "for {:.0f} waits for CUDA or HIP events, the traces do not state which kernel was awaited; the simulation "
        "assumes the last kernel that ended before the wait was over": guessed,
        "in the simulation, {:.0f} us of collectives keep their traced times, because the traces of some ranks are "
        "missing": unmatched,
    }
    return make_graph(nodes, bounds, list(identities), {text: x for text, x in notes.items() if x})


def _match_collectives(traces: Sequence[RankTrace]) -> list[dict[int, object]]:
    """Find the communication calls (collectives) that belong together on different ranks, and give them the same key.

    Call number n of one rank belongs to call number n of the other ranks in its group. Two kinds of calls are left out:
    calls launched before the trace began, and calls of a group whose ranks made different numbers of calls. Returns for
    each trace a dictionary from the kernel's number to the key.
    """
    made: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, trace in enumerate(traces):
        known = {call.correlation for call in trace.calls}
        for work in sorted(trace.works, key=lambda x: x.start):
            if work.ranks is not None and work.correlation in known:
                made[work.ranks][number].append(work.kernel)
    out: list[dict[int, object]] = [{} for _ in traces]
    for ranks, of in made.items():
        if len(of) > 1 and len(set(map(len, of.values()))) == 1:
            for number, kernels in of.items():
                out[number].update({kernel: (ranks, order) for order, kernel in enumerate(kernels)})
    return out


def _offsets(traces: Sequence[RankTrace], keys: Sequence[dict[int, object]]) -> list[float]:
    """Return how much to add to the clock of each rank (µs), so that all ranks have the same time.

    A collective ends at the same moment on all ranks, which shows by how much the clocks differ.
    """
    ends = [
        {of[work.kernel]: work.end for work in trace.works if work.kernel in of}
        for trace, of in zip(traces, keys, strict=True)
    ]
    out = [0.0] * len(traces)
    for i in range(1, len(traces)):
        for j in range(i):  # An earlier rank of the same group sets its clock.
            both = ends[i].keys() & ends[j].keys()
            if both:
                out[i] = out[j] + float(np.median([ends[j][x] - ends[i][x] for x in both]))
                break
    return out


class _Rank:
    """Builds the part of a step's graph that belongs to one rank, from the rank's trace in the order of time."""

    def __init__(self, nodes: Nodes, trace: RankTrace, begin: float, kernels: Sequence[int], keys: dict[int, object]):
        self._nodes, self._trace, self._begin, self._kernels = nodes, trace, begin, kernels
        self._keys = keys
        self._streams: dict[_Place, _Stream] = defaultdict(_Stream)
        self._last: dict[Thread, int] = {}
        self._last_stream: dict[Thread, _Place] = {}
        self._launch: dict[int, tuple[int, float]] = {}
        self._call_of = {x.correlation: x for x in trace.calls if x.kind in ("launch", "copy", "graph")}
        self._took = _launches(trace)
        self._stream_of = {x.correlation: x.stream for x in reversed(trace.works)}
        self._records = {x.correlation: x.start for x in trace.calls if x.kind == "record"}
        self._pending: dict[object, list[tuple[float, Wait | None]]] = defaultdict(list)
        self._waits: dict[int, list[tuple[float, Wait | None]]] = {}
        self._done: dict[int, int] = {}
        self._graphs: dict[int, dict[_Place, list[int]]] = {}
        graphs = {x.correlation for x in self._call_of.values() if x.kind == "graph"}
        self._left = Counter(x.correlation for x in trace.works if x.correlation in graphs)
        self._after_graph: dict[Thread, list[int]] = defaultdict(list)
        self._ready = 0
        self._marks: dict[float, int] = {}
        self._usual = _Usual.of(trace, self._call_of)
        self.meetings: list[tuple[object, int, int]] = []
        self.unmatched_us = 0.0
        self.guessed = 0

    def run(self) -> None:
        trace = self._trace
        units = self._units()
        self._add_backlog()
        # Items with the same time are taken in the order of this list.
        todo: list[Call | Work | Handoff | Load | float]
        todo = [*trace.handoffs, *trace.loads, *(x.start for x in units)]
        at = [*(x.at for x in trace.handoffs), *(x.end for x in trace.loads), *(x.start for x in units)]
        for call in trace.calls:
            # The launch waits for room in the queue.
            held = self._usual.queue > 0 and call.kind == "launch" and call.end - call.start > _LATE_US
            waits = held or call.kind in ("device", "stream", "event", "allocator")
            todo.append(call)
            at.append(call.end if waits else call.start)
            if call.kind == "copy" and self._usual.host_copies.get(call.correlation, np.inf) <= call.end:
                todo.append(replace(call, kind="copied"))
                at.append(call.end)
        for work in trace.works:
            launch = self._call_of.get(work.correlation)  # A kernel is added after its launch, whatever the clocks say.
            todo.append(work)
            at.append(max(work.start, launch.start) if launch else work.start)
        todo += (x.end for x in units)
        at += (x.end for x in units)
        take: Mapping[type, Callable[..., None]] = {
            Call: self._call,
            Work: self._add_work,
            Handoff: self._add_handoff,
            Load: self._loaded,
            float: self._mark,
        }
        for i in np.argsort(at, kind="stable").tolist():
            take[type(todo[i])](todo[i])

    def _add_backlog(self) -> None:
        """Make the simulated GPU busy at first, if it still ran earlier kernels when the trace began."""
        begun = [(x.start, x) for x in self._trace.works if x.correlation in self._call_of]
        first = min(begun, key=lambda x: x[0])[1] if begun else None
        # These kernels are not in the trace. They show only because the first traced kernel began much later than its
        # launch.
        if first is None or first.start - self._call_of[first.correlation].end <= BACKLOG_US:
            return
        ended = first.start - self._begin
        node = self._nodes.add(ended, KERNELS, lag_a=ended)
        # All streams wait until the time at which that kernel began in the trace.
        for place in {x.stream for x in self._trace.works}:
            self._streams[place].add(NEVER, first.start, node)

    def _units(self) -> list[Unit]:
        if self._trace.units:
            return self._trace.units
        ends = [x.end for x in self._trace.calls]
        return [Unit(min(x.start for x in self._trace.calls), max(ends), "")] if ends else []

    def bounds(self) -> list[Bounds]:
        """Return where each step begins and ends in the graph of moments that is used to simulate the job."""
        units = self._units()
        nodes: list[int] = []
        for at in [units[0].start, *(x.end for x in units)] if units else []:
            # A step begins when the host has finished the step before and the GPU has run all work that was launched in
            # it.
            given = [each.given(at) for each in self._streams.values()]
            nodes.append(self._nodes.join([self._marks[at], *(x for x in given if x)], HOST))
        return [
            Bounds(self._trace.rank, unit.kind, first, last, self._marks[unit.start], self._marks[unit.end])
            for unit, first, last in zip(units, nodes, nodes[1:], strict=False)
        ]

    # ------------------------------------------------------------------------------------------------------- the host

    def _point(self, thread: Thread, at: float, host: float | None = None, b: int = 0, lag_b: float = NEVER) -> int:
        """Add a moment of a host thread, such as the end of a call, to the simulated step, and return its node.

        * ``host``: working time since the thread's previous moment, µs.
        * ``b``, ``lag_b``: the node of a moment to wait for, and the delay, µs.
        """
        before = self._last.get(thread, 0)
        at -= self._begin
        # By default the thread worked all the time.
        worked = at - self._nodes.at[before] if host is None else max(host, 0.0)
        self._last[thread] = node = self._nodes.add(at, HOST, before, b, host=worked, lag_b=lag_b)
        return node

    def _mark(self, at: float) -> None:
        self._marks[at] = self._point(self._trace.main, at)

    def _add_handoff(self, what: Handoff) -> None:
        before, own = self._last.get(what.one, 0), self._last.get(what.other, 0)
        at = what.at - self._begin
        host = max(at - self._nodes.at[before], 0.0)
        self._last[what.other] = self._nodes.add(at, HOST, before, own, host=host, lag_b=0.0 if own else NEVER)

    def _loaded(self, load: Load) -> None:
        at, before = load.end - self._begin, self._nodes.at[self._last.get(load.thread, 0)]
        if load.by_workers:
            lag = at - self._nodes.at[self._ready]
            self._ready = self._nodes.add(at, LOADING, self._ready, lag_a=lag)
            self._nodes.outside.append(self._ready)
            self._point(load.thread, load.end, load.start - self._begin - before, self._ready, 0.0)
        else:
            self._point(load.thread, max(load.start, before + self._begin))
            self._nodes.kind[self._point(load.thread, load.end)] = LOADING

    def _call(self, call: Call) -> None:
        nodes, begin = self._nodes, self._begin
        condition = self._condition(call)
        if condition is None:
            if call.kind in ("allocator", "record", "copied"):
                return
            node = self._point(call.thread, call.end if call.kind in ("device", "stream", "event") else call.start)
        else:
            ended, start, end = nodes.at[condition], call.start - begin, call.end - begin
            if ended > start:
                worked = start - nodes.at[self._last.get(call.thread, 0)]
                node = self._point(call.thread, call.end, worked, condition, end - ended)
            elif call.kind == "launch":
                node = self._point(call.thread, call.start, None, condition, 0.0)
            else:
                node = self._point(call.thread, call.end, None, condition, min(self._usual.back, end - ended))
        if call.kind == "wait":
            known = self._trace.waits.get(call.correlation)
            self._pending[known.stream if known else call.thread].append((call.start, known))
        elif call.kind in ("launch", "copy", "graph") and call.correlation in self._stream_of:
            stream = self._stream_of[call.correlation]
            waits = [*self._pending.pop(stream, ()), *self._pending.pop(call.thread, ())]
            if waits:
                self._waits[call.correlation] = waits
            self._launch[call.correlation] = (node, call.start)
            self._last_stream[call.thread] = stream

    def _condition(self, call: Call) -> int | None:
        """Return the kernel or copy (its node) for which a runtime call of the host waits.

        Returns None if the call does not wait.
        """
        if call.kind == "launch":
            if not self._usual.queue:
                return None
            given = self._streams[self._stream_of[call.correlation]].nodes
            place = self._usual.places[call.correlation] - self._usual.queue
            return given[place] if 0 <= place < len(given) else None
        known = self._trace.waits.get(call.correlation)
        by = call.end - self._begin + _ROUND_US
        if call.kind in ("device", "allocator"):
            tails = [x.tail for x in self._streams.values() if x.tail and self._nodes.at[x.tail] <= by]
            found = self._nodes.join(tails, KERNELS) if tails else None
            waited = found is not None and self._nodes.at[found] > call.start - self._begin
            return found if waited or call.kind == "device" else None
        if call.kind == "stream":
            stream = known.stream if known else self._last_stream.get(call.thread)
            tail = self._streams[stream].tail if stream in self._streams else 0
            return tail if tail and self._nodes.at[tail] <= by else None
        if call.kind == "event":
            stated = known is not None and known.record in self._records
            waited = stated or call.end - call.start > _LATE_US
            return (self._find_awaited(call.start, known, call.end, None) or None) if waited else None
        return self._done.get(call.correlation) if call.kind == "copied" else None

    def _find_awaited(self, called: float, wait: Wait | None, by: float, besides: _Place | None) -> int:
        """Return the kernel or copy (its node) for which the host or a GPU stream waited. 0 if nothing is found.

        * ``called``: when the wait began.
        * ``by``: when it was over.
        """
        # The wait is for a CUDA or HIP event. Some traces name the kernel before the event.
        if wait is not None and wait.record in self._records:
            stated = self._streams.get(wait.on) if wait.on else None
            return stated.given(self._records[wait.record]) if stated else 0
        self.guessed += 1
        # Otherwise the kernel is guessed: of all kernels and copies that were launched before the wait was called and
        # ended before the wait was over, it is the last to end.
        found = (NEVER, 0)
        for each in (each for place, each in self._streams.items() if place != besides):
            k = min(bisect.bisect_right(each.launched, called), bisect.bisect_right(each.ended, by + _ROUND_US))
            if k and each.ended[k - 1] > found[0]:
                found = (each.ended[k - 1], each.nodes[k - 1])
        return found[1]

    # ----------------------------------------------------------------------------------------------------- the device

    def _add_work(self, work: Work) -> None:
        nodes, stream = self._nodes, self._streams[work.stream]
        start = work.start - self._begin
        launch = self._launch.get(work.correlation)
        of_graph = work.correlation in self._left
        follows = [self._find_awaited(t, w, work.start, work.stream) for t, w in self._waits.pop(work.correlation, ())]
        if of_graph:
            follows += self._within_graph(work)
        elif work.correlation in self._call_of:
            follows += self._after_graph.pop(self._call_of[work.correlation].thread, ())
        before = [x for x in (stream.tail, *follows) if x]
        tail = nodes.join(before, KERNELS) if before else 0
        lag, lag_b = self._lags(start, tail, launch, within=of_graph and bool(before))
        kind = KERNELS if work.ranks is None else COMMUNICATION
        kernel = self._kernels[work.kernel] if work.kernel >= 0 and kind == KERNELS else -1
        b = launch[0] if launch else 0
        if kind == COMMUNICATION and work.kernel in self._keys:
            arrives = nodes.add(start, KERNELS, tail, b, lag, lag_b)
            node = nodes.add(start + work.us, COMMUNICATION, arrives, us=work.us)
            self.meetings.append((self._keys[work.kernel], arrives, node))
        else:
            took = self._took.get(work.correlation, 0.0) if kernel >= 0 else 0.0
            node = nodes.add(start + work.us, kind, tail, b, lag, lag_b, us=work.us, kernel=kernel, launch=took)
            if launch and kind == COMMUNICATION:  # Otherwise it belongs to the step before.
                self.unmatched_us += work.us
                nodes.outside.append(node)
        stream.add(launch[1] if launch else NEVER, work.end, node)
        self._done[work.correlation] = node
        if of_graph:
            self._in_graph(work, node)

    def _lags(self, start: float, tail: int, launch: tuple[int, float] | None, within: bool) -> tuple[float, float]:
        """Return the delays with which a kernel begins, µs: after its stream's earlier work, and after its launch."""
        gap = start - self._nodes.at[tail]
        if launch is None:
            return gap, NEVER
        lag = start - self._nodes.at[launch[0]]
        if not tail:
            return NEVER, lag
        # The kernel really waited for the later of the two, so this one gets the observed delay. The other one gets the
        # delay that is usual on this machine.
        if within or gap - self._usual.gap <= lag - self._usual.launch:
            return gap, min(self._usual.launch, lag)
        return min(self._usual.gap, gap), lag

    def _within_graph(self, work: Work) -> list[int]:
        """Return the node that the kernel of a CUDA or HIP graph waits for, in a list. The list may be empty."""
        seen = self._graphs.setdefault(work.correlation, {})
        # A graph has several streams, and traces do not show which kernel waits for which. Only the first kernel of a
        # stream is assumed to wait.
        if work.stream in seen:
            return []
        start = work.start - self._begin + _ROUND_US
        ended = [(self._nodes.at[x], x) for each in seen.values() for x in each if self._nodes.at[x] <= start]
        # It waits for the kernel of another stream that ended last before it.
        return [max(ended)[1]] if ended else []

    def _in_graph(self, work: Work, node: int) -> None:
        seen = self._graphs[work.correlation]
        seen.setdefault(work.stream, []).append(node)
        self._left[work.correlation] -= 1
        if not self._left[work.correlation] and len(seen) > 1:
            done = self._nodes.join([each[-1] for each in seen.values()], KERNELS)
            for place in seen:
                self._streams[place].tail = done
            self._after_graph[self._call_of[work.correlation].thread] = [done]


def _launches(trace: RankTrace) -> dict[int, float]:
    """Return how long the host worked to launch each kernel (µs). The keys are correlation ids."""
    of = {x.correlation: trace.identities[x.kernel].op if x.kernel >= 0 else None for x in trace.works}
    before: dict[Thread, tuple[object, float, float | None]] = {}
    out: dict[int, float] = {}
    for call in sorted((x for x in trace.calls if x.kind == "launch"), key=lambda x: x.start):
        operator, (last, ended, fill) = of.get(call.correlation), before.get(call.thread, (None, 0.0, None))
        first = call.start if fill is None else fill
        if operator is None:
            before[call.thread] = (last, ended, first)
            continue
        # If the call had to wait because the GPU's queue was full, the call itself is left out.
        end = call.start if call.end - call.start > _LATE_US else call.end
        # The time includes the launch call, a buffer fill just before it, and what the host did for the same operator
        # since its previous launch.
        out[call.correlation] = max(end - (ended if operator and operator == last else first), 0.0)
        before[call.thread] = (operator, call.end, None)
    return out


def _full(held: Counter[int]) -> int:
    """Find out how many kernels can wait in a GPU stream's queue before a launch blocks.

    ``held`` counts how many kernels were waiting when a slow launch returned. The most frequent number near the usual
    limit (1,024) is returned.
    """
    near = {depth: count for depth, count in held.items() if abs(depth - _QUEUE) <= _QUEUE_SLACK}
    return max(near, key=lambda x: (near[x], x), default=_QUEUE)


@dataclass(frozen=True)
class _Usual:
    """Usual delays and other properties of this machine, found in the trace. Delays in µs.

    * ``launch``: from launch to kernel. It is the lower quartile, because work of an idle stream may also wait for
      another stream.
    * ``gap``: from kernel to kernel.
    * ``back``: from a kernel to the host that waits for it.
    * ``queue``: how many kernels the queue of a stream can hold. 0 if it was never full.
    * ``places``: each launch's position in its stream.
    * ``host_copies``: end of each copy to or from the host.
    """

    launch: float
    gap: float
    back: float
    queue: int
    places: dict[int, int]
    host_copies: dict[int, float]

    @staticmethod
    def of(trace: RankTrace, calls: dict[int, Call]) -> _Usual:
        launches: list[float] = []
        gaps: list[float] = []
        places: dict[int, int] = {}
        deepest, held = 0, Counter[int]()
        streams: dict[_Place, list[Work]] = defaultdict(list)
        for work in sorted(trace.works, key=lambda x: x.start):
            streams[work.stream].append(work)
        for works in streams.values():
            starts, ends = [x.start for x in works], [x.end for x in works]
            for i, work in enumerate(works):
                places[work.correlation] = i
                call = calls.get(work.correlation)
                if call is None or call.kind == "graph":
                    continue
                free = works[i - 1].end if i else -np.inf
                if call.start >= free:
                    launches.append(work.start - call.start)
                elif call.end + _LAUNCH_US < free:
                    gaps.append(work.start - free)
                deepest = max(deepest, i - bisect.bisect_right(starts, call.start))
                if call.end - call.start > _LATE_US:
                    held[i + 1 - bisect.bisect_right(ends, call.end)] += 1
        copies = {x.correlation: x.end for x in trace.works if x.host_copy}
        waits = [
            call.end - copies[x] for x, call in calls.items() if x in copies and call.start < copies[x] <= call.end
        ]
        return _Usual(
            launch=float(np.quantile(launches, 0.25, method="lower")) if launches else _LAUNCH_US,
            gap=max(float(np.median(gaps)), 0.0) if gaps else _GAP_US,
            back=float(np.median(waits)) if waits else _RETURN_US,
            queue=_full(held) if abs(deepest - _QUEUE) <= _QUEUE_SLACK else 0,
            places=places,
            host_copies=copies,
        )
