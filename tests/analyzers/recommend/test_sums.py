"""Tests that the listed savings never add up to more than the largest possible saving of the job.

The largest possible saving, in turn, is never more than was measured. The tests use random data:

* matrix products, and convolution layers in all directions
* one to five files with measured times of any kind, from up to four GPUs and two runs
* logs that name the kernels that the library chose, or omit them
* in half of the cases a trace, in which calls take other times than alone
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from analyzers.evidence.confirmations import Pairs, confirmation_text, judge
from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.tables import Settings, Tables
from analyzers.job.gpu_time import gpu_us
from analyzers.recommend.ranking import Recommendation, recommend
from logparse.model import Problem
from tests.analyzers.build import call, facts, measurement, tables, work
from tests.analyzers.example import ARCH, W, gemm
from tests.conftest import sized

MACHINES: tuple[dict[str, str], ...] = (
    {"arch": ARCH, "cu_count": "304", "hipblaslt_version": "1201", "hipblaslt_revision": "4d62e135"},
    {"arch": "gfx90a", "cu_count": "110", "hipblaslt_version": "1100", "hipblaslt_revision": "0a1b2c3d"},
    {"device": "NVIDIA H200", "arch": "sm_90", "cu_count": "132"},
    {},
)
ORIGINS = ("tunableop-verbose", "tunableop", "find-db", "replay", "bench", CONFIRM, CONFIRM)
SOLUTIONS = {
    "gemm": ("Default", "hipblaslt:7", "hipblaslt:9", "torch:pad=8", "torch:pad=8,stored", "torch:fused"),
    "conv": ("Default", "miopen:A", "miopen:B", "torch:layout=NHWC,stored", "torch:benchmark"),
}


def problems(draw: random.Random) -> list[Problem]:
    """Return a few random matrix products and up to two convolution layers in all directions.

    The leading dimensions of one matrix product may be unknown.
    """
    out: list[Problem] = [gemm(m) for m in draw.sample((512, 1024, 2048, 4096, 4095, 7, 129), draw.randint(1, 4))]
    if draw.random() < 0.5:
        out.append(replace(draw.choice(out), lda=None, ldb=None, ldd=None))  # type: ignore[arg-type, call-arg]
    for _ in range(draw.randint(0, 2)):
        layer = replace(W, n=draw.choice((16, 64)), c=draw.choice((64, 256)), groups=draw.choice((1, 32)))
        out += [replace(layer, direction=direction) for direction in ("F", "B", "W")]
    return list({problem.text: problem for problem in out}.values())


def confirmed(draw: random.Random, problem: Problem, true_us: float) -> tuple[list[dict[str, object]], str]:
    """Make up the times of two kernels, measured in turns by one to four processes.

    Returns the measurements, and the text that logparse stores as the result of the comparison.
    """
    count, ratio = 12 * draw.randint(1, 4), draw.uniform(0.9, 1.6)
    winner = draw.choice(SOLUTIONS[problem.kind][1:])
    below = [true_us / ratio * math.exp(draw.gauss(0, 0.02)) for _ in range(count)]
    above = [us * ratio * math.exp(draw.gauss(0, 0.01)) for us in below]
    pairs = Pairs(tuple(above), tuple(below), (12,) * (count // 12))
    rows = [
        measurement(problem.text, solution, sorted(times)[count // 2], origin=CONFIRM, samples_us=times)
        for solution, times in (("Default", above), (winner, below))
    ]
    return rows, confirmation_text(problem.text, "Default", winner, pairs, judge(pairs))


def random_store(seed: int) -> Tables:
    draw = random.Random(seed)
    given = problems(draw)
    true_us = {problem.text: draw.uniform(5, 3000) for problem in given}
    rows: dict[str, list[dict[str, Any]]] = {x: [] for x in ("sources", "measurements", "facts", "calls", "workload")}
    for index in range(draw.randint(1, 5)):
        place = {"source_id": f"s{index}", "run": draw.choice(("r", "r", "old"))}
        origin, known = draw.choice(ORIGINS), dict(draw.choice(MACHINES))
        chosen = draw.sample(given, draw.randint(1, len(given)))
        if origin == CONFIRM:
            made, known["confirmation"] = confirmed(draw, chosen[0], true_us[chosen[0].text])
        else:
            made = [
                measurement(x.text, solution, true_us[x.text] * draw.uniform(0.4, 1.5), origin=origin)
                for x in chosen
                for solution in draw.sample(SOLUTIONS[x.kind], draw.randint(1, 4))
            ]
        known |= {"pick": "Default"} if origin in (CONFIRM, "replay") else {}
        rows["measurements"] += [row | place for row in made]
        rows["facts"] += [row | place for row in facts(place["source_id"], **known)]
        rows["sources"].append(place | {"path": place["source_id"], "ingested_at": draw.randint(0, 3)})
    traced, kernels = draw.random() < 0.5, list[dict[str, object]]()
    origin = "profiler" if traced else "bench"
    for problem in draw.sample(given, draw.randint(1, len(given))):
        count, solution = draw.randint(1, 200), draw.choice((None, SOLUTIONS[problem.kind][1]))
        rows["workload"].append(work(problem.text, None if draw.random() < 0.05 else count, calls_from=origin))
        rows["calls"].append(call(problem.text, solution, count, category=origin))
        if traced:
            took = {"problem": problem.text, "calls": count, "total_us": count * draw.uniform(5, 3000)}
            kernels.append({"source_id": "log", "run": "r", "device": 0, "op": "aten::mm", "kernel": "k"} | took)
    rows["facts"] += facts("log", **draw.choice(MACHINES))
    rows["sources"].append({"source_id": "log", "run": "r", "path": "log", "ingested_at": 0})
    return tables(kernels=kernels, **rows)


def check(found: Recommendation, given: Tables) -> None:
    ceiling = found.ceiling
    measured = [x.saving_us for x in found.findings if x.sureness != "estimated" and x.saving_us is not None]
    assert sum(measured) <= ceiling.saving_us * (1 + 1e-9), "all measured savings of the list"
    assert ceiling.saving_us <= ceiling.default_us * (1 + 1e-9), "all measured time"
    traced = given.kernels["total_us"].sum() if gpu_us(given) is not None else math.inf
    assert ceiling.default_us <= traced * (1 + 1e-9), "all GPU time"
    for value in (ceiling.share, ceiling.calls_share, ceiling.untimed_share):
        assert value is None or -1e-9 <= value <= 1 + 1e-9
    for finding in found.findings:
        assert finding.saving_share is None or 0 <= finding.saving_share <= 1 + 1e-9
    texts = [(x.analyzer, x.problem.text, x.evidence.pick) for x in found.findings if x.problem and x.saving_us]
    assert len(texts) == len(set(texts)), "a problem's saving counts once"


@pytest.mark.parametrize("seed", range(sized(5, 500)))
def test_no_sum_is_above_what_it_is_a_part_of(seed: int) -> None:
    given = random_store(seed)
    check(recommend(given, Settings()), given)


def test_gains_of_the_same_calls_are_not_added() -> None:
    """If two findings may be about the same calls, only one of their gains is added to the savings.

    Two texts in the logs may describe the same call. One has a measured gain, the other one has an estimated gain.
    """
    given = random_store(26)
    found = recommend(given, Settings())
    check(found, given)
    (other,) = [x for x in found.findings if "suboptimal-pick proposes another change for the same calls" in x.message]
    assert (other.analyzer, other.saving_us) == ("below-roofline", None)
    assert (other.per_call_us or 0.0) > 0


def test_a_call_that_takes_less_in_the_job_saves_less() -> None:
    """A call that takes less time in the job than alone also saves less in the job, by the same factor.

    Alone, the call takes 100 µs, or 60 µs with another kernel: (100 − 60) / 100 = 40 % are saved. In the job it takes
    50 µs, so it saves 0.4 · 50 = 20 µs. The difference of the times alone, 40 µs, would be too much.
    """
    text = gemm().text
    kernel = {"source_id": "t", "run": "r", "op": "aten::mm", "kernel": "k", "calls": 10, "problem": text}
    given = tables(
        workload=[work(text, 10, calls_from="profiler")],
        measurements=[measurement(text, "Default", 100.0), measurement(text, "hipblaslt:9", 60.0)],
        kernels=[kernel | {"device": 0, "total_us": 500.0}],
    )
    found = recommend(given, Settings())
    (finding,) = found.findings
    assert (finding.per_call_us, finding.saving_us) == (40.0, pytest.approx(200.0))
    assert finding.saving_share == pytest.approx(0.4)
    assert found.ceiling.saving_us == pytest.approx(200.0)
