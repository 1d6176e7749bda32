"""Test of all of logparse with the real rocBLAS, from a job's log to the proof that other kernels run.

The virtual GPU gives each kernel the time that the test chooses.
"""

# The job uses the override file (choice of kernels) that logparse writes. The matrix product has 68 kernels.

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logparse.libraries.rocblas.logs import RESERVED
from tests.conformance.loop import Loop
from tests.conformance.rocm import Rocm

SETTINGS = {
    "VGPU_ARCH": "gfx942:sramecc+:xnack-",
    "VGPU_CUS": "304",
    "ROCBLAS_USE_HIPBLASLT": "0",
    "ROCBLAS_LAYER": "2",
}
CALL = ["T", "T", 96, 64, 128, 1, [128, 64, 96], [0, 0, 0], 0, "bf16_r", "bf16_r", "f32_r"]
CALLS = 40


@pytest.fixture
def loop(rocm: Rocm, tmp_path: Path) -> Loop:
    return Loop(rocm, tmp_path, dict(SETTINGS))


def solutions(loop: Loop) -> dict[int, str]:
    """Return the kernels that rocBLAS offers for the matrix product: {number: name}.

    Number 0 is the library's own choice. Numbers that share a kernel with another one are left out.
    """
    lines = loop.run(*loop.job("rocblas_job", CALL, 0)).splitlines()
    names = {index: launches[0].split()[0] for index, launches in map(json.loads, lines)}
    all_names = list(names.values())
    return {x: name for x, name in names.items() if not x or sum(name in other for other in all_names) == 1}


def with_kernels(loop: Loop, run: str, sourced: str = "true") -> None:
    """Find out which kernels a job's calls used, and store this together with the job's other logs.

    ``run`` is the name under which the job's logs are stored.
    """
    # The job is started again with the log of Tensile (the library with rocBLAS's kernels). rocBLAS's own logs do not
    # name the kernels.
    loop.settings["TENSILE_DB"] = "0x40"
    (loop.folder / f"kernels of {run}").write_text(loop.run(*loop.job("rocblas_job", CALL, 2), sourced=sourced))
    del loop.settings["TENSILE_DB"]
    loop.logparse("ingest", "--run", run, f"kernels of {run}")


def before(loop: Loop) -> None:
    loop.capture("before", loop.job("rocblas_job", CALL, CALLS))
    loop.replay("rocblas")


def test_the_planted_best_is_found_written_and_used(loop: Loop) -> None:
    """logparse finds the fastest correct kernel and writes it to a file that the job uses.

    Some kernels are traps: one is faster but computes wrong values, others hang or crash. The clock is unsteady, too.
    """
    names = solutions(loop)
    best, *faulty = loop.plant_product(names, better=True)
    before(loop)
    loop.faults_found("rocblas", *faulty)
    loop.logparse("recommend")
    (written,) = loop.folder.glob("overrides/*/rocblas_override.csv")
    assert written.read_text(encoding="utf-8").splitlines()[1].endswith(f",{-best - RESERVED}")
    applied = f". {written.parent / 'apply.sh'}"
    lines = loop.launches("after", loop.job("rocblas_job", CALL, CALLS), applied)
    assert [line.split()[0] for line in lines] == [names[best]] * CALLS
    with pytest.raises(AssertionError, match=r"(?s)cannot be shown that an override row took effect.*TENSILE_DB=0x40"):
        loop.logparse("verify", "before", "after", str(written))  # rocBLAS's logs do not name the solution that it took
    with_kernels(loop, "before")
    with_kernels(loop, "after")
    with pytest.raises(AssertionError, match="the same kernel as before ran"):
        loop.logparse("verify", "before", "after", str(written))
    with_kernels(loop, "proven", applied)
    verdict = loop.logparse("verify", "before", "proven", str(written))
    assert verdict.startswith("verify: took effect: ")


def test_nothing_better_is_nothing_worth_doing(loop: Loop) -> None:
    loop.plant_product(solutions(loop), better=False)
    before(loop)
    assert "nothing worth doing" in loop.logparse("recommend")
    assert not list(loop.folder.glob("overrides/*/rocblas_override.csv"))
