"""Write the sample log in ``sample_logs/nvidia/``. Run it from any folder; the file is always the same.

The sample is a log of cuBLASLt. Nothing of logparse is imported, so that a mistake in logparse's reader cannot be in
the sample, too. ``sample_logs/nvidia/README.md`` describes the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "nvidia"
PID, CLOCK = 5150, "2026-02-11 10:42:07"


@dataclass(frozen=True)
class Gemm:
    """One matrix product of a small training job.

    The job calls cuBLAS's classic interface for it, or ``cublasLtMatmul`` if it has an epilogue (such as a bias).
    """

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
        """Return the rows and columns of A, B and C in memory. The rows are also the leading dimensions."""
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
    """Return the lines that cuBLASLt logs for a product.

    First come a question to the heuristic that chooses a kernel, and its answer. Then there are an Api line and a Trace
    line for each call.
    """
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


def main() -> None:
    files = {
        f"cublaslt_{PID}.log": [line for g in JOB for line in cublaslt(g, PID)],
    }
    FOLDER.mkdir(exist_ok=True)
    for name, lines in files.items():
        (FOLDER / name).write_bytes("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()
