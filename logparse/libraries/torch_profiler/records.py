"""Collect the operators and kernels of a PyTorch trace, and make calls and measured times from them.

A trace has very many events, so the data are kept in columns, not in one object per event.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from logparse.libraries.kinds.format import Outcome
from logparse.libraries.torch_profiler.busy import BEFORE, Marked, Timeline, busy, collectives, mark_launched_before
from logparse.libraries.torch_profiler.epilogues import ElementWise, Kernels, gelu_gradients, is_tanh, tails
from logparse.libraries.torch_profiler.gaps import HostTime, idle_facts
from logparse.libraries.torch_profiler.gradients import separate_gradients
from logparse.libraries.torch_profiler.inputs import UNREAD, Operation
from logparse.libraries.torch_profiler.searches import NAIVE, SEARCH, find_search_kernels
from logparse.libraries.torch_profiler.stacks import BACKWARD, Frames, Operators, called_from
from logparse.libraries.torch_profiler.timeline import BACKLOG_US, CALL_KINDS, KernelIdentity, call_kind
from logparse.model import (
    Call,
    ConvProblem,
    Fact,
    Kernel,
    Measurement,
    Message,
    OperatorProblem,
    Problem,
    Record,
    Solution,
)

CATEGORY = "profiler"
ORIGIN = "trace"
_SAMPLES = 1000
"""The maximum number of samples that are kept per measurement.  The statistics are computed from all samples."""

_LAUNCHING = tuple(CALL_KINDS.index(x) for x in ("launch", "graph", "copy"))

Thread = tuple[str, str]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Names:
    """The different names and operators in a trace, each kept once and identified by its number.

    Two operators are the same if they have the same name and compute the same matrix product or convolution, and if
    their inputs could be read for both or for neither.  Traces that are read together have a common list.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kinds: list[tuple[int, Operation | None, bool]] = []
        self.steps: dict[int, ElementWise] = {}
        """The kinds of elementwise operators (which may follow a matrix product), by the index of the kind."""
        self.operators: dict[int, OperatorProblem] = {}
        """Descriptions of the operators that no math library computes, with their inputs, by the index of the kind."""
        self._text: dict[str, int] = {}
        self._kinds: dict[tuple[int, Operation | None, bool, ElementWise | None, OperatorProblem | None], int] = {}

    def text(self, text: str) -> int:
        """Return the position of a text in the trace's list of names. A new text is added to the list."""
        index = self._text.setdefault(text, len(self.names))
        if index == len(self.names):
            self.names.append(text)
        return index

    def kind(
        self,
        name: int,
        operation: Operation | None = None,
        *,
        unread: bool = False,
        step: ElementWise | None = None,
        operator: OperatorProblem | None = None,
    ) -> int:
        """Return the number of an operator in the list of different operators. A new operator is added to the list.

        Operators are the same if they agree in their name and their work, for example in the matrix product that they
        compute.
        """
        key = (name, operation, unread, step, operator)
        index = self._kinds.setdefault(key, len(self.kinds))
        if index == len(self.kinds):
            self.kinds.append(key[:3])
            if step is not None:
                self.steps[index] = step
            if operator is not None:
                self.operators[index] = operator
        return index


class Columns:
    """Everything that is kept of a trace in memory, as columns of numbers.

    There are columns for operators, kernels, copies and runtime calls.  Names are kept in a list, each different name
    once.  Times are in µs.
    """

    def __init__(self, known: Names | None = None) -> None:
        self.known = known or Names()
        self.names, self.kinds = self.known.names, self.known.kinds
        self.steps, self.operators = self.known.steps, self.known.operators
        self.text, self.kind = self.known.text, self.known.kind
        self.copies: Counter[str] = Counter()
        self.threads: list[Thread] = []
        """For each thread number, the process and the thread, as texts."""
        self.op_id, self.op_kind, self.op_thread = array("q"), array("i"), array("i")
        self.op_start, self.op_us = array("d"), array("d")  # NaN: not stated
        self.kernel_id, self.kernel_name, self.kernel_device = array("q"), array("i"), array("h")
        self.kernel_start, self.kernel_us = array("d"), array("d")
        self.kernel_stream, self.kernel_correlation = array("q"), array("q")
        self.copy_before, self.copy_device, self.copy_stream = array("q"), array("q"), array("q")
        """Columns about memory copies and fills.

        ``copy_before`` is the number of kernels that come before the copy or fill in the file.
        """
        self.copy_start, self.copy_us, self.copy_correlation = array("d"), array("d"), array("q")
        self.copy_name = array("i")
        self.call_name, self.call_thread, self.call_id = array("i"), array("i"), array("q")
        self.call_start, self.call_us, self.call_correlation = array("d"), array("d"), array("q")  # NaN: not stated
        self.call_kernel = array("i")
        """For each runtime call, the index of the name of the kernel that it launches.

        The index is -1 if the call states no kernel.
        """
        self.waits: list[tuple[int, int, int, int, int]] = []
        """The cases in which a GPU stream waited for an event of another stream, as tuples of five numbers.

        The numbers are the correlation, the device, the stream, the stream of the event (-1 if not stated), and the
        correlation of the call that recorded the event.
        """
        self.frames = Frames()
        self.marks: list[tuple[str, float, float, int]] = []
        """The events that mark steps and batches.  Each has a name, beginning (µs), duration (µs) and thread."""
        self.without_id = 0
        self.copies_us = 0.0
        self.units: list[tuple[float, str]] = []
        """The job's steps.  A step is given by its beginning (on the clock of the kernels) and its kind.

        The steps are sorted by their beginning.
        """
        self.kernel_group: dict[int, str] = {}
        """The ranks that take part in a collective, by the index of the collective's kernel.

        Only kernels that state their ranks are included.
        """
        self.annotation_name, self.annotation_start, self.annotation_us = array("i"), array("d"), array("d")
        self.steps_begin: float | None = None
        self.steps_end: float | None = None
        """``steps_begin`` and ``steps_end``: the beginning of the first marked step, and the end of the last one.

        Both are on the clock of the kernels.
        """
        self.left_out: list[tuple[float, float]] = []
        """Periods whose idle time is not the job's own.

        In these periods a graph was captured, or a library searched for a solver.
        """
        self.launched: npt.NDArray[np.bool_] | None = None
        """True for each kernel whose launch is an event of this trace.  None if launches were not read."""
        self.replayed_from: int | None = None
        """The index of the first operator that was added for a captured graph and is not an event of this trace."""
        self.graphs = self.captures = False
        """True if some event may be the launch of a graph.

        ``captures`` is True if some event may begin a capture.
        """
        self._threads: dict[Thread, int] = {}

    @property
    def ids_suffice(self) -> bool:
        """True if every kernel has the id of the operator that launched it.

        The kernels of a replayed graph do not have that id.  They have no id, the id of an annotation, or the id of the
        operator around the replay.
        """
        return not self.graphs and not self.without_id and bool(np.isin(self.kernel_id, self.op_id).all())

    @property
    def pids(self) -> set[str]:
        """The ids of the processes whose operators are in the trace."""
        return {self.threads[thread][0] for thread in set(self.op_thread)}

    def forget_kernels(self) -> int:
        """Drop all kernels and copies that were added so far.  Return how many were dropped."""
        count = len(self.kernel_id) + sum(self.copies.values())
        for name, column in vars(self).items():
            if name.startswith(("kernel_", "copy_")) and isinstance(column, array):
                del column[:]
        self.copies.clear()
        self.kernel_group.clear()
        self.without_id, self.copies_us = 0, 0.0
        return count

    def thread(self, pid: object, tid: object) -> int:
        """Return the number of a thread of a traced process.  A new thread gets the next free number."""
        place = (str(pid), str(tid))
        index = self._threads.setdefault(place, len(self.threads))
        if index == len(self.threads):
            self.threads.append(place)
        return index

    def add_kernel(self, name: int, id: int, start: float, duration_us: float, device: int) -> None:
        """Add one kernel to the columns.  ``id`` and ``device`` are -1 if the trace does not contain them."""
        self.kernel_id.append(id)
        self.kernel_name.append(name)
        self.kernel_device.append(device if 0 <= device < 1 << 15 else -1)
        self.kernel_start.append(start)
        self.kernel_us.append(duration_us)
        self.without_id += id < 0


def without_overlap(us: Floats, start: Floats, op: Ints, device: Ints) -> Floats:
    """Reduce the times of kernels that overlap, so that an operator's kernels do not take longer than the operator.

    The times of an operator's kernels (µs) then add up to the time in which at least one of them ran.  Their ratios
    stay the same.

    * Kernels may overlap because cuDNN runs the groups of a convolution on streams of its own.
    * A kernel may also begin before the previous kernel of the stream has ended (programmatic dependent launch).
    * Kernels of different operators are not compared: they may overlap and keep their own times.
    * Kernels without an operator (-1) stay as they are.
    """
    order = np.lexsort((start, device, op))
    begun, ended, mine = start[order], start[order] + us[order], op[order] * (1 << 16) + device[order]
    if not (overlaps := (begun[1:] < ended[:-1]) & (mine[1:] == mine[:-1]) & (op[order][1:] >= 0)).any():
        return us
    rounded = 1.0 if bool((start == np.floor(start)).all()) else 0.0  # older traces state whole µs
    out = us.copy()
    bounds = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1], True])
    concerned = np.unique(np.searchsorted(bounds, np.flatnonzero(overlaps), side="right") - 1)
    for a, b in zip(bounds[concerned].tolist(), bounds[concerned + 1].tolist(), strict=True):
        before = np.maximum.accumulate(ended[a:b])[:-1]
        twice = np.minimum(before - begun[a + 1 : b] - rounded, ended[a + 1 : b] - begun[a + 1 : b])
        total = float((ended[a:b] - begun[a:b]).sum())
        if total > 0:
            out[order[a:b]] *= 1 - float(np.maximum(twice, 0.0).sum()) / total
    return out


@dataclass
class _Search:
    """The searches for the fastest solver that a library made for one product or convolution, added up.

    In a search the library runs several solvers, some of which are naive.  This object counts the calls with a search
    and their kernels, and adds up the µs of all kernels and of the naive ones.
    """

    calls: int = 0
    kernels: int = 0
    us: float = 0.0
    naive_us: float = 0.0

    def add(self, kernels: int, us: float, naive_us: float) -> None:
        """Count one more call in which the library tried several solvers in order to find the fastest one.

        * ``kernels`` is the number of kernels that ran for these attempts, and ``us`` is their total time in µs.
        * ``naive_us`` is the time of naive (slow reference) kernels among them, in µs.
        """
        self.calls, self.kernels = self.calls + 1, self.kernels + kernels
        self.us, self.naive_us = self.us + us, self.naive_us + naive_us


_LEAST_SEARCH = 3
"""The minimum number of kernels of a call in which a library searches for a solver.

These are the kernels of two solvers that are tried, and of the solver that was chosen.
"""


class _Launches:
    """The times at which the kernels and copies of a trace were launched by the host.

    For each launch they are the beginning and end of the runtime call, in µs.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        correlation = np.array(columns.call_correlation, dtype=np.int64)
        kinds = {i: call_kind(columns.names[i]) for i in set(columns.call_name)}
        kind = np.array([kinds[i] for i in columns.call_name], dtype=np.int64)
        kept = np.flatnonzero((correlation >= 0) & np.isin(kind, _LAUNCHING))
        kept = kept[np.argsort(correlation[kept], kind="stable")]
        start, us = np.array(columns.call_start)[kept], np.array(columns.call_us)[kept]
        self._correlation, self._graph = correlation[kept], kind[kept] == CALL_KINDS.index("graph")
        self._begin, self._end = start, start + np.where(np.isfinite(us), us, 0.0)

    def of(self, correlation: Ints, graphs_begin: bool = False) -> Floats:
        """Return the time in µs at which the launch of each kernel or copy was complete.  NaN if it is unknown.

        It is the end of the runtime call with the same ``correlation`` number.  If ``graphs_begin`` is True, for
        launches of graphs it is the beginning of the call.
        """
        if not len(self._correlation):
            return np.full(len(correlation), np.nan)
        place = np.minimum(np.searchsorted(self._correlation, correlation), len(self._correlation) - 1)
        at = np.where(self._graph & graphs_begin, self._begin, self._end)[place]
        return np.where(self._correlation[place] == correlation, at, np.nan)

    def backlog(self, start: Floats, correlation: Ints) -> bool:
        """Return True if the GPU was still busy with earlier work when the trace began.

        The trace lacks that work.  But it shows that the first launched work waited for more than ``BACKLOG_US``, which
        is longer than a launch takes.
        """
        columns = self._columns
        start = np.r_[start, np.array(columns.copy_start)]
        asked = self.of(np.r_[correlation, np.array(columns.copy_correlation, dtype=np.int64)])
        known = np.flatnonzero(np.isfinite(asked))
        if not len(known):
            return False
        first = known[np.argmin(start[known])]
        return bool(start[first] - asked[first] > BACKLOG_US)


class Records:
    """Turns the columns of a trace into its calls, measurements and kernels.

    ``by_time`` holds the operator of each kernel, found by the time of the kernel's launch, or -1.  It is needed for
    kernels without an operator's id, and for kernels that a graph replayed.
    """

    def __init__(self, columns: Columns, by_time: Ints | None) -> None:
        self._columns = columns
        self._op_kind: Ints = np.frombuffer(columns.op_kind, dtype=np.int32).astype(np.int64)
        self._us: Floats = np.frombuffer(columns.kernel_us, dtype=np.float64)
        self._start: Floats = np.frombuffer(columns.kernel_start, dtype=np.float64)
        self._name: Ints = np.frombuffer(columns.kernel_name, dtype=np.int32).astype(np.int64)
        self._device: Ints = np.frombuffer(columns.kernel_device, dtype=np.int16).astype(np.int64)
        self._op, self._ambiguous = self._operators()
        self._events = len(columns.op_kind) if columns.replayed_from is None else columns.replayed_from
        if by_time is not None:
            self._op = np.where((self._op < 0) | (by_time >= self._events), by_time, self._op)
        bears_id = np.frombuffer(columns.kernel_id, dtype=np.int64) >= 0
        launched = bears_id if columns.launched is None else bears_id | columns.launched
        launches = _Launches(columns)
        asked = launches.of(np.frombuffer(columns.kernel_correlation, dtype=np.int64), graphs_begin=True)
        own_us = self._us
        self._backlog = launches.backlog(self._start, np.frombuffer(columns.kernel_correlation, dtype=np.int64))
        self._searched = np.zeros(len(self._us), dtype=bool)
        self._searches: dict[Problem, _Search] = {}
        self._us = without_overlap(self._us, self._start, self._op, self._device)
        self._problems: list[Problem] = []
        self._problem_index: dict[Problem, int] = {}
        self._problem_of = np.full(len(self._us), -1, dtype=np.int64)
        self._calls: Counter[tuple[int, int]] = Counter()
        self._samples: dict[tuple[int, tuple[int, ...]], array[float]] = {}
        self._call_events = self._unread_events = 0
        self._unread: Counter[tuple[str, str]] = Counter()
        self._walk()
        self._timeline = Timeline(self._start, own_us, self._device, launched, self._name, asked, self._searched)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield everything that the trace states: calls, measurements, kernels, messages and facts."""
        columns = self._columns
        calls = [
            Call(problem=self._problems[p], category=CATEGORY, count=n, device=None if d < 0 else d)
            for (p, d), n in self._calls.items()
        ]
        yield Outcome("call", calls, lines=self._call_events)
        measured: list[Record] = [self._measurement(p, names, us) for (p, names), us in self._samples.items()]
        yield Outcome("measurement", [*measured, *self._kernels()], lines=len(self._us))
        messages = [
            *(Message(category=CATEGORY, function=f, text=t, count=n) for (f, t), n in self._unread.items()),
            *(Message(category=CATEGORY, text=t, count=n) for t, n in columns.copies.items()),
        ]
        if self._ambiguous:
            text = (
                "kernels whose operator is unknown, because several operators have the same External id as the kernel"
            )
            messages.append(Message(category=CATEGORY, text=text, count=self._ambiguous))
        yield Outcome("message", messages, lines=self._unread_events + sum(columns.copies.values()))
        marked = Marked(None if self._backlog else columns.steps_begin, columns.steps_end, columns.left_out)
        host = HostTime(columns)
        copies_us = columns.copies_us - self._early_copies_us()
        timed = busy(self._timeline, columns.names, copies_us, marked, lambda gaps: idle_facts(gaps, host))
        yield Outcome("fact", [*timed, *self._tails(), *self._search_facts(), *self._places()], lines=0)
        talks = collectives(self._timeline, columns.names, columns.kernel_group)
        yield Outcome("measurement", [*talks], lines=0)
        yield Outcome("foreign", lines=self._events - self._call_events - self._unread_events)

    def identities(self) -> tuple[Ints, list[KernelIdentity]]:
        """Return the different kernels of the trace, and for each launched kernel which of them it is.

        Kernels are the same if they agree in their operator, in their matrix product or convolution, and in their name.
        The launched kernels have the order of the file.
        """
        names, kinds, operators = self._columns.names, self._columns.kinds, self._columns.operators
        of_op = self._op_kind[self._op] if len(self._op_kind) else np.zeros(len(self._op), dtype=np.int64)
        sizes = (len(kinds) + 1, len(self._problems) + 1, max(len(names), 1))
        keys = (np.where(self._op >= 0, of_op, -1) + 1, self._problem_of + 1, self._name)
        distinct, places = np.unique(np.ravel_multi_index(keys, sizes), return_inverse=True)
        out = []
        kind_of, problem_of, name_of = np.unravel_index(distinct, sizes)
        each = zip((kind_of - 1).tolist(), (problem_of - 1).tolist(), name_of.tolist(), strict=True)
        for kind, problem, name in each:
            of = self._problems[problem] if problem >= 0 else operators.get(kind)
            operator = names[kinds[kind][0]] if kind >= 0 else ""
            out.append(KernelIdentity(operator, of.text if of else None, names[name]))
        return places, out

    def _operators(self) -> tuple[Ints, int]:
        """Find the operator of each kernel by the id that both have.

        Returns the operators' indices, with -1 for kernels without an operator, and the number of kernels whose id
        belongs to several operators.  For such kernels no operator is chosen.
        """
        ids: Ints = np.frombuffer(self._columns.op_id, dtype=np.int64)
        mine: Ints = np.frombuffer(self._columns.kernel_id, dtype=np.int64)
        if not len(ids):
            return np.full(len(mine), -1, dtype=np.int64), 0
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        first = np.searchsorted(ids, mine, side="left")
        last = np.searchsorted(ids, mine, side="right")
        found = np.where((last - first == 1) & (mine >= 0), order[np.minimum(first, len(ids) - 1)], -1)
        return found, int(np.count_nonzero((last - first > 1) & (mine >= 0)))

    def _walk(self) -> None:
        """Record the matrix products and convolutions that launched kernels, with the kernels of each.

        Operators whose inputs cannot be read are counted separately.
        """
        asked = np.array([op is not None or unread for _, op, unread in self._columns.kinds], dtype=bool)
        if not len(asked) or not len(self._op):
            return
        launched = np.flatnonzero(self._op >= 0)
        launched = launched[asked[self._op_kind[self._op[launched]]]]
        launched = launched[np.lexsort((self._start[launched], self._op[launched]))]
        bounds = np.flatnonzero(np.diff(self._op[launched], prepend=-1, append=-1))
        each = [launched[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        self._find_searches(each)
        for kernels in each:
            name, operation, _ = self._columns.kinds[self._op_kind[self._op[kernels[0]]]]
            is_event = int(self._op[kernels[0]]) < self._events
            if operation is None:
                self._unread_events += is_event
                self._unread[self._columns.names[name], UNREAD] += 1
            else:
                self._call_events += is_event
                own = kernels[~self._searched[kernels]]
                if len(own):
                    self._operator(operation, own)

    def _find_searches(self, calls: Sequence[Ints]) -> None:
        """Find the kernels that ran only because a library searched for a solver, and mark them.

        Idle time during a search is left out.
        """
        of_kind: dict[tuple[int, int], list[Ints]] = defaultdict(list)
        for kernels in calls:
            of_kind[int(self._op_kind[self._op[kernels[0]]]), int(self._device[kernels[0]])].append(kernels)
        names, columns = self._columns.names, self._columns
        for (kind, _), mine in of_kind.items():
            operation = columns.kinds[kind][1]
            most = max(map(len, mine))
            if operation is None or most < _LEAST_SEARCH:
                continue
            mine.sort(key=lambda x: float(self._start[x[0]]))
            backward = len(operation.problems) == 2
            found = find_search_kernels([[names[i] for i in self._name[x].tolist()] for x in mine], backward)
            for number, places in found.items():
                kernels = mine[number]
                of_search = kernels[sorted(places)]
                self._searched[of_search] = True
                begin = float(np.nanmin([self._start[of_search[0]], columns.op_start[int(self._op[kernels[0]])]]))
                end = float((self._start + self._us)[of_search].max())
                after = [x for x in self._start[kernels[~self._searched[kernels]]].tolist() if x >= end]
                columns.left_out.append((begin, min(after, default=end)))
                problem = operation.whole or operation.problems[0]
                naive = [i for i in of_search if NAIVE.search(names[self._name[i]])]
                self._searches.setdefault(problem, _Search()).add(
                    len(of_search), float(self._us[of_search].sum()), float(self._us[naive].sum())
                )

    def _operator(self, operation: Operation, kernels: Ints) -> None:
        backward = isinstance(operation.whole, ConvProblem) and operation.whole.direction == "B+W"
        backward |= len(operation.problems) == 2
        cut = separate_gradients([self._columns.names[i] for i in self._name[kernels].tolist()]) if backward else None
        if cut is not None:
            first, second = reversed(operation.problems) if cut.weights_first else operation.problems
            self._count(first, kernels[: cut.second])
            self._count(second, kernels[cut.second :])
        elif operation.whole is not None or len(operation.problems) == 1:
            self._count(operation.whole or operation.problems[0], kernels)
        else:  # a transposed convolution ran F and W, and the model cannot express both as one
            for problem in operation.problems:
                self._calls[self._index(problem), int(self._device[kernels[0]])] += 1

    def _count(self, problem: Problem, kernels: Ints) -> None:
        index = self._index(problem)
        self._problem_of[kernels] = index
        self._calls[index, int(self._device[kernels[0]])] += 1
        key = (index, tuple(self._name[kernels].tolist()))
        self._samples.setdefault(key, array("d")).append(float(self._us[kernels].sum()))

    def _index(self, problem: Problem) -> int:
        index = self._problem_index.setdefault(problem, len(self._problems))
        if index == len(self._problems):
            self._problems.append(problem)
        return index

    def _measurement(self, problem: int, names: Sequence[int], samples: array[float]) -> Measurement:
        kernels = "+".join(self._columns.names[i] for i in names)
        us: Floats = np.frombuffer(samples, dtype=np.float64)
        return Measurement(
            problem=self._problems[problem],
            solution=Solution("kernel", kernels, kernels),
            origin=ORIGIN,
            time_us=float(np.median(us)),
            min_us=float(us.min()),
            max_us=float(us.max()),
            samples_us=tuple(us[:_SAMPLES].round(6).tolist()),
        )

    def _early_copies_us(self) -> float:
        """Return the time in µs of copies and fills that began while kernels from before the trace still ran.

        Such kernels were launched before the trace began.
        """
        kernels = self._timeline
        early = mark_launched_before(kernels)
        if not early.any():
            return 0.0
        ended = float((kernels.start + kernels.us)[early].max())
        start, us = np.array(self._columns.copy_start), np.array(self._columns.copy_us)
        return float(us[start < ended].sum())

    def _tails(self) -> list[Fact]:
        """Find elementwise operators that follow matrix products, such as a ReLU.

        Gradients of GELU that the program computes by single operators are found as well.
        """
        steps = self._columns.steps
        index = np.full(len(self._columns.kinds) + 1, -1, dtype=np.int64)
        index[list(steps)] = np.arange(len(steps))
        kind = np.where(self._op >= 0, self._op_kind[self._op] if len(self._op_kind) else -1, -1)
        tanh = np.array([*map(is_tanh, self._columns.names), False])[self._name]
        kernels = Kernels(self._start, self._us, self._device, self._op, self._problem_of, index[kind], tanh)
        return [*tails(kernels, self._problems, list(steps.values())), *gelu_gradients(kernels, list(steps.values()))]

    def _places(self) -> Iterator[Fact]:
        """State from where the program calls each matrix product and convolution, if the trace has stacks."""
        columns = self._columns
        if not len(columns.frames.place):
            return
        backward = np.array([columns.names[name].startswith(BACKWARD) for name, _, _ in columns.kinds], dtype=bool)
        # Operators of a replayed graph are no events of this trace, so that no function is around them.
        thread = np.array(columns.op_thread[: self._events], dtype=np.int64)
        start, us = np.array(columns.op_start[: self._events]), np.array(columns.op_us[: self._events])
        operators = Operators(thread, start, us, backward[self._op_kind[: self._events]])
        yield from called_from(columns.frames, operators, self._op, self._problem_of, self._us, self._problems)

    def _search_facts(self) -> Iterator[Fact]:
        """State how many searches for a solver are in the trace, and how long they took.

        There is one total for each matrix product or convolution, the longest search first.
        """
        if self._searches:
            order = sorted(self._searches.items(), key=lambda x: (-x[1].us, x[0].text))
            listed = [{"problem": problem.text, **asdict(found)} for problem, found in order]
            yield Fact("searches", json.dumps(listed))

    def _kernels(self) -> Iterator[Kernel]:
        """Yield the kernels of the trace, added up where they do the same work.

        Kernels are added up if they have the same kernel name, operator name, matrix product or convolution, GPU and
        kind of step.  If the operator is neither a matrix product nor a convolution, its inputs must be equal too.
        """
        if not len(self._us):
            return
        columns = self._columns
        kinds = np.array([name for name, _, _ in columns.kinds] or [-1], dtype=np.int64)
        with_inputs = np.full(len(kinds), -1, dtype=np.int64)
        with_inputs[list(columns.operators)] = list(columns.operators)
        of_op = self._op_kind[self._op] if len(self._op_kind) else np.zeros(len(self._op), dtype=np.int64)
        op = np.where(self._op >= 0, kinds[of_op], np.where(mark_launched_before(self._timeline), -2, -1))
        op = np.where(self._searched, -3, op)
        unlike = (self._op >= 0) & (self._problem_of < 0) & ~self._searched
        operator = np.where(unlike, with_inputs[of_op], -1)
        units = sorted({name for _, name in columns.units})
        unit = self._units(units)
        keys = np.stack([op, self._problem_of, self._name, self._device, operator, unit])
        order = np.lexsort(keys[::-1])
        keys, us = keys[:, order], self._us[order]
        starts = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
        totals, counts = np.add.reduceat(us, starts), np.diff(starts, append=len(us))
        least, most = np.minimum.reduceat(us, starts), np.maximum.reduceat(us, starts)
        for i, at in enumerate(starts.tolist()):
            name, problem, kernel, device, operator_kind, kind = keys[:, at].tolist()
            yield Kernel(
                op=self._columns.names[name] if name >= 0 else {-2: BEFORE, -3: SEARCH}.get(name, ""),
                kernel=self._columns.names[kernel],
                calls=int(counts[i]),
                total_us=float(totals[i]),
                min_us=float(least[i]),
                max_us=float(most[i]),
                device=None if device < 0 else device,
                problem=self._problems[problem] if problem >= 0 else None,
                operator=columns.operators.get(operator_kind),
                unit=units[kind] if kind >= 0 else None,
            )

    def _units(self, names: Sequence[str]) -> Ints:
        """Return for each kernel in which kind of step it began, as an index into ``names``.

        The index is -1 if the step is unknown.
        """
        began: Floats = np.array([-np.inf, *(start for start, _ in self._columns.units)])
        kinds = np.array([-1, *(names.index(name) for _, name in self._columns.units)], dtype=np.int64)
        kinds[0] = kinds[min(1, len(kinds) - 1)]  # kernels of other threads may begin before the first unit
        return kinds[np.searchsorted(began, self._start, side="right") - 1]
