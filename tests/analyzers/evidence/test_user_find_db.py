"""Tests of finding a faster MIOpen solver for the weight gradient of a convolution."""

# In the database that MIOpen ships, the solver for this gradient is slow. Faster ones come from another memory layout,
# or from the database in which MIOpen keeps the measurements of the user's own machine.

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.evidence.comparison import LAYOUT
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import slow_wrw
from analyzers.recommend.ranking import recommend
from logparse.model import Finding, problem_from_text
from logparse.store import Store
from tests.analyzers.ingested import read, store_race_times

KEY = "256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-{}_g32"
FORWARD = "256-56-56-3x3-256-28-28-64-1x1-2x2-1x1-0-NCHW-FP16-F_g32"
SYSTEM = (
    FORWARD + "=ConvAsm3x3U:0.187,0,miopenConvolutionFwdAlgoDirect\n"
    + KEY.format("W") + "=GemmWrwUniversal:5.455,0,miopenConvolutionBwdWeightsAlgoGEMM\n"
)  # fmt: skip
USER = (
    KEY.format("W") + "=ConvHipImplicitGemmGroupWrwXdlops:{},0,miopenConvolutionBwdWeightsAlgoImplicitGEMM;"
    "GemmWrwUniversal:6.5,128,miopenConvolutionBwdWeightsAlgoGEMM\n"
)
COMMAND = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 256 -y 3 -x 3 "
    "-p 1 -q 1 -u 2 -v 2 -l 1 -j 1 -m conv -g 32 -F 4 -t 1\n"
)
MI300X = {"arch": "gfx942", "cu_count": "304"}


def of(t: Tables, settings: Settings | None = None) -> list[Finding]:
    return [x for x in slow_wrw.find(t, settings or Settings()) if x.problem is not None]


def slow(store: Store, folder: Path) -> Finding:
    files = {"gfx942130.HIP.fdb.txt": SYSTEM, "job.log": COMMAND * 10}
    (found,) = of(read(store, folder, files))
    assert (found.calls, found.per_call_us) == (10, pytest.approx(5455.0 - 187.0))
    return found


def test_another_layout_that_was_confirmed_takes_the_place_of_the_estimate(store: Store, tmp_path: Path) -> None:
    before = slow(store, tmp_path)
    assert before.problem is not None
    store_race_times(
        store, before.problem, {"Default": 5000.0, "torch:layout=NHWC": 700.0}, "torch:layout=NHWC", facts=MI300X
    )
    (found,) = [x for x in recommend(tables_of(store), Settings()).findings if x.problem == before.problem]
    assert (found.per_call_us, found.saving_us) == (pytest.approx(4300.0), pytest.approx(43000.0))
    assert found.evidence.shown["best"] == "torch:layout=NHWC"
    assert found.advice == LAYOUT
    assert [x.partition(":")[0] for x in found.reasons] == ["slow-wrw"]


@pytest.mark.parametrize(("ms", "found"), [(0.3, True), (5.3, False), (6.0, False)])
def test_a_solver_of_the_users_find_db(ms: float, found: bool, store: Store, tmp_path: Path) -> None:
    before = slow(store, tmp_path)
    files = {
        "gfx942130.HIP.fdb.txt": SYSTEM,
        "job.log": COMMAND * 10,
        "gfx942130.HIP.3_4_0_x.ufdb.txt": USER.format(ms),
    }
    after = of(read(store, tmp_path, files))
    if not found:  # within 3 % of the system's time, or slower
        assert [(x.message, x.saving_us) for x in after] == [(before.message, before.saving_us)]
        return
    (better,) = after
    assert better.override is not None
    assert better.override.solution.text == "miopen:ConvHipImplicitGemmGroupWrwXdlops"
    assert better.override.solution.algorithm == "miopenConvolutionBwdWeightsAlgoImplicitGEMM"
    assert (better.per_call_us, better.saving_us) == (pytest.approx(5155.0), pytest.approx(51550.0))
    assert better.override.time_us == pytest.approx(300.0)
    behind = better.override.fallback
    assert behind is not None, "the record's second solver: where the first does not apply, MIOpen would search"
    assert (behind.solution.text, behind.workspace_bytes) == ("miopen:GemmWrwUniversal", 128)
    assert better.problem == before.problem == problem_from_text(better.problem.text if better.problem else "")
    elsewhere = of(tables_of(store), Settings(target={"arch": "gfx942", "cu_count": "80"}))
    assert elsewhere == []


def test_a_users_find_db_of_another_device(store: Store, tmp_path: Path) -> None:
    slow(store, tmp_path)
    files = {"gfx942130.HIP.fdb.txt": SYSTEM, "gfx90a68.HIP.3_4_0_x.ufdb.txt": USER.format(0.3)}
    assert all(x.override is None for x in of(read(store, tmp_path, files)))
