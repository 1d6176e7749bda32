"""A convolution of cuDNN's graph API: its operation node as a problem, and the name of its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from logparse.model import ConvProblem, Direction, Solution

TYPES: Mapping[str, str] = {
    "FLOAT": "FP32",
    "DOUBLE": "FP64",
    "HALF": "FP16",
    "BFLOAT16": "BF16",
    "INT8": "INT8",
}
"""``cudnnDataType_t`` without ``CUDNN_DATA_``, which the frontend prints, too."""

_KNOBS = (
    "SPLIT_K SWIZZLE TILE_SIZE USE_TEX EDGE KBLOCK LDGA LDGB CHUNK_K SPLIT_H WINO_TILE MULTIPLY SPLIT_K_BUF TILEK"
    " STAGES REDUCTION_MODE CTA_SPLIT_K_MODE SPLIT_K_SLC IDX_MODE SLICED SPLIT_RS SINGLEBUFFER LDGC SPECFILT KERNEL_CFG"
    " WORKSPACE TILE_CGA TILE_CGA_M TILE_CGA_N BLOCK_SIZE OCCUPANCY ARRAY_SIZE_PER_THREAD NUM_C_PER_BLOCK SPLIT_COLS"
    " TILE_ROWS TILE_COLS LOAD_SIZE"
)
KNOBS: Mapping[str, int] = {name: number for number, name in enumerate(_KNOBS.split(" "))}
"""``cudnnBackendKnobType_t`` without ``CUDNN_KNOB_TYPE_`` (cudnn_graph.h); a plan's name has the numbers.

Those that a log of 115 calls has beside the frontend's names of the same plans agree.
"""


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
    """The plan by engine and knobs, named as the frontend does: ``eng70_k2=12_k18=0``."""
    numbered = sorted((KNOBS.get(name, 10_000), name, value) for name, value in knobs.items())
    words = [f"k{number if name in KNOBS else name}={value}" for number, name, value in numbered]
    return Solution("cudnn", "_".join([f"eng{int(engine)}", *words]))


def numbers(text: str) -> list[int]:
    """``[4,32,28,28]`` or the frontend's ``[,1,1 ]`` as numbers.  Raises ValueError."""
    return [int(part) for part in re.findall(r"[^\[\], ]+", text)]
