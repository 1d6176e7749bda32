"""Write the sample logs in ``sample_logs/rocblas/``. Run it from any folder; the files are always the same.

The samples are output of Tensile and error messages of the libraries, made from the libraries' source code (see the
folder's README). Nothing of logparse is imported, so that a mistake in logparse's readers cannot be in the samples,
too.
"""

from __future__ import annotations

import struct
from pathlib import Path

OUT = Path(__file__).parent / "rocblas"


def launch(kernel: str, arguments: list[tuple[str, int | float]]) -> list[str]:
    """Return the lines that Tensile prints about one launch of a kernel.

    There is a line for each argument, with its byte offsets, its bytes and its value.
    """
    lines, at = [f"Kernel {kernel}", " l(256, 1, 1) x g(12, 4, 1) = (3072, 4, 1)"], 0
    for name, value in arguments:
        wide = name in ("d", "c", "a", "b", "D", "C", "WS", "tensor2dSizeA", "tensor2dSizeB")
        data = struct.pack("<f" if name in ("alpha", "beta") else "<Q" if wide else "<I", value)
        shown = hex(int(value)) if wide and not name.startswith("tensor") else f"{value:g}"
        lines.append(f"[{at}..{at + len(data) - 1}] {name}: {data.hex(' ')} ({shown})")
        at += len(data)
    return lines


def numbered(*names: str, values: list[int]) -> list[tuple[str, int | float]]:
    return list(zip(names, values, strict=True))


def launches() -> list[str]:
    """Return Tensile's output about several kernel launches:

    - an ordinary product, twice
    - a product that is split along K, whose parts another kernel adds up
    - a product with preloaded arguments
    - a launch of hipBLASLt
    - a launch whose lines are cut off
    """
    outputs, inputs = ("strideD1", "strideD2", "strideC1", "strideC2"), ("strideA1", "strideA2", "strideB1", "strideB2")
    pointers = numbered("d", "c", "a", "b", values=[0x7F2A00018000, 0x7F2A00018000, 0x7F2A00028000, 0x7F2A00038000])
    sizes = numbered("size_0", "size_1", "size_2", "size_3", values=[96, 64, 1, 128])
    strides = numbered(*outputs, *inputs, values=[96, 1, 96, 1, 128, 1, 64, 1])
    scalars: list[tuple[str, int | float]] = [("alpha", 1.0), ("beta", 0.0)]
    tensors = numbered("tensor2dSizeA", "tensor2dSizeB", values=[12288, 8192])
    tail = "MI16x16x16x1_SN_1LDSB0_GSU1_GSUASB_GLS0_ISA942_IU1_K1_KLA_LBSPPA256"
    plain = launch(f"Cijk_Alik_Bjlk_BBS_BH_MT128x256x32_{tail}", [*tensors, *pointers, *scalars, *strides, *sizes])
    batched = numbered("size_0", "size_1", "size_2", "size_3", values=[96, 64, 3, 4096])
    scratch = numbered(
        *(name.replace("stride", "strideW_") for name in outputs), *inputs,
        values=[96, 6144, 96, 6144, 4096, 393216, 4100, 262400],
    )  # fmt: skip
    doubled: list[tuple[str, int | float]] = [("alpha", 1.0), ("beta", 2.0)]
    names = numbered("D", "WS", "C", values=[0x7F2A00018000, 0x7F2A00048000, 0x7F2A00058000])
    added = numbered(*outputs, "strideW1", "strideW2", values=[100, 6400, 100, 6400, 96, 6144])
    split = [
        *launch(
            f"Cijk_Alik_Bljk_HHS_BH_MT144x128x64_{tail.replace('GSU1_GSUASB', 'GSU4_GSUAMB')}",
            [*tensors, *pointers, *doubled, *scratch, *batched],
        ),
        *launch("Cijk_H_PostGSU4", [*names, *doubled, *added, *batched[:3], ("gsu", 4)]),
    ]
    preloaded = launch(
        f"Cijk_Ailk_Bljk_S_B_Bias_PKA1_MT64x64x16_{tail}",
        [
            *(*tensors, *pointers[2:], ("alpha", 1.0), *strides[4:], ("size_3", 128)),
            *(*pointers[:2], ("beta", 0.0), *strides[:4], *sizes[:3]),
        ],
    )
    other = launch("Cijk_Ailk_Bljk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT64x16x32_MI16x16x1", [("gemm_count", 1), *sizes])
    return [
        "loaded code object /opt/rocm/lib/rocblas/library/Kernels.so-000-gfx942.hsaco",
        *plain,
        "Occupancy = 2",
        *plain,
        *split,
        "step 1 took 12 ms",
        *preloaded,
        *other,
        *plain[:12],
    ]


def errors() -> list[str]:
    """Return a job's output with messages that the libraries print without being asked."""
    once = (
        "This message will be only be displayed once, unless the ROCBLAS_VERBOSE_{}_ERROR environment variable is set."
    )
    return [
        "step 1",
        "rocBLAS error: No hipBLASLt solution found",
        once.format("HIPBLASLT"),
        "",
        "rocBLAS warning: hipBlasLT failed, falling back to tensile. ",
        once.format("TENSILE"),
        "[rank1]: hipBLASLt error: Heuristic Fetch Failed!",
        'rocblaslt error: Cannot read "TensileLibrary_lazy_gfx1201.dat": No such file or directory',
        'rocblaslt error: Could not load "TensileLibrary_lazy_gfx1201.dat"',
        "rocBLAS warning: One or more problem overrides failed to load from: /job/rocblas_override.csv",
        "rocBLAS error from hip error code: 'hipErrorNoBinaryForGpu':209",
        "MIOpen Error: node7:/MIOpen/src/sqlite_db.cpp:224: Internal error while accessing SQLite database: "
        "attempt to write a readonly database",
        'the manual states: "rocBLAS error: Cannot read" means that a file is missing; rocBLAS errors are rare',
    ]


def bench_output() -> list[str]:
    """Return the output of rocblas-bench, as its documentation shows it.

    One row is cut off, and one row is about a function that is no matrix product.
    """
    return [
        "rocBLAS info: maximum library size per device is 0.5 GB.",
        "",
        "transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,rocblas-Gflops,us",
        "",
        "N,T,1024,512,256,1,1024,0,512,1024, 8947.85, 30",
        "T,N,1024,512,256,1,256,0,256,1024, 8134.4, 33",
        "",
        "transA,transB,M,N,K,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,batch_count,a_type,b_type,c_type,"
        "d_type,compute_type,rocblas-Gflops,us",
        "N,N,64,32,16,1,64,1024,1,16,512,64,2048,64,2048,8,f16_r,f16_r,f16_r,f16_r,f32_r, 131.072, 4",
        "N,N,64,32,16,1,64",
        "",
        "transA,M,N,alpha,lda,incx,beta,incy,rocblas-Gflops,us",
        "N,64,32,1,64,1,0,1, 2.048, 2",
    ]


def main() -> None:
    """Write all sample files."""
    OUT.mkdir(exist_ok=True)
    for name, lines in (
        ("errors.log", errors()),
        ("launches.txt", launches()),
        ("bench_output.txt", bench_output()),
    ):
        (OUT / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
