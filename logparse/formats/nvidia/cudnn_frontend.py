"""The log of cuDNN's frontend library, which PyTorch 2 calls: which plan each graph got.

Produced by ``CUDNN_FRONTEND_LOG_INFO=1 CUDNN_FRONTEND_LOG_FILE=stderr`` (or ``stdout``, or a file's name)::

    [cudnn_frontend]                CUDNN_BACKEND_TENSOR_DESCRIPTOR :
                                       Datatype: ["FLOAT"]
                                       Id: 120
                                       …
                                       Dim [ 4,32,28,28 ]
                                       Str [ 25088,784,28,1 ]
    [cudnn_frontend] CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR : Datatype: ["FLOAT"] Mode: ["CROSS_CORRELATION"] Num
    Dimensions: 2 PadLower [ 1,1 ] PadUpper [,1,1 ] Dilation [,1,1 ] Stride [,1,1]
    [cudnn_frontend] CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR has 1 operations.
    Tag: ConvFwd_
    [cudnn_frontend] CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR : ConvFwd_eng70_k2=12_k18=0, numeric_notes:[]
    behavior_notes:[] workSpaceSize: 0
    [cudnn_frontend] CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR : has 3 data pointers

The last line is written by every execution and does not name the plan, and a framework keeps plans: so the first
execution of each graph is a call *of unknown count*, and later ones are messages.  Where several plans were built for a
graph (benchmark mode) the solution is unknown.  A graph of several operations is a message.  No process is named.
Which of the three tensors is x, w and y follows from their sizes, which only fit together in one way (PyTorch's
numbers, 120, 119 and 121, decide where they fit in several).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from logparse.formats.format import BlockFormat, Line, Outcome
from logparse.formats.nvidia.graph import Operator, Tensor, convolution, numbers
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.model import Call, Direction, Message, Record, Reject, Solution

CATEGORY = "cudnn"
_MARK = "[cudnn_frontend]"
_TENSOR = regex(r"\[cudnn_frontend\] +CUDNN_BACKEND_TENSOR_DESCRIPTOR :")
_PART = regex(
    r" +(?:(Datatype|Id|reorder_type): |(Dims?|Str) |(?:VectorCount|isVirtual|isByValue|Alignment): |vectorDimension )"
)
_CONVOLUTION = regex(
    r"\[cudnn_frontend\] CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR : .*Mode: \[\"(\w+)\"\]"
    r".* PadLower (\[[\d, ]*\]) PadUpper (\[[\d, ]*\]) Dilation (\[[\d, ]*\]) Stride (\[[\d, ]*\])"
)
_GRAPH = regex(r"\[cudnn_frontend\] CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR has (\d+) operations\.")
_TAG = regex(r"Tag: (\w+)")
_PLAN = regex(
    r"\[cudnn_frontend\] CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR : [A-Za-z_]*?_(eng\w[\w=]*),.* workSpaceSize: (\d+)"
)
_EXECUTED = regex(r"\[cudnn_frontend\] CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR : has \d+ data pointers")
_DIRECTIONS: Mapping[str, Direction] = {"ConvFwd_": "F", "ConvBwdData_": "B", "ConvBwdFilter_": "W"}
_PYTORCH = ("120", "119", "121")
"""The numbers that PyTorch gives to x, w and y: the codes of these letters (aten/src/ATen/native/cudnn/Conv_v8.cpp)."""


@dataclass
class _Graph:
    """The parts of a graph as far as they were printed."""

    tensors: list[dict[str, str]] = field(default_factory=list)
    operator: Operator | None = None
    operations: int = 0
    tag: str | None = None
    plans: list[tuple[str, int]] = field(default_factory=list)


class _Reader:
    def __init__(self) -> None:
        self._graph = _Graph()
        self._in_tensor = False
        self._wants_tag = False

    @property
    def awake(self) -> bool:
        return self._in_tensor or self._wants_tag

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip("\r")
        if text.startswith(_MARK):
            self._in_tensor = self._wants_tag = False
            return self._marked(text)
        if self._wants_tag and (tag := _TAG.match(text)):
            self._wants_tag, self._graph.tag = False, tag[1]
            return Outcome("message")
        if self._in_tensor and (part := _PART.match(text)):
            name = part[1] or part[2]
            if name:
                self._graph.tensors[-1][name] = text[part.end() :].strip()
            self._in_tensor = part[1] != "reorder_type"
            return Outcome("message")
        return None

    def close(self) -> Iterable[Record]:
        return ()

    def _marked(self, text: str) -> Outcome:
        graph = self._graph
        if _TENSOR.match(text):
            if graph.plans or graph.tag is not None:  # of the next graph
                graph = self._graph = _Graph()
            graph.tensors.append({})
            self._in_tensor = True
        elif found := _CONVOLUTION.match(text):
            before, after, dilation, stride = (numbers(found[i]) for i in (2, 3, 4, 5))
            graph.operator = Operator(before, after, stride, dilation, found[1] == "CROSS_CORRELATION")
        elif found := _GRAPH.match(text):
            graph.operations, self._wants_tag = int(found[1]), True
        elif found := _PLAN.match(text):
            graph.plans.append((found[1], int(found[2])))
        elif _EXECUTED.match(text):
            return self._executed(text)
        else:
            return Outcome("message", [Message(category=CATEGORY, text=text[len(_MARK) :].strip())])
        return Outcome("message")

    def _executed(self, text: str) -> Outcome:
        graph, self._graph = self._graph, _Graph()
        direction = _DIRECTIONS.get(graph.tag or "")
        if graph.operations != 1 or direction is None:
            return Outcome("message", [Message(category=CATEGORY, text=text[len(_MARK) :].strip())])
        try:
            problem = convolution(direction, *_tensors(graph), _operator(graph))
        except ValueError as error:
            return Outcome("reject", [Reject(f"{graph.tag}: {error}")])
        one = graph.plans[0] if len(graph.plans) == 1 else None
        solution, workspace = (Solution("cudnn", one[0]), one[1]) if one else (None, None)
        call = Call(problem=problem, category=CATEGORY, count=None, solution=solution, workspace_bytes=workspace)
        return Outcome("call", [call])


def _operator(graph: _Graph) -> Operator:
    if graph.operator is None:
        raise ValueError("no description of the convolution")
    return graph.operator


def _tensors(graph: _Graph) -> tuple[Tensor, Tensor, Tensor]:
    """x, w and y of a graph's three tensors."""
    if len(graph.tensors) != 3:
        raise ValueError(f"{len(graph.tensors)} tensors")
    held = {part.get("Id", ""): _tensor(part) for part in graph.tensors}
    operator = _operator(graph)
    fitting = [names for names in permutations(held, 3) if operator.fits(*(held[name] for name in names))]
    if len(fitting) > 1 and _PYTORCH in fitting:
        fitting = [_PYTORCH]
    if not fitting:
        raise ValueError("the tensors do not fit the convolution")
    if len(fitting) > 1:
        raise ValueError("it is not clear which tensor is which")
    x, w, y = (held[name] for name in fitting[0])
    return x, w, y


def _tensor(parts: Mapping[str, str]) -> Tensor:
    dims, strides = numbers(parts.get("Dim", "")), numbers(parts.get("Str", ""))
    if len(dims) != len(strides) or len(dims) < 3:
        raise ValueError("a tensor without sizes or strides")
    return Tensor(parts.get("Datatype", "").strip('[]" '), dims, strides)


_MARKERS = (b"[cudnn_frontend]",)

FORMAT = BlockFormat(
    name="cudnn-frontend",
    about="log of cuDNN's frontend (CUDNN_FRONTEND_LOG_INFO=1): the plan of each convolution",
    markers=_MARKERS,
    begin=ranked(_MARKERS, _Reader),
)
