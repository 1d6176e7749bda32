"""Kernels of graph replays, joined to the operators that were recorded when the graph was captured.

A replay launches the kernels of a whole graph with one call (``hipGraphLaunch``), so they have no operator.  The trace
of the capture has both: between ``hipStreamBeginCapture`` and ``hipStreamEndCapture`` of a thread each launch bears the
operator's ``External id`` and its kernel's name, and no kernel runs::

    {"ph": "X", "cat": "cuda_runtime", "name": "hipExtModuleLaunchKernel", "tid": 251, "ts": …,
     "args": {"External id": 161252, "kernel": "Cijk_Alik_Bljk_…", "correlation": 67600, …}}      capture
    {"ph": "X", "cat": "kernel", "name": "Cijk_Alik_Bljk_…", "args": {"correlation": 92178, "kind": "Dispatch Task"}}

A replay is joined to a capture whose kernels have the same names in the same order: one of the same file, or of a
trace of the same rank that lies in the same folder or in its subfolder ``capture_traces`` (``Source.beside``).  Of a
large graph the last kernel may lack in every replay (an MI300X ran 1,566 of 1,567): at most one in a hundred may.

CUDA's runtime events name no kernels, and gradients are launched by a thread of their own: all launches of the process
during the capture that ran no kernel count, and a replay of as many kernels is joined in their order where no kernel
contradicts its operator (``_agree``)::

    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"External id": 11, "correlation": 25, …}}

``in_job/logparse_in_job/graphs.py`` notes which graph is which: the header of the capture's trace has ``"logparse_graph":
"PID.N"``, and that of a window ``"logparse_graphs": ["PID.N", …]``, its replays in order.  Where these are as many as
its launches of graphs, each is joined to that capture alone, so that graphs of other batch sizes with as many kernels
are told apart.

Where captures of equal kernels differ in their problems (batch sizes that use the same kernels), or there is none, the
replay stays without operators; the fact ``graph_unexplained_us`` is its time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logparse.formats.format import Source
from logparse.formats.patterns import regex
from logparse.formats.traces.torch.event_cutter import TraceEvents, is_operator
from logparse.formats.traces.torch.records import Columns, Ints
from logparse.model import Fact

GRAPH, GRAPHS = "logparse_graph", "logparse_graphs"
"""In the header of a capture's trace the mark of its graph, and of a window those of its replays."""
KindOf = Callable[[Mapping[str, Any]], int]
"""The index in ``Columns.kinds`` of an operator's event."""
LAUNCH = regex(r"(?:hip|cuda)GraphLaunch")
RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime"})

_MARK = b"StreamBeginCapture"
_BEGIN, _END = regex(r"(?:hip|cuda|cu)StreamBeginCapture"), regex(r"(?:hip|cuda|cu)StreamEndCapture")
_LAUNCHES = regex(r"(?:cuda|cu)Launch(?:Cooperative)?Kernel")
_PRODUCT = regex(r"gemm|gemv|nvjet|xmma|wgrad|dgrad|fprop", re.IGNORECASE)
_NO_PRODUCT = regex(r"(?!.*(?:conv|gem[mv]|dot|depthwise)).*\bat::native::", re.IGNORECASE)
"""Kernels by their names: those of products and convolutions, and PyTorch's own that are none."""
_RANK = regex(rb'"rank"\s*:\s*(\d+)')
_MOST_BESIDE = 256
_MOST_LACKING = 1.01
_Thread = tuple[str, str]


@dataclass(frozen=True)
class Capture:
    """A captured graph: its kernels (indices of names; none where launches do not name them), the kind of each one's
    operator, and which operator it is, counted from 0: the graphs of equal layers are equal.
    """

    names: tuple[int, ...]
    kinds: tuple[int, ...]
    operators: tuple[int, ...]

    def has(self, names: tuple[int, ...]) -> bool:
        """Whether these are its kernels, but for a few at the end."""
        return self.names[: len(names)] == names and len(self.names) <= len(names) * _MOST_LACKING


def events_of(source: Source) -> Iterator[Mapping[str, Any]]:
    """Every event of a trace, parsed; damaged ones are left out."""
    with source.open() as stream:
        yield from parsed(TraceEvents(stream))


def parsed(trace: TraceEvents) -> Iterator[Mapping[str, Any]]:
    """The events of a trace without those that are damaged."""
    return (event for batch in trace.batches() for event, _, _ in batch.events() if event is not None)


def thread_of(event: Mapping[str, Any]) -> _Thread:
    return str(event.get("pid")), str(event.get("tid"))


def join(
    source: Source, columns: Columns, graph_of: Sequence[int], marks: Mapping[int, str], found: Ints, kind_of: KindOf
) -> list[Fact]:
    """Give the kernels of replays operators of their own in ``columns`` and ``found`` (per kernel its operator).

    ``graph_of`` is the launch of each kernel that a graph launched, else -1; ``marks`` name the graphs of launches.
    """
    replays: dict[int, list[int]] = defaultdict(list)
    for kernel, launch in enumerate(graph_of):
        if launch >= 0:
            replays[launch].append(kernel)
    if not replays:
        return []
    columns.replayed_from = len(columns.op_kind)
    captures = _Captures(source, columns, kind_of)
    explained = 0.0
    for launch, kernels in replays.items():
        kernels.sort(key=columns.kernel_start.__getitem__)
        capture = captures.of(tuple(columns.kernel_name[i] for i in kernels), marks.get(launch))
        if capture is not None:
            _replay(columns, kernels, capture, found)
            explained += sum(columns.kernel_us[i] for i in kernels)
    total = sum(columns.kernel_us[i] for kernels in replays.values() for i in kernels)
    return [
        Fact("graph_launches", str(len(replays))),
        Fact("graph_us", f"{total:.3f}"),
        Fact("graph_unexplained_us", f"{max(total - explained, 0.0):.3f}"),
    ]


def _replay(columns: Columns, kernels: Sequence[int], capture: Capture, found: Ints) -> None:
    """One launch of a captured graph: each captured operator runs once more."""
    first = len(columns.op_kind)
    numbers: dict[int, int] = {}
    for kernel, kind, operator in zip(kernels, capture.kinds, capture.operators, strict=False):
        if operator not in numbers:
            numbers[operator] = first + len(numbers)
            columns.op_id.append(-1)
            columns.op_kind.append(kind)
        found[kernel] = numbers[operator]


class _Captures:
    """The captured graphs that are within reach, searched as far as they are asked for: own file first."""

    def __init__(self, source: Source, columns: Columns, kind_of: KindOf) -> None:
        self._columns, self._kind_of = columns, kind_of
        self._sources = _with_captures(source)
        self._found: dict[tuple[int, ...], set[Capture]] = defaultdict(set)
        self._marked: dict[str, Capture] = {}
        self._agreed: dict[tuple[Capture, tuple[int, ...]], bool] = {}

    def of(self, names: tuple[int, ...], mark: str | None) -> Capture | None:
        """The captured graph of these kernels, or of this mark; None where there is none, or several that differ."""
        while mark is not None and mark not in self._marked and self._read():
            pass
        if mark in self._marked:
            return _only({x for x in (self._marked[mark],) if self._fits(x, names)})
        while names not in self._found:
            if not self._read():
                return _only({x for found in self._found.values() for x in found if self._fits(x, names)})
        return _only(self._found[names])

    def _read(self) -> bool:
        """Add the captures of the next trace; False where there is none."""
        source = next(self._sources, None)
        if source is None:
            return False
        with source.open() as stream:
            trace = TraceEvents(stream)
            found = list(captures_of(parsed(trace), self._columns, self._kind_of))
        for capture in found:
            self._found[capture.names].add(capture)
        mark = {**trace.tail, **trace.header}.get(GRAPH)
        if isinstance(mark, str) and len(found) == 1:
            self._marked[mark] = found[0]
        return True

    def _fits(self, capture: Capture, names: tuple[int, ...]) -> bool:
        if capture.names:
            return capture.has(names)
        if len(capture.kinds) != len(names):
            return False
        if (capture, names) not in self._agreed:
            self._agreed[capture, names] = _agree(capture, names, self._columns)
        return self._agreed[capture, names]


def _agree(capture: Capture, names: tuple[int, ...], columns: Columns) -> bool:
    """Whether no kernel contradicts its operator: not all kernels of a product are plain ones of PyTorch, and no
    elementwise operator runs a kernel of a product.
    """
    missing: dict[int, bool] = {}
    for name, kind, operator in zip(names, capture.kinds, capture.operators, strict=True):
        text, (_, operation, unread) = columns.names[name], columns.kinds[kind]
        if kind in columns.steps and _PRODUCT.search(text):
            return False
        if operation is not None or unread:
            missing[operator] = missing.get(operator, True) and _NO_PRODUCT.match(text) is not None
    return not any(missing.values())


def _only(captures: Collection[Capture]) -> Capture | None:
    return next(iter(captures)) if len(captures) == 1 else None


def _with_captures(source: Source) -> Iterator[Source]:
    """The trace itself and those of its rank beside it, as far as they captured graphs."""
    if _has_captures(source):
        yield source
    rank = _rank(source)
    for number, other in enumerate(source.beside()):
        if number >= _MOST_BESIDE:
            return
        if other.name.endswith(".json") and _rank(other) == rank and _has_captures(other):
            yield other


def _rank(source: Source) -> bytes | None:
    with source.open() as stream:
        head = stream.read(64 << 10)
    match = _RANK.search(head)
    return match[1] if match else None


def _has_captures(source: Source) -> bool:
    with source.open() as stream:
        return any(_MARK in batch.block for batch in TraceEvents(stream).batches())


def captures_of(events: Iterable[Mapping[str, Any]], columns: Columns, kind_of: KindOf) -> Iterator[Capture]:
    """The captured graphs of a trace.  Names and kinds are indices of ``columns``."""
    kinds: dict[int, int] = {}
    ran: set[object] = set()
    launches: dict[_Thread, list[tuple[float, int, str | None, object]]] = defaultdict(list)
    begins: dict[_Thread, list[float]] = defaultdict(list)
    ends: dict[_Thread, list[float]] = defaultdict(list)
    for event in events:
        args, at = event.get("args"), event.get("ts")
        if not isinstance(args, dict) or not isinstance(at, (int, float)):
            continue
        id, name = args.get("External id"), str(event.get("name"))
        if is_operator(event):
            if type(id) is int:
                kinds[id] = kind_of(event)
        elif event.get("cat") in RUNTIME:
            place = thread_of(event) if name.startswith("hip") else (str(event.get("pid")), "")
            if isinstance(args.get("kernel"), str) or _LAUNCHES.match(name):
                launch = args.get("kernel"), args.get("correlation")
                launches[place].append((at, id if type(id) is int else -1, *launch))
            elif _BEGIN.match(name):
                begins[place].append(at)
            elif _END.match(name):
                ends[place].append(at)
        elif event.get("cat") == "kernel":
            ran.add(args.get("correlation"))
    for place, starts in begins.items():
        for start in starts:
            end = min((x for x in ends[place] if x > start), default=None)
            within = [x for x in launches[place] if end is not None and start < x[0] < end and x[3] not in ran]
            within.sort(key=lambda x: x[0])
            if within:
                ids = [id for _, id, _, _ in within]
                texts = [name for _, _, name, _ in within if name is not None]
                nameless = columns.kind(columns.text(""))
                yield Capture(
                    tuple(map(columns.text, texts)) if len(texts) == len(within) else (),
                    tuple(kinds.get(id, nameless) for id in ids),
                    tuple(map({id: number for number, id in enumerate(dict.fromkeys(ids))}.__getitem__, ids)),
                )
