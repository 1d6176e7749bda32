"""Find the operators of kernels that a graph replay launched.  The operators were recorded when the graph was captured.

A replay launches the kernels of a whole graph with one call (``hipGraphLaunch``), so the kernels have no operator.  The
trace of the capture has both: between ``hipStreamBeginCapture`` and ``hipStreamEndCapture`` of a thread each launch has
the operator's ``External id`` and its kernel's name, and no kernel runs::

    {"ph": "X", "cat": "cuda_runtime", "name": "hipExtModuleLaunchKernel", "tid": 251, "ts": …,
     "args": {"External id": 161252, "kernel": "Cijk_Alik_Bljk_…", "correlation": 67600, …}}      capture
    {"ph": "X", "cat": "kernel", "name": "Cijk_Alik_Bljk_…", "args": {"correlation": 92178, "kind": "Dispatch Task"}}

A replay is joined to a capture whose kernels have the same names in the same order.  The capture is in the same file,
or in a trace of the same rank in the same folder or in its subfolder ``capture_traces`` (``Source.beside``).  The last
kernels of a large graph may be missing in every replay (an MI300X ran 1,566 of 1,567).  At most one in a hundred may be
missing.

CUDA's runtime events name no kernels, and a thread of its own launches the gradients.  So all launches of the process
during the capture that ran no kernel are taken.  A replay with the same number of kernels is joined to these launches
in order, if no kernel contradicts its operator (``_can_be_capture_of``)::

    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"External id": 11, "correlation": 25, …}}

``in_job/logparse_in_job/graphs.py`` notes which graph is which, in the headers of the traces.  The header of the
capture's trace has ``"logparse_graph": "PID.N"``.  The header of a trace of the job has ``"logparse_graphs": ["PID.N",
…]``, its replays in order.  If the header notes as many graphs as were launched, each replay is joined only to the
capture with its note.  So graphs of different batch sizes are told apart even if they have the same number of kernels.

The trace of nothing but a capture (``is_capture``) contains no time of the job, in whichever folder it is.  Its steps,
and its kernels, which ran before or after the capture, are not counted.  The fact ``graph_capture`` states how many
there were.  In the trace of a job the idle time during a capture is left out (``captured``, ``busy``).

If captures of equal kernels differ in their problems (batch sizes that use the same kernels), or if there is no
capture, the replay stays without operators.  The fact ``graph_unexplained_us`` is the time of such replays.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from logparse.libraries.kinds.format import Source
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.records import Columns, Ints, Thread
from logparse.libraries.torch_profiler.timeline import MARK
from logparse.model import Fact

GRAPH, GRAPHS = "logparse_graph", "logparse_graphs"
"""Keys of a trace's header: which graph was captured in the trace, and which graphs were replayed in it."""
Read: TypeAlias = tuple[Columns, Mapping[str, Any]]
"""The columns of a trace, and the trace's header."""
ReadBeside: TypeAlias = Callable[[Source], Read]
"""A function that reads another trace, in the same way as this trace.

The columns of both traces use the same lists of names and operator kinds.
"""
LAUNCH = regex(r"(?:hip|cuda)GraphLaunch")
LAUNCHES_GRAPH, CAPTURE = b"GraphLaunch", b"StreamBeginCapture"
"""Parts of the names of two kinds of runtime calls: calls that replay a graph, and calls that begin to capture one."""

_BEGIN, _END = regex(r"(?:hip|cuda|cu)StreamBeginCapture"), regex(r"(?:hip|cuda|cu)StreamEndCapture")
_LAUNCHES = regex(r"(?:cuda|cu)Launch(?:Cooperative)?Kernel")
_PRODUCT = regex(r"gemm|gemv|nvjet|xmma|wgrad|dgrad|fprop", re.IGNORECASE)
_NO_PRODUCT = regex(r"(?!.*(?:conv|gem[mv]|dot|depthwise)).*\bat::native::", re.IGNORECASE)
"""Regular expressions for the names of kernels.

``_PRODUCT`` matches kernels of matrix products and convolutions.  ``_NO_PRODUCT`` matches PyTorch's own kernels that
compute neither.
"""
_NAMED = regex(r"capture_\d|graph_?capture", re.IGNORECASE)
"""A regular expression for the annotations around captures in vLLM and SGLang.

Examples: ``capture_32_FULL`` and ``capture_32_DECODE``.
"""
_RANK = regex(rb'"rank"\s*:\s*(\d+)')
_MOST_BESIDE = 256
_MOST_LACKING = 1.01


@dataclass(frozen=True)
class Capture:
    """A captured CUDA graph, described by the list of its kernels.

    * ``names``: the index of each kernel's name. Empty if the launches do not name the kernels.
    * ``kinds``: the index of the operator, with its inputs, that launched each kernel.
    * ``operators``: the position of this operator among the operators of the graph.
    """

    names: tuple[int, ...]
    kinds: tuple[int, ...]
    # The numbers begin at 0 in each graph, so the graphs of equal layers are equal.
    operators: tuple[int, ...]

    def has(self, names: tuple[int, ...]) -> bool:
        """Return True if the kernels of a captured CUDA graph have these names.

        A few kernels at the end may be missing.
        """
        return self.names[: len(names)] == names and len(self.names) <= len(names) * _MOST_LACKING


def join(
    source: Source,
    columns: Columns,
    graph_of: Sequence[int],
    marks: Mapping[int, str],
    found: Ints,
    header: Mapping[str, Any],
    beside: ReadBeside,
) -> list[Fact]:
    """Find the operator of each kernel that a replay of a CUDA graph launched.

    A trace does not contain the operators of a replay, but it may contain them for the capture of the graph. They are
    added to ``columns``, and ``found`` gets the index of each kernel's operator.  Returns facts about how much of the
    replays' time could be explained.

    * ``graph_of`` holds for each kernel the launch of its graph, or -1 if no graph launched it.
    * ``marks`` says which graph each launch replayed, if the header notes it.
    """
    replays: dict[int, list[int]] = defaultdict(list)
    for kernel, launch in enumerate(graph_of):
        if launch >= 0:
            replays[launch].append(kernel)
    if not replays:
        return []
    columns.replayed_from = len(columns.op_kind)
    captures = _Captures(source, (columns, header), beside)
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
    """Assign the kernels of a CUDA graph that ran again to the operators that launched them during the capture.

    ``found`` gets the operator's number for each kernel.
    """
    # While a graph runs, the trace contains its kernels, but no operators. So the captured operators are added to the
    # trace's columns once more.
    first = len(columns.op_kind)
    numbers: dict[int, int] = {}
    for kernel, kind, operator in zip(kernels, capture.kinds, capture.operators, strict=False):
        if operator not in numbers:
            numbers[operator] = first + len(numbers)
            columns.op_id.append(-1)
            columns.op_kind.append(kind)
        found[kernel] = numbers[operator]


class _Captures:
    """Finds the captured CUDA graph that belongs to a replay, first in this trace, then in others.

    Other traces are read only until a matching graph is found.
    """

    def __init__(self, source: Source, own: Read, beside: ReadBeside) -> None:
        self._columns = own[0]
        self._sources = _with_captures(source, own, beside)
        self._found: dict[tuple[int, ...], set[Capture]] = defaultdict(set)
        self._marked: dict[str, Capture] = {}
        self._agreed: dict[tuple[Capture, tuple[int, ...]], bool] = {}

    def of(self, names: tuple[int, ...], mark: str | None) -> Capture | None:
        """Find out which captured CUDA graph ran, from the names of the kernels that were executed.

        ``mark`` is the graph that the trace notes.  Returns None if no graph has these kernels, or several different
        ones.
        """
        while mark is not None and mark not in self._marked and self._read():
            pass
        # If the trace notes which graph it was, no other graph is returned.
        if mark in self._marked:
            return _only({x for x in (self._marked[mark],) if self._fits(x, names)})
        while names not in self._found:
            if not self._read():
                return _only({x for found in self._found.values() for x in found if self._fits(x, names)})
        return _only(self._found[names])

    def _read(self) -> bool:
        """Read the next trace file and the CUDA graphs in it.  Returns False if no file is left."""
        trace = next(self._sources, None)
        if trace is None:
            return False
        columns, header = trace
        found = list(captures_of(columns))
        for capture in found:
            self._found[capture.names].add(capture)
        mark = header.get(GRAPH)
        if isinstance(mark, str) and len(found) == 1:
            self._marked[mark] = found[0]
        return True

    def _fits(self, capture: Capture, names: tuple[int, ...]) -> bool:
        if capture.names:
            return capture.has(names)
        if len(capture.kinds) != len(names):
            return False
        if (capture, names) not in self._agreed:
            self._agreed[capture, names] = _can_be_capture_of(capture, names, self._columns)
        return self._agreed[capture, names]


def _can_be_capture_of(capture: Capture, names: tuple[int, ...], columns: Columns) -> bool:
    """Return False if kernels that a CUDA graph launched cannot come from this recorded capture of a graph.

    ``names`` are the launched kernels, in the same order as the operators in the capture.  The two do not fit if

    * a matrix product or convolution in the capture has only kernels that compute neither, or
    * an elementwise operator in the capture has a kernel that computes a matrix product or convolution.
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


def _with_captures(source: Source, own: Read, beside: ReadBeside) -> Iterator[Read]:
    """Yield the traces that may show how the replayed CUDA graphs were captured.

    They are this trace, and the traces of the same rank in its folder.
    """
    if own[0].captures:
        yield own
    rank = _rank(source)
    for number, other in enumerate(source.beside()):
        if number >= _MOST_BESIDE:
            return
        if other.name.endswith(".json") and _rank(other) == rank and _has_captures(other):
            yield beside(other)


def _rank(source: Source) -> bytes | None:
    with source.open() as stream:
        head = stream.read(64 << 10)
    match = _RANK.search(head)
    return match[1] if match else None


def _has_captures(source: Source) -> bool:
    held = b""
    with source.open() as stream:
        while data := stream.read(1 << 20):
            held = held[1 - len(CAPTURE) :] + data
            if CAPTURE in held:
                return True
    return False


def is_capture(columns: Columns, header: Mapping[str, Any]) -> bool:
    """Return True if a trace only shows how a CUDA graph was captured, and not the job's work.

    The header may say so.  Otherwise the trace must replay no graph, and its kernels must belong to the capture or its
    warm-up.
    """
    if GRAPH in header:
        return True
    if not columns.captures or any(LAUNCH.match(columns.names[name]) for name in set(columns.call_name)):
        return False
    kinds = [kind for each in captures_of(columns) for kind in each.kinds]
    # It is a capture if more kernels were captured than ran, or if most kernels ran for a warm-up, or if all ran within
    # an annotation of the capture.
    if not kinds or len(kinds) > len(columns.kernel_id) or _warm_up(columns, frozenset(kinds)):
        return bool(kinds)
    named = {i for i in set(columns.annotation_name) if _NAMED.match(columns.names[i])}
    rows = zip(columns.annotation_name, columns.annotation_start, columns.annotation_us, strict=True)
    spans = [(start, start + us) for name, start, us in rows if name in named]
    return all(any(begin <= at <= end for begin, end in spans) for at in columns.kernel_start)


def _warm_up(columns: Columns, kinds: Collection[int]) -> bool:
    """Return True if most kernels of a trace ran for a warm-up before a capture, and no step is marked.

    ``kinds`` are the operators that were captured.
    """
    if any(MARK.match(name) for name, *_ in columns.marks) or columns.steps_begin is not None:
        return False
    # Engines run a model once or twice before they capture it. SGLang does so before each capture. Such a kernel begins
    # before the end of the last capture, and belongs to an operator whose kind was captured.
    last = max((end for _, end in captured(columns)), default=-math.inf)
    mine = {id for id, kind in zip(columns.op_id, columns.op_kind, strict=True) if kind in kinds}
    rows = zip(columns.kernel_id, columns.kernel_start, strict=True)
    warming = sum(start < last and id in mine for id, start in rows)
    return 2 * warming > len(columns.kernel_id)


def captured(columns: Columns) -> list[tuple[float, float]]:
    """Return the times during which CUDA graphs were captured, each as its beginning and end in µs."""
    if not columns.captures:
        return []
    at: dict[bool, list[float]] = {True: [], False: []}
    for name, start in zip(columns.call_name, columns.call_start, strict=True):
        text = columns.names[name]
        if (begins := _BEGIN.match(text) is not None) or _END.match(text):
            at[begins].append(start)
    ends = sorted(at[False])
    spans = ((begin, next((end for end in ends if end > begin), None)) for begin in sorted(at[True]))
    return [(begin, end) for begin, end in spans if end is not None]


def captures_of(columns: Columns) -> Iterator[Capture]:
    """Find the CUDA graphs that were captured in a trace, and yield each with its kernels and operators."""
    kinds = dict(zip(columns.op_id, columns.op_kind, strict=True))
    ran = {*columns.kernel_correlation}
    launches: dict[Thread, list[tuple[float, int, int, int]]] = defaultdict(list)
    begins: dict[Thread, list[float]] = defaultdict(list)
    ends: dict[Thread, list[float]] = defaultdict(list)
    calls = (columns.call_name, columns.call_thread, columns.call_start, columns.call_id, columns.call_kernel)
    for name, thread, at, id, kernel, correlation in zip(*calls, columns.call_correlation, strict=True):
        text, (pid, tid) = columns.names[name], columns.threads[thread]
        place = (pid, tid if text.startswith("hip") else "")
        if kernel >= 0 or _LAUNCHES.match(text):
            launches[place].append((at, id, kernel, correlation))
        elif _BEGIN.match(text):
            begins[place].append(at)
        elif _END.match(text):
            ends[place].append(at)
    nameless = columns.kind(columns.text(""))
    for place, starts in begins.items():
        for start in starts:
            end = min((x for x in ends[place] if x > start), default=None)
            within = [x for x in launches[place] if end is not None and start < x[0] < end and x[3] not in ran]
            within.sort(key=lambda x: x[0])
            if within:
                ids = [id for _, id, _, _ in within]
                names = tuple(kernel for _, _, kernel, _ in within)
                yield Capture(
                    names if min(names) >= 0 else (),
                    tuple(kinds.get(id, nameless) if id >= 0 else nameless for id in ids),
                    tuple(map({id: number for number, id in enumerate(dict.fromkeys(ids))}.__getitem__, ids)),
                )
