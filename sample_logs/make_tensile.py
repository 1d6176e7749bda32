"""Makes ``sample_logs/tensile/``: run it from anywhere, the files are always the same.

It writes results as Tensile's benchmark client does, from the writer's source (see the folder's README), and imports
nothing of logparse, so that the samples are evidence independent of the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

OUT = Path(__file__).parent / "tensile"
SIZES = ["SizeI", "SizeJ", "SizeK", "SizeL"]
LEADING = ["LDD", "LDC", "LDA", "LDB"]
WINNER = ["WinnerGFlops", "WinnerTimeUS", "WinnerIdx", "WinnerName"]


def kernel(layout: str, tile: str) -> str:
    """A kernel's name, shortened."""
    return f"Cijk_{layout}_MT{tile}_MI32x32x8x1_SN_1LDSB0_K1_ISA942_TT4_64_WG64_4_1"


def flops(m: int, n: int, batch: int, k: int) -> int:
    return 2 * m * n * batch * k


def winners() -> list[list[object]]:
    """Benchmark data with the winner's columns: a projection TN, a batched product, one kernel that failed."""
    names = [kernel("Alik_Bljk_BBS_BH", tile) for tile in ("256x128x32", "128x128x32", "64x64x64")]
    out: list[list[object]] = [["GFlops", *SIZES, *LEADING, "WinnerFreq", *WINNER, "TotalFlops", "WinnerPower", *names]]
    rows: Sequence[tuple[tuple[int, int, int, int], tuple[float, ...], int]] = (
        ((4096, 512, 1, 1024), (71234.5, 68012.25, 40110.0), 0),
        ((64, 8192, 1, 4096), (21011.75, 36200.5, 41230.5), 2),
        ((512, 512, 256, 128), (-1.0, 193000.25, 182000.5), 1),
    )
    for number, (size, speeds, best) in enumerate(rows):
        m, _, _, k = size
        time = round(flops(*size) / speeds[best] / 1e3, 4)
        row = [number, *size, m, m, k, k, 2100, speeds[best], time, best, names[best], flops(*size), 512, *speeds]
        out.append([*row])
    return out


def final() -> list[list[object]]:
    """A step's results without the winner's columns: complex and half precision rows of one type each need a file."""
    names = [kernel("Ailk_BjlkC_ZB", tile) for tile in ("64x32x8", "32x32x8")]
    return [
        ["GFlops", *SIZES, *LEADING, "TotalFlops", *names],
        [0, 256, 128, 1, 64, 256, 256, 256, 128, 8 * 256 * 128 * 64, 1250.5, 1830.25],
        [1, 96, 96, 1, 96, 96, 96, 96, 96, 8 * 96**3, "", 610.75],
        [2, 96, 96, 1, 96, 96, 96],
        [3, "many", 96, 1, 96, 96, 96, 96, 96, 8 * 96**3, 1.5, 610.75],
    ]


def per_cu() -> list[list[object]]:
    """Speeds per compute unit, without a batch: only the winner has a time."""
    names = [f"Cij_Aik_Bkj_HBH_MT{tile}_SE_K1" for tile in ("64x64x8", "32x32x8")]
    return [
        ["GFlopsPerCU", *SIZES[:3], *LEADING, *WINNER, "TotalFlops", *names],
        [0, 640, 384, 512, 640, 640, 640, 512, 42.5, 77.1875, 1, names[1], flops(640, 384, 1, 512), 33.25, 42.5],
    ]


def main() -> None:
    """Write all files."""
    OUT.mkdir(exist_ok=True)
    files = {
        "Cijk_Alik_Bljk_BBS_BH_00_CSVWinner.csv": winners(),
        "00_Final.csv": final(),
        "Cij_Aik_Bkj_HBH_00_CSVWinner.csv": per_cu(),
    }
    for name, rows in files.items():
        lines = (", ".join(map(str, row)) for row in rows)
        (OUT / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
