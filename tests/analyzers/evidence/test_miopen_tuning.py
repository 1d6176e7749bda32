"""Tests of the lines that logparse writes for MIOpen. A line has a solver with its parameters, and a second solver.

The second solver is the fallback if MIOpen's build lacks the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from analyzers.evidence.joins import facts_by_source
from analyzers.evidence.miopen_tuning import complete_overrides
from analyzers.evidence.tables import Settings, Tables
from analyzers.recommend.override_files import make_files, targets
from analyzers.recommend.ranking import recommend
from logparse.libraries.miopen import find_db, perf_db, perf_db_items
from logparse.libraries.override_formats import WRITERS
from logparse.model import Evidence, Finding, Override, Solution, UseRows
from tests.analyzers.build import facts, measurement, tables, work
from tests.analyzers.example import F, W

DEVICE = {"arch": "gfx942", "cu_count": "304", "backend": "HIP"}
BUILD = {"miopen_version": "3.4.0", "miopen_tweak": "abc"}
CK, GEMM, NAIVE = "ConvHipImplicitGemmGroupWrwXdlops", "GemmWrwUniversal", "ConvDirectNaiveConvWrw"
KEY, PERF_KEY = str(find_db.key(W, {})), str(perf_db.key(W, {}))


def record(solver: str, time_us: float, algorithm: str, workspace: int) -> dict[str, object]:
    name = f"miopenConvolutionBwdWeightsAlgo{algorithm}"
    more = {"raw": solver, "algorithm": name, "workspace_bytes": workspace, "key_text": KEY, "source_id": "ufdb"}
    return measurement(W.text, f"miopen:{solver}", time_us, **more)


def make_perf_db_row(source: str, parameters: str, solver: str = CK) -> dict[str, object]:
    row = measurement(perf_db_items.problem_from_perf_key(PERF_KEY).text, f"miopen:{solver}", None, source_id=source)
    return row | {"origin": perf_db_items.ORIGIN, "key_text": PERF_KEY, "raw": parameters}


def run(*perf: Mapping[str, object], **of: Mapping[str, str]) -> Tables:
    """Return made-up data of a job in which MIOpen chose a slow solver for a convolution.

    * ``perf`` are more measurements.
    * ``of`` has the GPU and build of further files: {file name: {name: value}}.
    """
    # The data contain the job's log, and a MIOpen file with the measured times of three solvers.
    chosen = measurement(W.text, f"miopen:{GEMM}", None, origin="miopen-chosen", source_id="log")
    found = [record(GEMM, 3900.0, "GEMM", 6422528), record(NAIVE, 60000.0, "Direct", 0)]
    found.append(record(CK, 200.0, "ImplicitGEMM", 128))
    return tables(
        measurements=[chosen, *found, *perf],
        workload=[work(W.text, 10)],
        facts=[
            row for name, told in {"ufdb": DEVICE | BUILD, "log": DEVICE, **of}.items() for row in facts(name, **told)
        ],
    )


def override(t: Tables) -> Override:
    (made,) = recommend(t, Settings()).overrides
    return made


def test_parameters_and_net() -> None:
    made = override(run(make_perf_db_row("udb", "Device<64>+1"), udb=DEVICE | BUILD))
    assert (made.solution.id, made.parameters) == (CK, "Device<64>+1")
    assert made.fallback is not None
    assert (made.fallback.solution.id, made.fallback.time_us, made.fallback.workspace_bytes) == (GEMM, 3900.0, 6422528)
    assert made.fallback.parameters is None


def test_parameters_that_miopen_drops_are_not_copied() -> None:
    dropped = make_perf_db_row("udb", "Device<64>+1") | {"status": "skipped"}
    assert override(run(dropped, udb=DEVICE | BUILD)).parameters is None


def test_both_files_are_written() -> None:
    t = run(make_perf_db_row("udb", "Device<64>+1"), udb=DEVICE | BUILD)
    found = recommend(t, Settings())
    ((_, target),) = targets(found, Settings()).items()
    files = {file.name: file.data.decode() for file in make_files(found, target, WRITERS, Settings()).files}
    base = "gfx942130.HIP.3_4_0_abc"
    algorithm = "miopenConvolutionBwdWeightsAlgo"
    assert (
        files[f"{base}.ufdb.txt"] == f"{KEY}={CK}:0.2,128,{algorithm}ImplicitGEMM;{GEMM}:3.9,6422528,{algorithm}GEMM\n"
    )
    assert files[f"{base}.udb.txt"] == f"{PERF_KEY}={CK}:Device<64>+1\n"


@pytest.mark.parametrize(
    ("told", "taken"),
    [
        # The name of a system perf-db states no build.
        (DEVICE, "theirs"),
        (DEVICE | BUILD | {"miopen_tweak": "other"}, "theirs"),
        (DEVICE | BUILD | {"miopen_version": "3.3.0"}, None),
        (DEVICE | {"cu_count": "80"}, None),
        ({}, None),
    ],
)
def test_whose_parameters_are_taken(told: dict[str, str], taken: str | None) -> None:
    assert override(run(make_perf_db_row("other", "theirs"), other=told)).parameters == taken
    both = run(
        make_perf_db_row("other", "theirs"),
        make_perf_db_row("own", "ours"),
        other=told,
        own=DEVICE | BUILD | {"perf_db": "user"},
    )
    assert override(both).parameters == "ours"


def test_a_solver_without_parameters_asks_for_none() -> None:
    t = run(make_perf_db_row("udb", "x", GEMM), udb=DEVICE | BUILD)
    rows = t.measurements[t.measurements["solution"] != f"miopen:{CK}"]
    slower = rows.assign(solution=rows["solution"].where(rows["origin"] != "miopen-chosen", f"miopen:{NAIVE}"))
    made = override(replace(t, measurements=slower))
    assert (made.solution.id, made.parameters) == (GEMM, None)


def test_a_missing_workspace_comes_from_another_file() -> None:
    """If it is unknown how much workspace a fast solver needs, the number is taken from another file.

    The measurement that confirmed the solver does not state the number. The other file must come from the same MIOpen
    build.
    """
    t = run(make_perf_db_row("udb", "x"), udb=DEVICE | BUILD)
    confirmed = Finding(
        analyzer="suboptimal-pick",
        message="slow",
        problem=W,
        evidence=Evidence(source_id="replay", origin="replay-confirm", measured=W.text),
        remedy=UseRows(Override(problem=W, solution=Solution("miopen", CK), target=DEVICE | BUILD, time_us=200.0)),
    )
    (done,) = complete_overrides([confirmed], t, facts_by_source(t.facts))
    assert done.override is not None
    assert done.override.workspace_bytes == 128


OTHER = "ConvMlirIgemmWrWXdlops"


def completed_from_a_shipped_record(*users: Mapping[str, object]) -> Finding:
    """Make logparse add a second solver to its advice to use a faster MIOpen solver. Returns the complete advice.

    ``users`` are times that the user's own build measured.
    """
    # The second solver is for the case that the user's MIOpen build does not have the faster one. The faster solver was
    # found in a database that does not name its build.
    shipped = [record(CK, 200.0, "ImplicitGEMM", 128), record(OTHER, 300.0, "ImplicitGEMM", 0)]
    t = tables(
        measurements=[*(row | {"source_id": "fdb"} for row in shipped), *users],
        facts=[*facts("ufdb", **DEVICE, **BUILD), *facts("fdb", **DEVICE)],
    )
    given = Finding(
        analyzer="slow-wrw",
        message="slow",
        problem=W,
        evidence=Evidence(source_id="fdb", origin="find-db", measured=W.text),
        remedy=UseRows(
            Override(
                problem=W, solution=Solution("miopen", CK), target=DEVICE | BUILD, time_us=200.0, workspace_bytes=128
            )
        ),
    )
    (done,) = complete_overrides([given], t, facts_by_source(t.facts))
    return done


def test_one_of_two_solvers_exists_in_the_build() -> None:
    """In an entry for MIOpen's database, logparse names a second solver, if possible one that the user's MIOpen has."""
    # The first solver is the fastest one, which may be known only from another MIOpen build. If the user's MIOpen had
    # neither solver, it would overwrite the entry.
    slow, naive = record(GEMM, 3900.0, "GEMM", 6422528), record(NAIVE, 60000.0, "Direct", 0)
    for users, second in (
        ((slow, naive), GEMM),
        ((slow, record(OTHER, 9000.0, "ImplicitGEMM", 0)), OTHER),
        ((), OTHER),
    ):
        made = completed_from_a_shipped_record(*users).override
        assert made is not None
        assert (made.solution.id, made.fallback and made.fallback.solution.id) == (CK, second)


def test_without_a_solver_of_the_build_nothing_is_proposed() -> None:
    elsewhere = record(GEMM, 3900.0, "GEMM", 6422528) | {"problem": F.text}
    done = completed_from_a_shipped_record(elsewhere)
    assert done.override is None
    assert done.advice is not None
    assert CK in done.advice


@pytest.mark.parametrize(("solver", "origin", "noted"), [(GEMM, "find-db", 1), (CK, "find-db", 0), (GEMM, "driver", 0)])
def test_time_that_miopen_does_not_measure_is_noted(solver: str, origin: str, noted: int) -> None:
    """If a solver's time was measured by MIOpen, a remark says that setting dW to zero is not included."""
    # A GEMM solver of weight gradients first sets the result dW to zero. This takes time in the job, but MIOpen's
    # search does not measure it.
    row = record(solver, 200.0, "GEMM", 128) | {"origin": origin}
    given = tables(
        measurements=[
            measurement(W.text, f"miopen:{NAIVE}", None, origin="miopen-chosen", source_id="log"),
            row,
            record(NAIVE, 3900.0, "Direct", 0) | {"origin": origin},
        ],
        workload=[work(W.text, 10)],
        facts=[*facts("ufdb", **DEVICE, **BUILD), *facts("log", **DEVICE)],
    )
    (found,) = (x for x in recommend(given, Settings()).findings if x.override is not None)
    assert found.message.count("sets dW (the gradient of the weights) to zero") == noted
