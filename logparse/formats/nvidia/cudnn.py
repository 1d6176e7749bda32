"""cuDNN's log of its backend API: warnings, and every convolution that was executed.

Produced by ``CUDNN_LOGLEVEL_DBG=2`` (warnings) or ``3`` (every call of the API: hundreds of blocks for each first
convolution of a shape) with ``CUDNN_LOGDEST_DBG=cudnn_%i.log`` (or ``stdout``, ``stderr``)::

    I! CuDNN (v91900 56) function cudnnBackendExecute() called:
    i!     executionPlan: type=CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    i!         engcfg: type=CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    i!             engine: type=CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    i!                 opGraph: type=CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
    i!                     operation: type=CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    i!                         xDesc: type=CUDNN_BACKEND_TENSOR_DESCRIPTOR:
    i!                             dimA: type=int; val=[4,32,28,28];
    …
    W! CuDNN (v91900 56) function cudnnBackendExecute() called:
    w!         Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: (!srcDesc->isNHWC()) || (!dstDesc->isNHWC())

A call is an executed plan whose graph is one convolution; its engine and knobs are the solution.  The block with the
answer (``status``), the internal call of the same plan and everything else are messages; so is the execution of a graph
of several operations.  Functions of the API before graphs (``cudnnConvolutionForward`` …) are messages, too.
Seen of cuDNN 9.19 with PyTorch 2.11.
"""

from __future__ import annotations

from collections.abc import Iterable

from logparse.formats.format import BlockFormat
from logparse.formats.nvidia.api_log import ApiLog, Block, Reader
from logparse.formats.nvidia.graph import Operator, Tensor, convolution, numbers, plan
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.model import Call, Direction, Fact, Record

CATEGORY = "cudnn"
_ENGINE = "executionPlan.engcfg.engine"
_NODE = f"{_ENGINE}.opGraph.operation"
_KNOB = f"{_ENGINE}.knobDesc.CUDNN_KNOB_TYPE_"
_NODES: tuple[tuple[Direction, str, str, str], ...] = (
    ("F", "xDesc", "wDesc", "yDesc"),
    ("B", "dxDesc", "wDesc", "dyDesc"),
    ("W", "xDesc", "dwDesc", "dyDesc"),
)
"""Directions by the tensors that their nodes name."""


def read(block: Block) -> Call | None:
    """The convolution of an execution.  Raises ValueError where a part of its node lacks or does not fit."""
    values = block.values
    if f"{_NODE}.convDesc" not in values or block.repeated:
        return None
    for direction, *names in _NODES:
        if all(f"{_NODE}.{name}" in values for name in names):
            x, w, y = (_tensor(block, name) for name in names)
            problem = convolution(direction, x, w, y, _operator(block))
            knobs = {name.removeprefix(_KNOB): value for name, value in values.items() if name.startswith(_KNOB)}
            solution = plan(_value(block, f"{_ENGINE}.engine_id"), knobs)
            return Call(problem=problem, category=CATEGORY, solution=solution, device=block.gpu, pid=block.pid)
    raise ValueError("a convolution without its tensors")


def _value(block: Block, name: str) -> str:
    value = block.values.get(name)
    if value is None:
        raise ValueError(f"no {name.rpartition('.')[2]}")
    return value


def _tensor(block: Block, name: str) -> Tensor:
    type_, dims, strides = (_value(block, f"{_NODE}.{name}.{part}") for part in ("type", "dimA", "strideA"))
    if len(numbers(dims)) != len(numbers(strides)):
        raise ValueError(f"{name} has other strides than sizes")
    return Tensor(type_.partition(" ")[0].removeprefix("CUDNN_DATA_"), numbers(dims), numbers(strides))


def _operator(block: Block) -> Operator:
    before, after, stride, dilation, mode = (
        _value(block, f"{_NODE}.convDesc.{part}") for part in ("lowerPadA", "upperPadA", "strideA", "dilationA", "mode")
    )
    lists = (numbers(before), numbers(after), numbers(stride), numbers(dilation))
    return Operator(*lists, mode.startswith("CUDNN_CROSS_CORRELATION"))


def _facts(version: str) -> Iterable[Record]:
    return (Fact("cudnn_version", version.partition(" ")[0]), Fact("backend", "CUDA"))


_LOG = ApiLog(
    category=CATEGORY,
    opening=regex(r"(?P<level>[IWE])! CuDNN \(v(?P<version>[\d ]+)\) function (?P<function>\w+)\(\) called:\s*\Z"),
    last=" Process=",
    is_call=lambda function: function == "cudnnBackendExecute",
    read=read,
    facts=_facts,
)
_MARKERS = (b"! CuDNN (v",)

FORMAT = BlockFormat(
    name="cudnn-log",
    about="cuDNN's log of its backend API (CUDNN_LOGLEVEL_DBG=2 or 3): warnings, executed convolutions",
    markers=_MARKERS,
    begin=ranked(_MARKERS, lambda: Reader(_LOG)),
)
