"""Test of all of logparse with the real MIOpen: from a slow weight gradient to the proof that a file made it faster.

The virtual GPU gives each kernel the time that the test chooses. MIOpen's search (Find) measures its solvers and writes
its file of solver times. According to that file, the job runs a very slow solver for each weight gradient. Then other
times are chosen, as if a new build had made one solver fast. logparse must find this solver and write it to a file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.loop import DISTURBED, Loop
from tests.conformance.rocm import Rocm

FILE = "gfx942130.HIP.3_5_1_.ufdb.txt"
SETTINGS = {
    "VGPU_ARCH": "gfx942:sramecc+:xnack-",
    "VGPU_CUS": "304",
    "MIOPEN_LOG_LEVEL": "5",  # names the solver that a call runs
    "MIOPEN_DEBUG_GCN_ASM_KERNELS": "0",
    "MIOPEN_DEBUG_CONV_WINOGRAD": "0",  # Debian has no assembler sources
}
CALLS = 3
SLOW_US, OTHER_US, BETTER_US, WRONG_US = 3000, 300, 250, 20
AS_FOUND = [
    *((SLOW_US, "naive_conv wrw"), (4 * SLOW_US / 3, "Cijk_Alik_Bljk")),  # Bljk: only in backward weights
    *((OTHER_US, "naive_conv"), (4 * OTHER_US / 3, "Cijk_A")),
    *((1, helper) for helper in ("Im2d2Col", "Col2Im", "SubTensorOp")),
]
BETTER, WRONG, CRASHING, HANGING = 32, 48, 64, 80
"""Numbers of output channels, which tell four layers apart.

The fastest solver of the first layer is right. The fastest solvers of the others compute wrong values, crash or hang.
"""
NAIVE, GEMM = "ConvDirectNaiveConvWrw", "GemmWrwUniversal"


def call(direction: str, channels: int) -> list[object]:
    return [direction, "f16_r", [1, 16, 14, 14, channels, 3, 3], 1, 1, 1]


def product(channels: int) -> str:
    """Return the beginning of a kernel's name, by which a test recognises the kernel.

    MIOpen's GEMM solver runs this kernel for the weight gradient of a convolution with ``channels`` output channels.
    """
    return f"Cijk_Alik_Bljk m=144 n={channels}"


def fastest(path: Path) -> dict[str, str]:
    """Read a MIOpen file, and return the fastest solver of each weight gradient: {output channels: solver}."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, items = line.partition("=")
        times = {name: float(rest.partition(",")[0]) for name, rest in (x.split(":") for x in items.split(";"))}
        if key.endswith("-W"):
            found[key.partition("-")[0]] = min(times, key=times.__getitem__)
    return found


@pytest.fixture
def loop(rocm: Rocm, tmp_path: Path) -> Loop:
    folders = {f"MIOPEN_{name}": tmp_path / name for name in ("SYSTEM_DB_PATH", "USER_DB_PATH", "CUSTOM_CACHE_DIR")}
    for folder in folders.values():
        folder.mkdir()
    return Loop(rocm, tmp_path, {**SETTINGS, **{name: str(folder) for name, folder in folders.items()}})


def before(loop: Loop, calls: list[list[object]]) -> str:
    """Let MIOpen search for solvers, run the job with what it found, and store both as the run ``before``.

    Returns the path of the file in which MIOpen wrote the solver times.
    """
    loop.plant(AS_FOUND)
    loop.run(*loop.job("miopen_job", calls, 0))
    written = str(loop.folder / "USER_DB_PATH" / FILE)
    loop.capture("before", loop.job("miopen_job", calls, CALLS))
    loop.logparse("ingest", "--run", "before", written)
    return written


def flagged(loop: Loop) -> set[str]:
    """Return the convolutions for which logparse states a saving (``slow-wrw``) before any kernel was measured."""
    loop.logparse("recommend", "--out", "before a replay")
    rows = loop.rows("select problem from findings where analyzer = 'slow-wrw' and saving_us > 0")
    return {row["problem"] for row in rows}


def test_a_slow_backward_weight_is_found_written_used_and_verified(loop: Loop) -> None:
    """logparse finds a slow weight gradient, writes a faster solver to a file, and verifies that the job uses it.

    The fastest solvers of other layers are traps: they compute wrong values, crash or hang.
    """
    calls = [call(direction, BETTER) for direction in "FBW"]
    calls += [call("W", channels) for channels in (WRONG, CRASHING, HANGING)]
    written = before(loop, calls)
    (problem,) = flagged(loop)
    assert problem.startswith("conv W ")
    assert f"k={BETTER} " in problem
    faults = {"WRONG": [product(WRONG)], "CRASH": [product(CRASHING)], "HANG": [product(HANGING)]}
    loop.plant([(BETTER_US, product(BETTER)), (WRONG_US, product(WRONG)), *AS_FOUND], faults)
    loop.settings.update(DISTURBED)
    loop.replay("miopen")
    rows = loop.rows(f"select problem, status from measurements where status <> 'ok' and solution = 'miopen:{GEMM}'")
    statuses = {row["problem"].partition(" k=")[2].partition(" ")[0]: row["status"] for row in rows}
    assert statuses == {str(WRONG): "wrong", str(CRASHING): "failed", str(HANGING): "timeout"}
    loop.logparse("recommend", "--target", written, "--own", written)
    (emitted,) = loop.folder.glob(f"overrides/*/{FILE}")
    assert fastest(emitted) == {str(BETTER): GEMM, **dict.fromkeys(map(str, (WRONG, CRASHING, HANGING)), NAIVE)}
    loop.plant([(BETTER_US, product(BETTER)), *AS_FOUND])
    lines = loop.launches("after", loop.job("miopen_job", calls, CALLS), f". {emitted.parent / 'apply.sh'}")
    products = [line for line in lines if "Cijk_Alik_Bljk" in line]
    assert len(products) == CALLS
    assert all(f" m=144 n={BETTER} " in line for line in products)
    verdict = loop.logparse("verify", "before", "after", str(emitted))
    assert verdict.startswith("verify: took effect: ")


def test_nothing_better_is_nothing_worth_doing(loop: Loop) -> None:
    written = before(loop, [call(direction, BETTER) for direction in "FB"])
    loop.settings.update(DISTURBED)
    loop.replay("miopen")
    assert "nothing worth doing" in loop.logparse("recommend", "--target", written)
    assert not list(loop.folder.glob("overrides/*/*.ufdb.txt"))
