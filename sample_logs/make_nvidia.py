"""Makes ``sample_logs/nvidia/``: run it from anywhere, the files are the same every time.

It writes the grammar of cuBLASLt's and cuDNN's logs from its own understanding and imports nothing of
logparse, so that the samples are evidence independent of the readers.  ``sample_logs/nvidia/README.md`` describes
each file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

FOLDER = Path(__file__).parent / "nvidia"
PID, CLOCK = 5150, "2026-02-11 10:42:07"


@dataclass(frozen=True)
class Gemm:
    """One product of a small training job: classic, or by cublasLtMatmul with an epilogue."""

    ta: str
    tb: str
    m: int
    n: int
    k: int
    type: str  # R_16BF …
    calls: int
    algo: str
    batch: int = 1
    epilogue: str = ""
    tf32: bool = False
    workspace: int = 0

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of A, B and C as they lie in memory; a leading dimension is the number of rows."""
        a = (self.m, self.k) if self.ta == "N" else (self.k, self.m)
        b = (self.k, self.n) if self.tb == "N" else (self.n, self.k)
        return [a, b, (self.m, self.n)]

    @property
    def strides(self) -> list[int]:
        return [rows * columns for rows, columns in self.shapes]


HOPPER = (
    "algoId=66 tile=MATMUL_TILE_128x256 stages=MATMUL_STAGES_64xAUTO customOption=4 clusterShape=CLUSTER_SHAPE_2x1x1"
)
SIMT = "algoId=55 tile=MATMUL_TILE_64x64 stages=MATMUL_STAGES_8x3"
SPLIT = SIMT + " reductionScheme=REDUCTION_SCHEME_COMPUTE_TYPE numSplitsK=4"
JOB = (
    Gemm("T", "N", 3072, 1024, 768, "R_16BF", 4, HOPPER, epilogue="EPILOGUE_BIAS", workspace=1048576),
    Gemm("N", "N", 768, 1024, 3072, "R_16BF", 4, HOPPER),
    Gemm("N", "T", 768, 3072, 1024, "R_16BF", 4, HOPPER),
    Gemm("N", "N", 128, 128, 64, "R_16BF", 8, HOPPER, batch=24),
    Gemm("T", "N", 512, 300, 256, "R_16F", 2, HOPPER),
    Gemm("N", "N", 512, 300, 256, "R_32F", 2, SPLIT, workspace=3933519),
    Gemm("N", "N", 512, 300, 256, "R_32F", 1, SIMT, tf32=True),
    Gemm("N", "N", 96, 40, 64, "R_64F", 3, SIMT, batch=6),
    Gemm("N", "C", 128, 128, 256, "C_32F", 1, SIMT, tf32=True),
)
LETTERS = {"R_32F": "SSS", "R_16F": "HSH", "R_16BF": "TST", "R_64F": "DDD", "C_32F": "CCC"}


def compute_of(g: Gemm) -> str:
    return "COMPUTE_64F" if g.type == "R_64F" else "COMPUTE_32F_FAST_TF32" if g.tf32 else "COMPUTE_32F"


# ------------------------------------------------------------------------------------------------------- cuBLASLt


def layout(g: Gemm, i: int) -> str:
    rows, columns = g.shapes[min(i, 2)]
    batch = f" batchCount={g.batch} stridedBatchOffset={g.strides[min(i, 2)]}" if g.batch > 1 else ""
    return f"[type={g.type} rows={rows} cols={columns} ld={rows}{batch}]"


def cublaslt(g: Gemm, thread: int) -> list[str]:
    """The heuristic's query and its answer, the call's Api line and its Trace line."""
    name = "cublasLtMatmul" if g.epilogue else f"cublasLt{LETTERS[g.type]}Matmul"
    layouts = " ".join(f"{x}desc={layout(g, i)}" for i, x in enumerate("ABCD"))
    scale = g.type if g.type in ("C_32F", "R_64F") else "R_32F"
    words = [f"computeType={compute_of(g)}", f"scaleType={scale}"]
    words += [f"transa=OP_{g.ta}"] if g.ta != "N" else []
    words += [f"transb=OP_{g.tb}"] if g.tb != "N" else []
    words += [f"epilogue={g.epilogue} biasPointer=0x7f12a0e85a00"] if g.epilogue else ["smCountTarget=132"]
    desc = f"computeDesc=[{' '.join(words)}]"
    data = " ".join(f"{x}=0X7F12A{i}000000 {x}desc={layout(g, i)}" for i, x in enumerate("ABCD"))
    head = f"[{CLOCK}][cublasLt][{thread}]"
    ids = g.algo.split()[0].removeprefix("algoId=")
    space = f"workSpace=0X{'7F12C4000000' if g.workspace else '0'} workSpaceSizeInBytes={g.workspace}"
    out = [
        f"{head}[Api][{name}AlgoGetHeuristic] {layouts} preference=[maxWavesCount=0.0] {desc}",
        f"{head}[Info][{name}AlgoGetHeuristic]  heuristicResults=[{ids}]",
    ]
    if g.n % 8 and g.type == "R_16F":
        what = f"The number of rows in matrix B ({g.n}) is not 8 aligned. To achieve better performance, you may "
        out.append(f"{head}[Hint][{name}AlgoGetHeuristic] {what}consider zero-padding matrix B to make it so.")
    trace = f"{head}[Trace][{name}] {data} {desc} algo=[{g.algo}] {space} beta=0 outOfPlace=0 stream=0X0"
    return out + [f"{head}[Api][{name}] A=0X7F12A0000000 Adesc=0X7FFCE6E47F70 {space} stream=0X0", trace] * g.calls


# --------------------------------------------------------------------------------------------------------- cuBLAS


# ---------------------------------------------------------------------------------------------------------- cuDNN


@dataclass(frozen=True)
class Conv:
    """One convolution: sizes of x, filters, and the plans of its forward pass and its two gradients."""

    x: tuple[int, ...]
    k: int
    filter: tuple[int, ...]
    pad: tuple[int, ...]
    stride: tuple[int, ...]
    type: str
    last: bool  # channels last
    plans: tuple[str, str, str]
    groups: int = 1
    dilation: int = 1

    @property
    def tensors(self) -> dict[str, tuple[tuple[int, ...], list[int]]]:
        out = tuple(
            (i + 2 * p - self.dilation * (f - 1) - 1) // s + 1
            for i, f, p, s in zip(self.x[2:], self.filter, self.pad, self.stride, strict=True)
        )
        sizes = {"x": self.x, "w": (self.k, self.x[1] // self.groups, *self.filter), "y": (self.x[0], self.k, *out)}
        return {name: (size, self._strides(size)) for name, size in sizes.items()}

    def _strides(self, size: tuple[int, ...]) -> list[int]:
        order = (0, *range(2, len(size)), 1) if self.last else tuple(range(len(size)))
        return [prod(size[axis] for axis in order[order.index(i) + 1 :]) for i in range(len(size))]


PLANS = ("eng70_k2=12_k18=0", "eng25_k2=2_k3=0", "eng68_k2=7_k13=0_k18=1_k25=0_k27=1_k28=2")
CONVS = (
    Conv((8, 64, 56, 56), 128, (3, 3), (1, 1), (2, 2), "HALF", True, PLANS),
    Conv(
        (8, 64, 56, 56), 256, (1, 1), (0, 0), (1, 1), "BFLOAT16", True, ("eng0", "eng22_k2=5_k13=1_k14=3_k23=0", "eng0")
    ),
    Conv((8, 96, 28, 28), 96, (7, 7), (3, 3), (1, 1), "FLOAT", False, PLANS, groups=96),
    Conv((2, 8, 16, 16, 16), 16, (3, 3, 3), (1, 1, 1), (1, 1, 1), "FLOAT", False, PLANS),
    Conv((4, 32, 30, 30), 32, (3, 3), (2, 2), (1, 1), "HALF", False, PLANS, dilation=2),
)
KINDS = (("FORWARD", "ConvFwd", ("x", "w", "y")), ("BACKWARD_DATA", "ConvBwdData", ("dx", "w", "dy")),
         ("BACKWARD_FILTER", "ConvBwdFilter", ("x", "dw", "dy")))  # fmt: skip
KNOBS = {2: "TILE_SIZE", 3: "USE_TEX", 13: "TILEK", 14: "STAGES", 18: "IDX_MODE", 23: "SPECFILT", 25: "WORKSPACE",
         27: "TILE_CGA_M", 28: "TILE_CGA_N"}  # fmt: skip
CODES = {"FLOAT": 0, "HALF": 2, "BFLOAT16": 9}


def cudnn_block(function: str, lines: Sequence[str], level: str = "i", pid: int = PID, gpu: str = "NULL") -> list[str]:
    return [
        f"{level.upper()}! CuDNN (v91900 56) function {function}() called:",
        *(f"{level}! {line}" for line in lines),
        *([""] if level == "w" else []),
        f"{level}! Time: {CLOCK.replace(' ', 'T')}.009643 (0d+0h+0m+1s since start)",
        f"{level}! Process={pid}; Thread={pid}; GPU={gpu}; Handle=NULL; StreamId=NULL.",
        "",
        "",
    ]


def executed(conv: Conv, kind: int) -> list[str]:
    """The execution of a plan, and its answer."""
    name, _, roles = KINDS[kind]
    engine, *knobs = conv.plans[kind].removeprefix("eng").split("_k")
    deep = " " * 24
    lines = [
        "    executionPlan: type=CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:",
        "        engcfg: type=CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:",
        "            engine: type=CUDNN_BACKEND_ENGINE_DESCRIPTOR:",
        "                opGraph: type=CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:",
        f"                    operation: type=CUDNN_BACKEND_OPERATION_CONVOLUTION_{name}_DESCRIPTOR:",
    ]
    tensors = []
    for role in roles:
        size, strides = conv.tensors[role[-1]]
        tensors.append(
            [
                f"{deep}{role}Desc: type=CUDNN_BACKEND_TENSOR_DESCRIPTOR:",
                f"{deep}    type: type=cudnnDataType_t; val=CUDNN_DATA_{conv.type} ({CODES[conv.type]});",
                f"{deep}    nbDims: type=int; val={len(size)};",
                f"{deep}    dimA: type=int; val=[{','.join(map(str, size))}];",
                f"{deep}    strideA: type=int; val=[{','.join(map(str, strides))}];",
                f"{deep}    uid: type=int64_t; val={ {'x': 120, 'w': 119, 'y': 121}[role[-1]] };",
                f"{deep}    isVirtual: type=bool; val=false;",
            ]
        )
    pad, stride = (f"[{','.join(map(str, part))}]" for part in (conv.pad, conv.stride))
    lines += [*tensors[0], *tensors[1]]
    lines += [
        f"{deep}convDesc: type=CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:",
        f"{deep}    computeType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);",
        f"{deep}    mode: type=cudnnConvolutionMode_t; val=CUDNN_CROSS_CORRELATION (1);",
        f"{deep}    nbDims: type=int; val={len(conv.pad)};",
        f"{deep}    upperPadA: type=int; val={pad};",
        f"{deep}    lowerPadA: type=int; val={pad};",
        f"{deep}    strideA: type=int; val={stride};",
        f"{deep}    dilationA: type=int; val=[{','.join([str(conv.dilation)] * len(conv.pad))}];",
        *tensors[2],
        f"{deep}alpha: type=float; val=1;",
        f"                engine_id: type=int; val={engine};",
    ]
    if knobs:
        lines.append("                knobDesc: type=cudnnBackendDescriptor_t:")
        pairs = [knob.partition("=") for knob in knobs]
        lines += [
            f"                    CUDNN_KNOB_TYPE_{KNOBS[int(n)]}: type=int; val={value};" for n, _, value in pairs
        ]
    lines.append("    variantPack: type=CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:")
    lines.append("        Uid=120: location=dev; addr=0x7efac7e00000;")
    done = cudnn_block("cudnnBackendExecute", ["    status: type=cudnnStatus_t; val=CUDNN_STATUS_SUCCESS (0);"])
    return cudnn_block("cudnnBackendExecute", lines, gpu="0") + done


WARNING = "        Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: (!srcDesc->isNHWC()) || (!dstDesc->isNHWC())"


def cudnn_level3() -> list[str]:
    out = cudnn_block("cudnnGetVersion", [])
    for i, conv in enumerate(CONVS):
        for kind in range(3):
            out += executed(conv, kind) * (3 - i % 3)
    return out + cudnn_block("cudnnBackendExecute", [WARNING] * 2, "w")


def cudnn_level2() -> list[str]:
    reason = "cuDNN Library configuration is set to AUTO. Automatically configuring the library mode to FULL."
    first = cudnn_block("cudnnBackendFinalize", [f"        Warning: CUDNN_STATUS_SUCCESS; Reason: {reason}"], "w")
    return ["", *first, *cudnn_block("cudnnBackendExecute", [WARNING] * 8, "w")]


def cudnn_damaged() -> list[str]:
    """An output size that does not follow, one without strides, and a block that another begins in."""
    good = executed(CONVS[0], 0)
    wrong = [line.replace("[8,128,28,28]", "[8,128,29,28]") for line in good]
    lacking = [line for line in good if "strideA: type=int; val=[200704" not in line]
    return [*wrong, *lacking, *good[:12], *good]


def main() -> None:
    files = {
        f"cublaslt_{PID}.log": [line for g in JOB for line in cublaslt(g, PID)],
        "cudnn_level3.log": cudnn_level3(),
        "cudnn_level2.log": cudnn_level2(),
        "cudnn_damaged.log": cudnn_damaged(),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, lines in files.items():
        (FOLDER / name).write_bytes("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()
