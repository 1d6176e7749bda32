"""Makes ``sample_logs/ck_profiler/``: run it from anywhere, the files are always the same.

It writes what ckProfiler prints, from the writer's source (see the folder's README), and imports nothing of logparse,
so that the samples are evidence independent of the reader.
"""

from __future__ import annotations

from pathlib import Path

OUT = Path(__file__).parent / "ck_profiler"
OLD = (
    "DeviceGemm_Xdl_CShuffle<Default, {}, 32, 8, 8, 32, 32, 4, 2, 8, 8, 1, 2> LoopScheduler: Default,"
    " PipelineVersion: v1"
)
NEW = (
    "DeviceGemmXdlUniversal<{}, RCR> BlkSize: 256, BlkTile: {}, WaveTile: 32x32, WaveMap: 4x4, VmemReadVec: 8x8,"
    " BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v3, BlkGemmPipelinePrefetchStages: 2"
)


def tensor(name: str, lengths: tuple[int, ...], strides: tuple[int, ...]) -> str:
    words = (", ".join(map(str, values)) for values in (lengths, strides))
    return f"{name}: dim {len(lengths)}, lengths {{{next(words)}}}, strides {{{next(words)}}}"


def speed(ms: float, flops: int, moved: int) -> str:
    return f"{ms:g} ms, {flops / 1e9 / ms:.6g} TFlops, {moved / 1e6 / ms:.6g} GB/s"


def perf(ms: float, flops: int, moved: int, name: str) -> str:
    number, rest = speed(ms, flops, moved).split(" ", 1)
    return f"Perf: {number:>10} {rest}, {name}"


def gemm() -> list[str]:
    """``ckProfiler gemm 2 1 …``: bf16, B column-major; the best kernel is timed once more."""
    m, n, k = 512, 4096, 1024
    flops, moved = 2 * m * n * k, 2 * (m * k + k * n + m * n)
    best = OLD.format("256, 128, 128")
    return [
        tensor("a_m_k", (m, k), (k, 1)),
        tensor("b_k_n", (k, n), (1, k)),
        tensor("c_m_n", (m, n), (n, 1)),
        "found 3 instances",
        perf(0.0812, flops, moved, OLD.format("256, 256, 128")),
        "Warm up 1 time",
        perf(0.06125, flops, moved, best),
        f"{OLD.format('64, 64, 64')} does not support this problem",
        f"Best Perf for datatype = bf16 ALayout =  RowMajor BLayout =  ColumnMajor M = {m} N = {n} K = {k}"
        f" StrideA = {k} StrideB = {k} StrideC = {n} : {speed(0.0604, flops, moved)}, {best}",
    ]


def universal() -> list[str]:
    """``ckProfiler gemm_universal 4 …``: A is of 8 bits, C of 16; the best row is repeated."""
    m, n, k = 64, 8192, 4096
    flops, moved = 2 * m * n * k, m * k + 2 * k * n + 2 * m * n
    best = NEW.format("Default", "64x128x64")
    return [
        tensor("a_m_k", (m, k), (k, 1)),
        tensor("b_k_n", (k, n), (1, k)),
        tensor("c_m_n", (m, n), (n, 1)),
        "rotating count: 1",
        "found 2 instances",
        perf(0.0391, flops, moved, f"{best}, KBatch 1"),
        perf(0.0312, flops, moved, f"{best}, KBatch 4"),
        perf(0.0502, flops, moved, f"{NEW.format('KPadding', '16x64x128')}, KBatch 4"),
        f"Best Perf for datatype = f16 ALayout =  RowMajor BLayout =  ColumnMajor M = {m} N = {n} K = {k} StrideA = {k}"
        f" StrideB = {k} StrideC = {n} KBatch = 4 : {speed(0.0312, flops, moved)}, {best}",
    ]


def batched() -> list[str]:
    """``ckProfiler batched_gemm …``: both row-major, A padded; an odd time; the last line states no type."""
    g, m, n, k = 12, 384, 384, 64
    flops, moved = 2 * g * m * n * k, 2 * g * (m * k + k * n + m * n)
    name = "DeviceBatchedGemmXdl<256, 128, 128, 4, 8, 32, 32, 2, 2>"
    return [
        tensor("a_g_m_k", (g, m, k), (m * 80, 80, 1)),
        tensor("b_g_k_n", (g, k, n), (k * n, n, 1)),
        tensor("c_g_m_n", (g, m, n), (m * n, n, 1)),
        "found 2 instances",
        perf(0.0175, flops, moved, name),
        "Perf: fast ms, 1 TFlops, 1 GB/s, DeviceBatchedGemmXdl<64>",
        f"Best Perf: {speed(0.0175, flops, moved)}, {name}",
    ]


def others() -> list[str]:
    """A product with a bias and an activation; a best line by itself; a convolution; an output that is cut."""
    m, n, k = 256, 512, 128
    flops, moved = 2 * m * n * k, 2 * (m * k + k * n + 2 * m * n)
    name = "DeviceGemmMultipleD_Xdl_CShuffle<256, 128, 128, 32, 8, 8, Default>"
    return [
        tensor("a_m_k", (m, k), (1, m)),
        tensor("b_k_n", (k, n), (n, 1)),
        tensor("d0_m_n", (m, n), (0, 1)),
        tensor("e_m_n", (m, n), (n, 1)),
        perf(0.0051, flops, moved, name),
        f"Best Perf: {speed(0.0051, flops, moved)}, {name}",
        f"Best Perf for datatype = f32 ALayout =  ColumnMajor BLayout =  RowMajor M = 640 N = 384 K = 512 StrideA = 640"
        f" StrideB = 384 StrideC = 384 : {speed(0.0214, 2 * 640 * 384 * 512, 4 * (640 * 512 + 512 * 384 + 640 * 384))},"
        f" {OLD.format('128, 64, 64')}",
        "Best Perf: 0.1 ms, 12.5 TFlops, 80 GB/s, DeviceReduce<256>",
        tensor("input", (1, 32, 64, 56, 56), (64, 200704, 1, 3584, 64)),
        perf(0.0777, 1, 1, "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle<256, 128, 128, 32, Default>"),
        tensor("a_m_k", (m, k), (k, 1)),
        tensor("b_k_n", (k, n), (n, 1)),
        tensor("c_m_n", (m, n), (n, 1)),
        perf(0.0123, flops, 2 * (m * k + k * n + m * n), OLD.format("256, 64, 64")),
    ]


def main() -> None:
    """Write all files."""
    OUT.mkdir(exist_ok=True)
    for name, lines in (("gemm.log", [*gemm(), *universal()]), ("other_operations.log", [*batched(), *others()])):
        (OUT / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
