from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers import precision_risk
from analyzers.analyzer import Settings, Tables
from analyzers.recommend.ranking import recommend
from logparse.store import Store
from tests.analyzers.build import facts, measurement, tables, work
from tests.analyzers.example import ARCH
from tests.analyzers.ingested import bench, product, read, replayed, tables_of
from tests.conftest import sized

G = product(64, 512, 8192)
BUILD = {"arch": ARCH, "hipblaslt_version": "1201"}


def planted() -> Tables:
    """A faster solution whose name states that parts are rounded to the output type before they are summed."""
    split = "cublaslt:id=6,splitk=4,reduction=OUTPUT_TYPE"
    problem = product(8192, 512, 1024).text
    return tables(
        workload=[work(problem, 7)],
        measurements=[measurement(problem, split, 70.0), measurement(problem, "Default", 90.0)],
        facts=facts("m", **BUILD),
    )


def test_a_proposal_with_a_larger_checked_error(store: Store, tmp_path: Path) -> None:
    read(store, tmp_path, {"job.log": bench(64, 512, 8192, count=9)})
    checked = {"Default": 2.0e-3, "hipblaslt:9": 4.1e-2, "hipblaslt:8": 2.1e-3}
    replayed(store, G, {"Default": 50.0, "hipblaslt:9": 30.0, "hipblaslt:8": 40.0}, "hipblaslt:9", errors=checked)
    (found,) = precision_risk.find(tables_of(store), Settings())
    assert found.evidence["best"] == "hipblaslt:9"
    assert "4.1e-02, 20.5 times that of Default" in found.message
    assert (found.saving_us, found.override) == (None, None)
    both = [x.analyzer for x in recommend(tables_of(store), Settings()).findings]
    assert both == ["suboptimal-pick", "precision-risk"], "the warning stands beside what it warns of"


def test_an_equally_careful_proposal(store: Store, tmp_path: Path) -> None:
    read(store, tmp_path, {"job.log": bench(64, 512, 8192)})
    checked = {"Default": 2.0e-3, "hipblaslt:9": 7.9e-3}
    replayed(store, G, {"Default": 50.0, "hipblaslt:9": 30.0}, "hipblaslt:9", errors=checked)
    assert precision_risk.find(tables_of(store), Settings()) == []


def test_a_proposal_that_is_not_faster_is_no_risk(store: Store, tmp_path: Path) -> None:
    read(store, tmp_path, {"job.log": bench(64, 512, 8192)})
    checked = {"Default": 2.0e-3, "hipblaslt:9": 4.1e-2}
    replayed(store, G, {"Default": 50.0, "hipblaslt:9": 60.0}, "hipblaslt:9", errors=checked)
    assert precision_risk.find(tables_of(store), Settings()) == []


TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x64x64_GRVWB8_GSU{}_{}_GLS0_ISA942"


@pytest.mark.parametrize(
    ("solution", "name", "sign"),
    [
        ("cublaslt:id=6,tile=64x64,splitk=4,reduction=COMPUTE_TYPE", None, "4 parts, summed afterwards"),
        ("cublaslt:id=6,splitk=12,reduction=OUTPUT_TYPE", None, "12 parts, rounded to the output type in between"),
        ("hipblaslt:9", TENSILE.format(16, "GSUAMB"), "16 parts, summed afterwards"),
        ("hipblaslt:9", TENSILE.format(2, "GSUASB"), "results differ from run to run"),
        ("cublaslt:id=6,splitk=1", None, None),
        ("hipblaslt:9", TENSILE.format(1, "GSUAMB"), None),
        ("hipblaslt:9", TENSILE.format(0, "GSUAMB"), None),  # decided at run time
        ("hipblaslt:9", None, None),
    ],
)
def test_what_names_imply(solution: str, name: str | None, sign: str | None) -> None:
    t = tables(
        workload=[work(G.text, 3)],
        measurements=[measurement(G.text, "Default", 50.0), measurement(G.text, solution, 30.0)],
        solutions=[{"library": "hipblaslt", "build": "", "solution": solution, "name": name, "kernel_name": name}],
        facts=facts("m", **BUILD),
    )
    found = precision_risk.find(t, Settings())
    assert len(found) == (sign is not None)
    assert all(str(sign) in x.message for x in found)


@settings(max_examples=sized(5, 1000))
@given(st.dictionaries(st.sampled_from(["Default", "hipblaslt:1", "cublaslt:id=6,splitk=4"]), st.floats(1, 100)))
def test_only_what_is_faster_than_the_pick_is_warned_of(times: dict[str, float]) -> None:
    rows = [measurement(G.text, solution, us) for solution, us in times.items()]
    found = precision_risk.find(
        tables(workload=[work(G.text, 3)], measurements=rows, facts=facts("m", **BUILD)), Settings()
    )
    best = min(times, key=lambda x: (times[x], x)) if times else ""
    proposed = "splitk" in best and "Default" in times and times["Default"] > times[best]
    assert [x.evidence["best"] for x in found] == ([best] if proposed else [])
