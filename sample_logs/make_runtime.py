"""Makes ``sample_logs/runtime/``: run it from anywhere, the files are always the same.

What libraries that tune themselves at run time write: hipBLASLt's tuning cache and its lines.  It
writes them from the writers' sources (see the folder's README) and imports nothing of logparse.
"""

from __future__ import annotations

from pathlib import Path

OUT = Path(__file__).parent / "runtime"
COLUMNS = (
    "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,"
    "b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,"
    "rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us,solution_index,kernel_name,solution_name,gcnArchName,CUs,"
    "compute_input_type_a,lde,stride_e,uniform_summation_order,git_version,schema_version"
)
KERNEL = "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x128x64"


def row(m: int, n: int, k: int, us: float, index: str, schema: str) -> str:
    """A product of transposed A, as the cache keeps it."""
    cells: list[object] = ["T", "N", 0, 1, m, n, k, 1, k, k * m, 0, k, k * n, m, m * n, m, m * n]
    cells += ["bf16_r"] * 4 + ["f32_r", 0, 0, 0, 0, 0, "none", 0, "f32_r", 512, 0, 0, us, index]
    cells += [KERNEL, f"{KERNEL}_WGM8", "gfx942:sramecc+:xnack-", 304, "bf16_r", 0, 0, 0, "3b3d59eb", schema]
    return ",".join(map(str, cells))


def cache() -> list[str]:
    """Rows of schema 1 and 2, one of a later schema, one cut off, and a header that lost its row."""
    return [
        COLUMNS, row(7168, 256, 2048, 21.5, "302128", "1"),
        COLUMNS, row(4096, 512, 1024, 18.25, "302200", "2"),
        COLUMNS, row(4096, 64, 1024, 7.5, "302201", "99"),
        COLUMNS,
        COLUMNS, row(128, 128, 128, 3.5, "17", "1")[:120],
    ]  # fmt: skip


def log() -> list[str]:
    """A process that tunes two shapes."""
    return [
        "tuning-cache: mode=tune path=/srv/tuning.txt load=not-found loaded=0",
        "tuning-cache: tuning-start m=7168 n=256 k=2048 batch=1 trans=TN types=bf16_r/bf16_r; this call will block"
        " until it finishes",
        "tuning-cache: tuning-done winner=302128 elapsed=78.9s persisted=yes",
        "[rank1]: tuning-cache: tuning-start m=64 n=64 k=512 batch=16 trans=NT types=f16_r/f16_r; this call will block",
        "tuning-cache: tuning-skipped in-place C==D with nonzero beta cannot be measured without mutating its input;"
        " using default selection",
        "tuning-cache: tuning-start m=64 n=64",
        "the tuning-cache: of nobody",
        "tuning-cache: summary shapes=2 matched=1 fellback=1 tuned=1 invalidated=0",
    ]


def main() -> None:
    """Write all files."""
    OUT.mkdir(exist_ok=True)
    files = {
        "hipblaslt_cache.txt": "".join(f"{line}\n" for line in cache()),
        "hipblaslt_cache.log": "".join(f"{line}\n" for line in log()),
    }
    for name, text in files.items():
        (OUT / name).write_text(text, encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
