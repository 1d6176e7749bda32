from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

from analyzers.evidence.comparable import best_times
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import slower_than_comparable
from analyzers.findings.slower_than_comparable import device_in_words, span
from logparse.model import ConvProblem, Finding, GemmProblem, problem_from_text
from tests.analyzers.build import call, facts, measurement, tables, work
from tests.analyzers.example import W
from tests.analyzers.ingested import product

DEVICE = {"arch": "gfx942", "cu_count": "304"}
UNSHIPPED = {"arch": "gfx90a", "cu_count": "77"}
"""A GPU for which logparse ships no measured times."""
SIZES = (128, 300, 700, 1500, 4000)


def half(m: int, n: int, k: int) -> GemmProblem:
    return product(m, n, k, **dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), "f16_r"))


def us(m: int, n: int, k: int) -> float:
    """Return a made-up time of a matrix product in µs. Larger products are more efficient."""
    return 5 + 2e-8 * m * n * k / (1 + 0.1 * math.log2(m * n * k)) + 1e-6 * (m * k + k * n + m * n)


@cache
def best() -> tuple[tuple[GemmProblem, float], ...]:
    return tuple((half(m, n, k), us(m, n, k)) for m in SIZES for n in SIZES for k in SIZES)


def evidence(times: tuple[tuple[GemmProblem, float], ...]) -> list[dict[str, object]]:
    """Return stored measurements of two kernels for each matrix product: the fastest one, and the default.

    The default takes 1.4 times as long.
    """
    return [
        measurement(x.text, solution, time_us, source_id="known", origin="bench")
        for x, best_us in times
        for solution, time_us in (("hipblaslt:1", best_us), ("Default", 1.4 * best_us))
    ]


def lone(problem: GemmProblem | ConvProblem, time_us: float, **more: object) -> dict[str, object]:
    return measurement(problem.text, "Default", time_us, source_id="job", origin="bench", **more)


SLOW, FINE = half(1000, 1000, 1000), half(1100, 900, 1000)


def planted(times: tuple[tuple[GemmProblem, float], ...] | None = None) -> Tables:
    """Return made-up data of a run in which one matrix product takes five times as long as it should.

    Other kernels were not measured for this product and for one normal product. But the times of 125 similar products
    are known.
    """
    rows = [*evidence(best() if times is None else times), lone(SLOW, 5 * us(1000, 1000, 1000))]
    rows.append(lone(FINE, 1.02 * us(1100, 900, 1000)))
    return tables(
        measurements=rows,
        calls=[call(SLOW.text, count=10, source_id="log"), call(FINE.text, count=10, source_id="log")],
        workload=[work(SLOW.text, 10), work(FINE.text, 10)],
        facts=[*facts("known", **DEVICE), *facts("job", **DEVICE), *facts("log", **DEVICE)],
    )


def found(given: Tables) -> list[Finding]:
    return list(slower_than_comparable.find(given, Settings()))


def test_a_slow_default_is_seen_in_its_own_time() -> None:
    [one] = found(planted())
    true = us(1000, 1000, 1000)
    assert one.problem == SLOW.normal
    assert one.now_us == pytest.approx(5 * true)
    assert float(str(one.evidence.details["expected_us"])) == pytest.approx(true, rel=0.3)
    assert (one.calls, one.saving_us) == (10, pytest.approx(10 * (one.per_call_us or 0)))
    assert one.override is None, "no faster solution is known"
    assert one.advice is not None
    assert "tune_hipblaslt.sh" in one.advice
    assert "8 comparable products take" in one.message
    assert "on an MI300X" in one.message
    assert len(str(one.evidence.details["comparable"]).split("; ")) == 8


def test_shuffling_the_times_of_the_neighbours_takes_all_findings_away() -> None:
    times = [time_us for _, time_us in best()]
    random.Random(5).shuffle(times)
    assert found(planted(tuple(zip((x for x, _ in best()), times, strict=True)))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"a_type": "bf16_r", "b_type": "bf16_r", "c_type": "bf16_r", "d_type": "bf16_r"},
        {"trans_a": "N", "lda": 1000},
        {"m": 10_000_000},
    ],
)
def test_no_claim_without_measured_products_like_it(change: dict[str, object]) -> None:
    given = planted()
    other = replace(SLOW, **change)  # type: ignore[arg-type]
    rows = pd.concat([given.measurements, tables(measurements=[lone(other, 1e9)]).measurements], ignore_index=True)
    assert {x.problem for x in found(replace(given, measurements=rows))} == {SLOW.normal}


def test_no_claim_of_another_device() -> None:
    given = planted()
    other = given.facts.assign(value=given.facts["value"].where(given.facts["source_id"] != "known", "99"))
    assert found(replace(given, facts=other)) == []


def test_only_what_won_against_others_is_evidence() -> None:
    given = planted()
    alone = given.measurements[(given.measurements["solution"] == "Default").to_numpy(dtype=bool)]
    assert found(replace(given, measurements=alone)) == []


def test_what_was_searched_is_no_longer_estimated() -> None:
    given = planted()
    more = tables(measurements=[measurement(SLOW.text, "hipblaslt:2", 1e4, source_id="job", origin="bench")])
    rows = pd.concat([given.measurements, more.measurements], ignore_index=True)
    assert found(replace(given, measurements=rows)) == []


def block_scaled(rows: int) -> GemmProblem:
    """Return an 8-bit matrix product with a scale for each block, as in DeepSeek's layers on an MI300X.

    logparse ships measured times for such products (aiter's table).
    """
    types = {"a_type": "f8_fnuz_r", "b_type": "f8_fnuz_r", "c_type": "bf16_r", "d_type": "bf16_r"}
    return product(7168, rows, 2048, **types, scale_a="block128x128", scale_b="block128")


@pytest.mark.parametrize(("factor", "flagged"), [(4.0, True), (1.2, False)])
def test_a_slow_call_is_found_by_shipped_times_alone(factor: float, flagged: bool) -> None:
    """logparse finds a slow call even if nothing else was measured on this machine, by the times that it ships."""
    # The call must then be even slower to be reported, because GPUs of one architecture with equally many compute units
    # still differ in speed.
    asked = block_scaled(512)
    expected = best_times(tables(), "gfx942 304").expect([asked.text]).expected_us[0]
    given = tables(measurements=[lone(asked, factor * expected)], facts=facts("job", **DEVICE))
    assert len(found(given)) == flagged
    for one in found(given):
        assert one.evidence.details["shipped"] == "shipped aiter e404860"
        assert "the library that runs this call may have no kernel as fast" in one.message
        assert "93 %" not in one.message
        assert "aiter's tuner" in str(one.advice)


def test_a_machine_that_is_slower_in_all_calls_is_no_finding() -> None:
    asked = [block_scaled(n) for n in (256, 320, 400, 512, 640, 800, 1024, 1280, 1600)]
    expected = best_times(tables(), "gfx942 304").expect([x.text for x in asked]).expected_us
    times = [(4.0 if i == 4 else 1.3) * us_ for i, us_ in enumerate(expected.tolist())]
    given = tables(measurements=[lone(x, t) for x, t in zip(asked, times, strict=True)], facts=facts("job", **DEVICE))
    [one] = found(given)
    assert one.problem == asked[4].normal
    assert "× 1.3 (from the run's own times)" in str(one.evidence.details["shipped"])


def test_a_naive_solver_in_a_trace_is_seen_without_its_siblings() -> None:
    layers = [
        replace(W, n=n, c=c, k=k, groups=1, h=size, w=size, out_h=size, out_w=size, stride_h=1, stride_w=1)
        for n in (8, 16, 40)
        for c in (64, 130, 300)
        for k in (64, 130, 300)
        for size in (7, 14, 30)
    ]
    assert all(x.flops for x in layers)
    time_of = {x.text: 8 + 1e-8 * float(x.flops or 0) for x in layers}
    asked = replace(layers[0], n=20, c=200, k=200)
    slow_us = 20 * (8 + 1e-8 * float(asked.flops or 0))
    kernel = {"source_id": "trace", "run": "r", "op": "aten::convolution_backward", "problem": asked.text}
    kernel |= {"kernel": "naive_conv_wrw", "calls": 2, "total_us": 2 * slow_us, "min_us": slow_us, "max_us": slow_us}
    given = tables(
        measurements=[measurement(x, "miopen:ConvAsm", us_, source_id="db") for x, us_ in time_of.items()],
        kernels=[kernel],
        calls=[call(asked.text, count=2, source_id="trace", category="profiler")],
        workload=[work(asked.text, 2, calls_from="profiler")],
        facts=[*facts("db", **UNSHIPPED), *facts("trace", **UNSHIPPED)],
    )
    [one] = found(given)
    assert one.problem == problem_from_text(asked.text)
    assert "8 comparable W convolutions take" in one.message
    assert one.advice is not None
    assert "tune_miopen.sh" in one.advice


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [(38.0, 47.0, "38 to 47 µs"), (38.0, 38.0, "38 µs"), (950.0, 1200.0, "950 µs to 1.2 ms")],
)
def test_times_as_a_span(least: float, most: float, text: str) -> None:
    assert span(least, most) == text


def test_devices_in_words() -> None:
    assert device_in_words("gfx942 304") == "an MI300X"
    assert device_in_words("gfx90a 77") == "gfx90a with 77 CUs"
