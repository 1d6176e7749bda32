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
    i! Time: 2026-11-22T01:25:17 elapsed from start 0.050000 minutes or 3.000000 seconds
    i! Process=445; Thread=445; GPU=0; Handle=0x3b5201a0; StreamId=(nil) (defaultStream).

A block of level W or E holds warnings or errors instead of arguments, each of which is a message.  Arguments are nested
by indentation; here the path to one is joined by dots (``executionPlan.engcfg.engine.engine_id``).

A call is an executed plan whose graph is one convolution; its engine and knobs are the solution.  The block with the
answer (``status``), the internal call of the same plan and everything else are messages; so is the execution of a graph
of several operations.  Functions of the API before graphs (``cudnnConvolutionForward`` …) are messages, too.
Seen of cuDNN 9.19 with PyTorch 2.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logparse.formats.format import BlockFormat, BlockReader, Line, Outcome
from logparse.formats.patterns import regex
from logparse.formats.ranks import ranked
from logparse.model import Call, ConvProblem, Direction, Fact, Message, Record, Reject, Solution

CATEGORY = "cudnn"
_ENTRY = regex(r"( +)(\w[^:]*?|\[\d+\]): (?:type=[^;]*?(?:; val=(.*?);?|:)|(.*))\s*\Z")
_PROCESS = regex(r" Process=(\d+); Thread=\d+; GPU=(\d+|NULL);")
_OPENING = regex(r"(?P<level>[IWE])! CuDNN \(v(?P<version>[\d ]+)\) function (?P<function>\w+)\(\) called:\s*\Z")
_CALL = "cudnnBackendExecute"
_LAST = " Process="
"""How the last line of a block begins, at which its call is counted; all its other lines are messages."""
_REST_OF_A_WARNING = " at: "
_PATIENCE = 50
"""Lines of other writers that may stand inside a block."""
_ENGINE = "executionPlan.engcfg.engine"
_NODE = f"{_ENGINE}.opGraph.operation"
_KNOB = f"{_ENGINE}.knobDesc.CUDNN_KNOB_TYPE_"
_NODES: tuple[tuple[Direction, str, str, str], ...] = (
    ("F", "xDesc", "wDesc", "yDesc"),
    ("B", "dxDesc", "wDesc", "dyDesc"),
    ("W", "xDesc", "dwDesc", "dyDesc"),
)
"""Directions by the tensors that their nodes name."""


# ----------------------------------------------------------------------------------------------- blocks


@dataclass
class Block:
    """One call of the API: its function, its arguments, and which process called it on which device."""

    function: str
    level: str
    values: dict[str, str] = field(default_factory=dict)
    repeated: bool = False
    """Whether a path stood twice: a list of descriptors, or two blocks in one another."""
    pid: int | None = None
    gpu: int | None = None
    _path: list[tuple[int, str]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Take an argument's line, without its mark."""
        entry = _ENTRY.match(text)
        if entry is None:
            return
        depth, name, value, other = len(entry[1]), entry[2], entry[3], entry[4]
        while self._path and self._path[-1][0] >= depth:
            self._path.pop()
        self._path.append((depth, name))
        path = ".".join(part for _, part in self._path)
        self.repeated |= path in self.values
        self.values[path] = value if value is not None else other or ""


class _Reader(BlockReader):
    """The block that is open in one stream."""

    def __init__(self) -> None:
        self._block: Block | None = None
        self._patience = 0
        self._version: str | None = None
        self._lost: list[Record] = []

    @property
    def awake(self) -> bool:
        return self._block is not None

    def take(self, line: Line) -> Outcome | None:
        text = line.text.rstrip("\r")
        opening = _OPENING.match(text)
        if opening is not None:
            return self._open(opening, text)
        block = self._block
        if block is None:
            return None
        if text.startswith(_REST_OF_A_WARNING):
            return Outcome("message")
        if not text.startswith(block.level.lower() + "!"):
            self._patience -= bool(text)
            if self._patience <= 0:
                self._lose()
            return None
        body = text[2:]
        if body.startswith(_LAST):
            self._block = None
            return self._closed(block, _PROCESS.match(body))
        if body.startswith(" Time: "):
            return Outcome("message")
        if block.level != "I":
            warning = Message(category=CATEGORY, function=block.function, text=body.strip())
            return Outcome("message", [warning])
        if block.function == _CALL:
            block.add(body)
        return Outcome("message")

    def close(self) -> Iterable[Record]:
        self._lose()
        return self._lost

    def _open(self, opening: re.Match[str], text: str) -> Outcome:
        self._lose()
        records, self._lost = self._lost, []
        function, version = opening["function"], opening["version"]
        self._block, self._patience = Block(function, opening["level"]), _PATIENCE
        if version != self._version:
            self._version = version
            records += [Fact("cudnn_version", version.partition(" ")[0]), Fact("backend", "CUDA")]
        if opening["level"] == "I" and function != _CALL:
            records.append(Message(category=CATEGORY, function=function, text=text[2:].strip()))
        return Outcome("message", records)

    def _closed(self, block: Block, process: re.Match[str] | None) -> Outcome:
        if process is not None:
            block.pid = int(process[1])
            block.gpu = int(process[2]) if process[2].isdecimal() else None
        if block.level != "I" or block.function != _CALL:
            return Outcome("message")
        try:
            call = read(block)
        except ValueError as error:
            return Outcome("reject", [Reject(f"{block.function}: {error}")])
        if call is not None:
            return Outcome("call", [call])
        message = Message(category=CATEGORY, function=block.function, text="no single convolution")
        return Outcome("message", [message])

    def _lose(self) -> None:
        """Give up a block that is open."""
        if self._block is not None:
            text = "a call whose block has no end"
            self._lost.append(Message(category=CATEGORY, function=self._block.function, text=text))
            self._block = None


# --------------------------------------------------------------------------------------- convolutions


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


TYPES: Mapping[str, str] = {
    "FLOAT": "FP32",
    "DOUBLE": "FP64",
    "HALF": "FP16",
    "BFLOAT16": "BF16",
    "INT8": "INT8",
}
"""``cudnnDataType_t`` without ``CUDNN_DATA_``."""

_KNOBS = (
    "SPLIT_K SWIZZLE TILE_SIZE USE_TEX EDGE KBLOCK LDGA LDGB CHUNK_K SPLIT_H WINO_TILE MULTIPLY SPLIT_K_BUF TILEK"
    " STAGES REDUCTION_MODE CTA_SPLIT_K_MODE SPLIT_K_SLC IDX_MODE SLICED SPLIT_RS SINGLEBUFFER LDGC SPECFILT KERNEL_CFG"
    " WORKSPACE TILE_CGA TILE_CGA_M TILE_CGA_N BLOCK_SIZE OCCUPANCY ARRAY_SIZE_PER_THREAD NUM_C_PER_BLOCK SPLIT_COLS"
    " TILE_ROWS TILE_COLS LOAD_SIZE"
)
KNOBS: Mapping[str, int] = {name: number for number, name in enumerate(_KNOBS.split(" "))}
"""``cudnnBackendKnobType_t`` without ``CUDNN_KNOB_TYPE_`` (cudnn_graph.h); a plan's name has the numbers."""


class Tensor(NamedTuple):
    """Sizes and strides, batch and channels first, and the type's name."""

    type: str
    dims: Sequence[int]
    strides: Sequence[int]

    @property
    def layouts(self) -> set[str]:
        """NCHW, NHWC (with D of volumes), none or both of them: strides of sizes of 1 do not matter."""
        rank = len(self.dims)
        found = set()
        for name, order in (("NCHW", range(rank)), ("NHWC", (0, *range(2, rank), 1))):
            step, fits = 1, True
            for axis in reversed(order):
                fits &= self.dims[axis] == 1 or self.strides[axis] == step
                step *= self.dims[axis]
            if fits:
                found.add(name if rank == 4 else name.replace("H", "DH"))
        return found


class Operator(NamedTuple):
    """Padding (before and after), strides and dilations of a convolution, and whether it correlates."""

    before: Sequence[int]
    after: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    correlates: bool

    def fits(self, x: Tensor, w: Tensor, y: Tensor) -> bool:
        """Whether ``y`` is what the operator makes of ``x`` and ``w``."""
        ranks = {len(x.dims), len(w.dims), len(y.dims), *(len(part) + 2 for part in self[:4])}  # type: ignore[arg-type]
        if len(ranks) != 1 or not w.dims[1] > 0:
            return False
        channels = x.dims[0] == y.dims[0] and w.dims[0] == y.dims[1] and x.dims[1] % w.dims[1] == 0
        numbers = zip(x.dims[2:], w.dims[2:], self.before, self.after, self.stride, self.dilation, strict=True)
        return channels and list(y.dims[2:]) == [
            (i + p + q - d * (f - 1) - 1) // s + 1 if s else -1 for i, f, p, q, s, d in numbers
        ]


def convolution(direction: Direction, x: Tensor, w: Tensor, y: Tensor, operator: Operator) -> ConvProblem:
    """The forward problem of a node, and the direction that it computes.  Raises ValueError where they do not fit.

    A graph of one node has no bias.
    """
    rank = len(x.dims) - 2
    if rank not in (2, 3) or not operator.fits(x, w, y):
        raise ValueError("the tensors do not fit the convolution")
    values: dict[str, Any] = {"spatial": rank, "n": x.dims[0], "c": x.dims[1], "k": w.dims[0]}
    even = [p if p == q else None for p, q in zip(operator.before, operator.after, strict=True)]
    axes = "dhw"[3 - rank :]
    for stem, numbers in (
        ("", x.dims[2:]), ("filter_", w.dims[2:]), ("out_", y.dims[2:]), ("pad_", even),
        ("stride_", operator.stride), ("dilation_", operator.dilation),
    ):  # fmt: skip
        values |= {f"{stem}{axis}": number for axis, number in zip(axes, numbers, strict=True)}
    layouts = {"in_layout": x.layouts, "weights_layout": w.layouts, "out_layout": y.layouts}
    common = set.intersection(*layouts.values())
    values |= {name: _only(common or found) for name, found in layouts.items()}
    return ConvProblem(
        direction=direction, groups=x.dims[1] // w.dims[1], bias=0, mode="convolution" if operator.correlates else None,
        in_type=TYPES.get(x.type), weights_type=TYPES.get(w.type), out_type=TYPES.get(y.type), **values,
    )  # fmt: skip


def _only(found: set[str]) -> str | None:
    return next(iter(found)) if len(found) == 1 else None


def plan(engine: str, knobs: Mapping[str, str]) -> Solution:
    """The plan by engine and knobs, named as cuDNN's frontend names it: ``eng70_k2=12_k18=0``."""
    numbered = sorted((KNOBS.get(name, 10_000), name, value) for name, value in knobs.items())
    words = [f"k{number if name in KNOBS else name}={value}" for number, name, value in numbered]
    return Solution("cudnn", "_".join([f"eng{int(engine)}", *words]))


def numbers(text: str) -> list[int]:
    """``[4,32,28,28]`` as numbers.  Raises ValueError."""
    return [int(part) for part in re.findall(r"[^\[\], ]+", text)]


_MARKERS = (b"! CuDNN (v",)

FORMAT = BlockFormat(
    name="cudnn-log",
    about="cuDNN's log of its backend API (CUDNN_LOGLEVEL_DBG=2 or 3): warnings, executed convolutions",
    markers=_MARKERS,
    begin=ranked(_MARKERS, _Reader),
)
