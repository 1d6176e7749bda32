"""Rows for whole families, and the limit on rows."""

from __future__ import annotations

import random

import pytest

from analyzers.analyzer import Settings
from analyzers.recommend.override_files import emissions
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.wildcards import exact, family_of, first, smallest
from logparse.formats.tunableop import results, signature
from logparse.formats.tunableop.validated import read
from logparse.model import ConvProblem, Family, GemmProblem, Override, Problem, Solution
from tests.analyzers.build import facts, measurement, tables, work
from tests.analyzers.example import ARCH, gemm

VALIDATORS = {
    "validator:PT_VERSION": "2.15.0",
    "validator:HIP_VERSION": "702",
    "validator:HIPBLASLT_VERSION": "100201-5b515cf1bc",
    "validator:GCN_ARCH_NAME": ARCH,
    "validator:ROCBLAS_VERSION": "5.2.0.abc",
}
HERE = {"arch": ARCH, "hipblaslt_version": "100201", "hipblaslt_revision": "5b515cf1bc", "backend": "HIP", **VALIDATORS}
SOLUTIONS = ("hipblaslt:1", "hipblaslt:2", "hipblaslt:3")


def tokens(n: int, **more: object) -> GemmProblem:
    return gemm(4096, n=n, ldc=4096, **more)


def key(problem: Problem) -> str | None:
    return signature.key(problem, HERE)


def override(problem: Problem, solution: str, time_us: float, default_us: float) -> Override:
    return Override(
        problem=problem,
        solution=Solution(*solution.split(":")),
        target=HERE,
        time_us=time_us,
        default_us=default_us,
    )


def given(times: dict[int, dict[str, float]]) -> tuple[list[Override], dict[str, float], dict[str, dict[str, float]]]:
    """Overrides to the fastest solution of each number of tokens, ten calls each."""
    rows = []
    for n, known in times.items():
        best = min(known, key=lambda x: known[x])
        if best != "Default":
            rows.append(override(tokens(n), best, known[best], known["Default"]))
    return rows, {tokens(n).text: 10.0 for n in times}, {tokens(n).text: x for n, x in times.items()}


def served(rows: list[Override], problem: GemmProblem) -> str:
    """The solution that PyTorch takes by these rows: the exact one, else any that matches."""
    exact_rows = [x for x in rows if not isinstance(x.problem, Family) and key(x.problem) == key(problem)]
    wild = {x.solution.text for x in rows if isinstance(x.problem, Family) and matches(str(key(x.problem)), problem)}
    assert len(wild) <= 1, "it would be arbitrary"
    return exact_rows[0].solution.text if exact_rows else wild.pop() if wild else "Default"


def matches(row: str, problem: GemmProblem) -> bool:
    mine, call = row.split("_"), str(key(problem)).split("_")
    return len(mine) == len(call) and all(a in ("*", b) for a, b in zip(mine, call, strict=True))


def test_what_a_wildcard_row_is() -> None:
    assert key(family_of(tokens(512), "n") or gemm()) == "GemmTunableOp_BFloat16_TN,tn_4096_*_1024_ld_1024_1024_4096"
    assert key(family_of(tokens(512), "m") or gemm()) == "GemmTunableOp_BFloat16_TN,tn_*_512_1024_ld_1024_1024_*"
    transposed = gemm(4096, trans_b="T", ldb=512)
    assert key(family_of(transposed, "n") or gemm()) == "GemmTunableOp_BFloat16_TT,tt_4096_*_1024_ld_1024_*_4096"
    assert family_of(gemm(4096, trans_b="T", ldb=640), "n") is None, "padded: another call could match two rows"
    assert family_of(ConvProblem(direction="F"), "n") is None
    assert family_of(GemmProblem(m=4), "n") is None


def test_one_row_for_all_that_share_a_winner() -> None:
    rows, calls, times = given({n: {"Default": 100.0, "hipblaslt:1": 60.0} for n in (256, 512, 768, 1024)})
    [group] = smallest(rows, calls, times, key, 0.01)
    [row] = group.rows
    assert isinstance(row.problem, Family)
    assert row.solution.text == "hipblaslt:1"
    assert group.saving_us == 4 * 10 * 40.0


def test_regret_decides_who_gets_a_row_of_its_own() -> None:
    known = {n: {"Default": 100.0, "hipblaslt:1": 60.0, "hipblaslt:2": 61.0} for n in (256, 512, 768)}
    known[1024] = {"Default": 100.0, "hipblaslt:1": 90.0, "hipblaslt:2": 60.0}
    rows, calls, times = given(known)
    [strict] = smallest(rows, calls, times, key, 0.0)
    assert {key(x.problem): x.solution.text for x in strict.rows} == {
        "GemmTunableOp_BFloat16_TN,tn_4096_*_1024_ld_1024_1024_4096": "hipblaslt:1",
        "GemmTunableOp_BFloat16_TN,tn_4096_1024_1024_ld_1024_1024_4096": "hipblaslt:2",
    }
    [loose] = smallest(rows, calls, times, key, 0.02)
    assert [x.solution.text for x in loose.rows] == ["hipblaslt:2"]


def test_who_would_lose_or_is_not_known_is_kept_out() -> None:
    known = {n: {"Default": 100.0, "hipblaslt:1": 60.0} for n in (128, 256, 512, 768)}
    rows, calls, times = given(known)
    calls |= {tokens(1024).text: 5.0, tokens(2048).text: 5.0}
    times |= {tokens(1024).text: {"Default": 80.0, "hipblaslt:1": 200.0}}  # of 2048 nothing is known
    [group] = smallest(rows, calls, times, key, 0.01)
    assert [(x.solution.text, getattr(x.problem, "n", "*")) for x in group.rows] == [
        ("hipblaslt:1", "*"),
        ("Default", 1024),
        ("Default", 2048),
    ]
    calls |= {tokens(n).text: 1.0 for n in (3, 5, 7)}
    assert smallest(rows, calls, times, key, 0.01) == exact(rows, calls), "six rows are more than four"


@pytest.mark.parametrize("seed", range(40))
def test_every_call_of_the_workload_is_served_within_the_regret(seed: int) -> None:
    """The law: no call is slower than now, all together lose no more than the regret, no two rows match one call."""
    dice = random.Random(seed)
    known: dict[str, dict[str, float]] = {}
    problems = [gemm(m, n=n, ldc=m) for m in dice.sample((512, 1024, 4096), 2) for n in dice.sample(range(64, 99), 6)]
    rows = []
    for problem in problems:
        base = dice.uniform(50, 100)
        tried = {"Default": base} | {
            x: base * dice.choice((0.5, 0.51, 0.7, 1.2)) for x in SOLUTIONS if dice.random() < 0.9
        }
        known[problem.text] = tried
        best = min(tried, key=lambda x: tried[x])
        if best != "Default":
            rows.append(override(problem, best, tried[best], base))
    calls = {x.text: float(dice.randint(1, 50)) for x in problems}
    regret = dice.choice((0.0, 0.02, 0.2))
    groups = smallest(rows, calls, known, key, regret)
    written, lost = first(groups, None)
    assert lost == 0
    assert len(written) <= len(rows)
    total = best_total = 0.0
    for problem in problems:
        tried = known[problem.text]
        time_us = tried[served(written, problem)]
        assert time_us <= tried["Default"]
        total += calls[problem.text] * time_us
        best_total += calls[problem.text] * min(tried.values())
    assert total <= best_total * (1 + regret) * (1 + 1e-9)


def test_the_most_valuable_rows_come_first() -> None:
    rows, calls, _ = given({n: {"Default": 100.0, "hipblaslt:1": 100.0 - n / 64} for n in (64, 128, 256)})
    taken, lost = first(exact(rows, calls), 2)
    assert [x.problem.n for x in taken if isinstance(x.problem, GemmProblem)] == [256, 128]
    assert lost == 10.0
    assert first(exact(rows, calls), None) == ([*taken, rows[0]], 0.0)


def recommended(here: dict[str, str]) -> Recommendation:
    rows = [
        measurement(tokens(n).text, solution, time_us, source_id="v")
        for n in (256, 512, 768, 1024)
        for solution, time_us in (("Default", 100.0), ("hipblaslt:1", 60.0 + n / 1024), ("hipblaslt:2", 90.0))
    ]
    return recommend(
        tables(
            measurements=rows,
            facts=facts("v", **here),
            workload=[work(tokens(n).text, n) for n in (256, 512, 768, 1024)],
        ),
        Settings(),
    )


@pytest.mark.parametrize(
    ("torch", "params"),
    [("2.15.0", ["tn_4096_*_1024"]), ("2.14.1", [f"tn_4096_{n}_1024" for n in (1024, 256, 512, 768)])],
)
def test_the_file_for_a_pytorch(torch: str, params: list[str]) -> None:
    here = HERE | {"validator:PT_VERSION": torch}
    made = emissions(recommended(here), here, [results.WRITER], Settings())
    file, apply = made.files[:2]
    assert [x.params.partition("_ld_")[0] for x in read(file.data).entries] == params
    wild = len(params) == 1
    assert (b"export PYTORCH_TUNABLEOP_WILDCARD_FALLBACK=1" in apply.data) is wild
    assert any("calls of other sizes match the wildcards too" in x for x in made.notes) is wild


def test_max_rows_is_reported() -> None:
    here = HERE | {"validator:PT_VERSION": "2.14.1"}
    made = emissions(recommended(here), here, [results.WRITER], Settings(max_rows=2))
    assert [x.params.split("_")[2] for x in read(made.files[0].data).entries] == ["1024", "768"]
    assert any("only the 2 most valuable rows" in x for x in made.notes)
