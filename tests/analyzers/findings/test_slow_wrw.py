from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analyzers.evidence.passes import find_best_pass_times
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import slow_wrw
from analyzers.findings.finding import BESIDE, THEN
from analyzers.findings.slow_wrw import comparable_w
from logparse.devices import device_of, devices
from logparse.model import Finding, Replay, Search
from logparse.text import duration
from tests.analyzers.build import call, facts, frame, measurement, tables, work
from tests.analyzers.example import B, F, W

MI300X = facts("m", arch="gfx942", cu_count="304")


def make_pass_tables(f: float | None, b: float | None, w: float, **more: list[dict[str, object]]) -> Tables:
    rows = [measurement(p.text, "miopen:ConvAsm", t) for p, t in ((F, f), (B, b)) if t is not None]
    return tables(measurements=[*rows, measurement(W.text, "miopen:ConvHipImplicitGemmGroupWrwXdlops", w)], **more)


def planted() -> Tables:
    return make_pass_tables(100.0, 200.0, 700.0, workload=[work(W.text, 8)], facts=MI300X)


def find_slow_gradients(t: Tables, settings: Settings | None = None) -> list[Finding]:
    return [x for x in slow_wrw.find(t, settings or Settings()) if x.problem is not None]


@pytest.mark.parametrize(
    ("f", "b", "w", "loss"),
    [
        (100.0, 200.0, 601.0, 401.0),  # above three times the slower sibling
        (100.0, 200.0, 600.0, None),  # exactly three times is not above
        (100.1, 0.1, 300.3, None),  # also if the product of doubles is below it
        (200.0, 100.0, 601.0, 401.0),
        (100.0, None, 301.0, 201.0),  # one sibling is enough
        (None, 100.0, 301.0, 201.0),
        (10.0, 10.0, 50.0, None),  # five times, but not above 0.05 ms
        (10.0, 10.0, 50.1, 40.1),
        (-1.0, 100.0, 301.0, 201.0),  # times that are not positive do not count
        (0.0, None, 301.0, None),  # neither a sibling nor the device is known then
    ],
)
def test_criterion(f: float | None, b: float | None, w: float, loss: float | None) -> None:
    found = find_slow_gradients(make_pass_tables(f, b, w))
    assert [x.per_call_us for x in found] == ([] if loss is None else [pytest.approx(loss)])


def test_remarks_mention_only_convolutions_of_the_run() -> None:
    """A remark about a file of another run mentions only convolutions that the present run calls."""
    of_other = {"source_id": "s", "run": "other", "path": "db.txt"}
    calls = {name: [work(p.text, 8)] for name, p in (("W", W), ("F", F))}
    found = {
        name: slow_wrw.find(
            make_pass_tables(100.0, 200.0, 700.0, workload=called, facts=MI300X, sources=[of_other]), Settings()
        )
        for name, called in calls.items()
    }
    assert [x.message for x in found["F"] if x.problem is None] == []
    [remark] = [x.message for x in found["W"] if x.problem is None]
    assert remark.startswith("1 of 1 backward-weight (W) problem that the run calls is slow (slow: more than 3 × ")
    assert "loses ≈ 4 ms in the run" in remark
    [remark] = [x.message for x in slow_wrw.find(planted(), Settings()) if x.problem is None]
    assert remark.startswith(
        "1 of 1 backward-weight (W) problem is slow (slow: more than 3 × the slower of F (forward) "
    )


def test_factor_and_floor_are_settings() -> None:
    assert len(find_slow_gradients(make_pass_tables(100.0, 100.0, 250.0), Settings(slow_factor=2.0))) == 1
    assert find_slow_gradients(make_pass_tables(100.0, 100.0, 350.0), Settings(slow_floor_ms=0.35)) == []


def test_saving_needs_calls() -> None:
    [without] = find_slow_gradients(make_pass_tables(100.0, 200.0, 700.0))
    assert (without.calls, without.saving_us) == (None, None)
    logged = replace(W, mode=None)  # another text of the same layer, linked
    [weighed] = find_slow_gradients(
        make_pass_tables(100.0, 200.0, 700.0, calls=[call(logged.text)], workload=[work(logged.text, 8)])
    )
    assert (weighed.calls, weighed.saving_us) == (8, 4000.0)
    [uncounted] = find_slow_gradients(make_pass_tables(100.0, 200.0, 700.0, workload=[work(logged.text, None)]))
    assert uncounted.saving_us is None


def test_estimates_and_picks_are_no_measurements() -> None:
    rows = [
        measurement(F.text, "miopen:A", 100.0),
        measurement(W.text, "miopen:A", 900.0),
        measurement(W.text, "miopen:B", 1.0, origin="driver-list"),
        measurement(W.text, "miopen:B", 1.0, origin="miopen-chosen"),
    ]
    assert [x.per_call_us for x in find_slow_gradients(tables(measurements=rows))] == [800.0]


@pytest.mark.parametrize(
    ("ran", "us", "elsewhere", "still"),
    [
        ("miopen:B", 150.0, "gfx942", False),
        ("miopen:B", 350.0, "gfx942", True),  # not fast enough either
        ("miopen:A", 150.0, "gfx942", True),  # the slow solver runs
        ("miopen:B", 150.0, "gfx90a", True),
    ],
)
def test_a_slow_solver_that_did_not_run_is_no_finding(ran: str, us: float, elsewhere: str, still: bool) -> None:
    """A slow solver in MIOpen's database is not reported if the job's log shows that a faster one ran."""
    rows = [
        measurement(F.text, "miopen:A", 100.0),
        measurement(W.text, "miopen:A", 900.0),
        measurement(W.text, ran, None, origin="miopen-chosen", source_id="log"),
        measurement(W.text, "miopen:B", us, origin="miopen-log", source_id="log"),
    ]
    t = tables(measurements=rows, facts=[*facts("m", arch="gfx942"), *facts("log", arch=elsewhere)])
    assert any(x.evidence.shown["source_id"] == "m" for x in find_slow_gradients(t)) is still


def test_a_log_that_is_fine_needs_no_remark() -> None:
    assert slow_wrw.find(make_pass_tables(100.0, 100.0, 120.0), Settings()) == []
    assert (
        len(slow_wrw.find(make_pass_tables(100.0, 100.0, 120.0, facts=facts("m", find_db="system")), Settings())) == 1
    )


def test_siblings_are_of_the_same_file() -> None:
    t = tables(
        measurements=[
            measurement(F.text, "miopen:A", 100.0, source_id="one"),
            measurement(W.text, "miopen:B", 900.0, source_id="two"),
        ]
    )
    assert find_slow_gradients(t) == []


def test_expected_time_comes_from_other_layers_on_the_same_gpu() -> None:
    """How long a weight gradient should take is estimated from other layers that were measured on the same GPU.

    Neither the slow weight gradient itself nor times from another GPU are used.
    """
    layers = [replace(W, n=n, c=c, k=k, groups=1) for n in (8, 16, 40) for c in (64, 130, 300) for k in (64, 130, 300)]
    known = [(x, 5 + 1e-8 * float(x.flops or 0)) for x in layers]
    odd = replace(W, n=20, c=200, k=200, groups=1)
    rows = [measurement(x.text, "miopen:A", us, source_id="db") for x, us in known]
    rows += [measurement(replace(odd, direction=d).text, "miopen:A", 100.0, source_id="db") for d in ("F", "B")]
    rows.append(measurement(odd.text, "miopen:naive", 9000.0, source_id="db"))
    given = tables(measurements=rows, facts=facts("db", arch="gfx90a", cu_count="77"))
    [found] = find_slow_gradients(given)
    true = 5 + 1e-8 * float(odd.flops or 0)
    us = comparable_w(given, [odd.text], {"arch": "gfx90a", "cu_count": "77"})[odd.text]
    words = str(found.evidence.details[BESIDE])
    assert f"W convolutions of similar size take {duration(us)}" in words
    assert words not in found.message
    assert us == pytest.approx(true, rel=0.25)
    assert comparable_w(given, [odd.text], {"arch": "gfx90a", "cu_count": "78"}) == {}
    assert comparable_w(given, [odd.text], {}) == {}


def test_a_solver_that_another_device_runs_it_faster_with_is_named() -> None:
    t = planted()
    times = (("GemmWrw", 90.0), ("ConvX", 95.0))
    other = [measurement(W.text, f"miopen:{name}", us, source_id="e") for name, us in times]
    held = tables(
        workload=[work(W.text, 8)],
        facts=[*MI300X, *facts("e", arch="gfx942", cu_count="80")],
        measurements=[*t.measurements.to_dict("records"), *other],
    )
    (found,) = find_slow_gradients(held, Settings(target={"arch": "gfx942", "cu_count": "304"}))
    of_shipped_times = (
        "a more cautious aim: W convolutions of similar size take 259 µs, and with such a time the run saves ≈ 3.53 ms"
    )
    as_long = (
        "the best known solver of W, ConvHipImplicitGemmGroupWrwXdlops, takes 700 µs, 3.5 × as long as B (200 µs), the "
        "slower of F and B. If a search finds a solver for W as fast as B, the run saves ≈ 4 ms"
    )
    assert found.message == f"{as_long}. On gfx942 with 80 CUs GemmWrw takes 90 µs"
    assert found.evidence.details[BESIDE] == of_shipped_times
    assert found.evidence.details[THEN] == "the time of its B"
    assert found.advice == slow_wrw.TUNE_ELSEWHERE
    (alone,) = find_slow_gradients(t)
    assert (alone.advice, "On gfx942" in alone.message) == (slow_wrw.TUNE, False)
    assert alone.message.endswith("the run saves ≈ 4 ms" if alone.calls else "a call saves ≈ 500 µs")


def test_a_device_without_a_known_number_of_cus_is_not_named() -> None:
    t = planted()
    other = measurement(W.text, "miopen:GemmWrw", 90.0, source_id="e")
    rows = [*t.measurements.to_dict("records"), other]
    held = tables(workload=[work(W.text, 8)], facts=[*MI300X, *facts("e", arch="gfx942")], measurements=rows)
    (found,) = find_slow_gradients(held, Settings(target={"arch": "gfx942", "cu_count": "304"}))
    assert "CUs" not in found.message


def test_several_devices_weigh_nothing_until_one_is_the_target() -> None:
    rows = [
        measurement(p.text, "miopen:A", t, source_id=s)
        for s, ts in (("a", (100.0, 500.0)), ("b", (100.0, 800.0)))
        for p, t in zip((F, W), ts, strict=True)
    ]
    t = tables(
        measurements=rows,
        workload=[work(W.text, 10)],
        facts=[*facts("a", arch="gfx90a", cu_count="104"), *facts("b", arch="gfx942", cu_count="304")],
    )
    assert [(x.per_call_us, x.saving_us) for x in find_slow_gradients(t)] == [(400.0, None), (700.0, None)]
    target = Settings(target={"arch": "gfx942:sramecc+:xnack-", "cu_count": "304"})
    assert [(x.per_call_us, x.saving_us) for x in find_slow_gradients(t, target)] == [(700.0, 7000.0)]


def test_gpu_names_and_architectures_are_matched() -> None:
    """A file that only names its GPU and a file that states architecture and compute units can be from the same GPU."""
    # MIOpenDriver prints only the name, for example "AMD Instinct MI300X". The name of a database file states gfx942
    # and 304 compute units. The times of both are compared with each other.
    rows = [
        measurement(p.text, "miopen:A", t, source_id=s)
        for s, ts in (("db", (100.0, 500.0)), ("driver", (100.0, 800.0)))
        for p, t in zip((F, W), ts, strict=True)
    ]
    where = [*facts("db", arch="gfx942", cu_count="304"), *facts("driver", device="AMD Instinct MI300X")]
    t = tables(measurements=rows, workload=[work(W.text, 10)], facts=where)
    assert [(x.per_call_us, x.saving_us) for x in find_slow_gradients(t)] == [(400.0, 4000.0)]


@pytest.mark.parametrize("elsewhere", [{"arch": "gfx90a", "cu_count": "104"}, {"arch": "gfx942", "cu_count": "304"}])
def test_a_run_is_judged_by_its_own_files(elsewhere: dict[str, str]) -> None:
    """A weight gradient that is slow in this run is reported, even if it was faster in another run.

    The other run may come from another GPU, or from the time before a change.
    """
    rows = [
        measurement(p.text, "Default", t, source_id=s)
        for s, ts in (("m", (100.0, 500.0)), ("earlier", (100.0, 110.0)))
        for p, t in zip((F, W), ts, strict=True)
    ]
    t = tables(measurements=rows, workload=[work(W.text, 10)], facts=[*MI300X, *facts("earlier", **elsewhere)])
    sources = pd.DataFrame(
        {"source_id": ["m", "earlier"], "run": [t.run, "another"], "path": ["m.csv", "e.csv"], "format": "table"}
    )
    found = find_slow_gradients(replace(t, sources=sources))
    assert [(x.per_call_us, x.saving_us, x.evidence.source_id) for x in found] == [(400.0, 4000.0, "m")]
    [summary] = [
        x
        for x in slow_wrw.find(replace(t, sources=sources), Settings())
        if x.evidence.source_id == "m" and x.problem is None
    ]
    assert "1 of 1 backward-weight (W) problem is slow" in summary.message


def test_a_tuned_user_file_counts_for_its_device() -> None:
    rows = [
        measurement(p.text, "miopen:A", t, source_id=s)
        for s, ts in (("system", (100.0, 900.0)), ("user", (100.0, 150.0)))
        for p, t in zip((F, W), ts, strict=True)
    ]
    where = [*facts("system", arch="gfx942", cu_count="304"), *facts("user", arch="gfx942", cu_count="304")]
    assert find_slow_gradients(tables(measurements=rows, facts=where)) == []


def test_signs() -> None:
    [naive] = find_slow_gradients(
        tables(
            measurements=[
                measurement(F.text, "miopen:ConvAsm", 100.0),
                measurement(W.text, "miopen:ConvDirectNaiveConvWrw", 1000.0),
                measurement(W.text, "miopen:GemmWrwUniversal", 10_001.0),
            ]
        )
    )
    assert naive.message.endswith(". The naive solver is the fastest known solver")
    [plain] = find_slow_gradients(make_pass_tables(100.0, 100.0, 1000.0))
    assert "naive" not in plain.message


def test_without_siblings_nothing_is_claimed() -> None:
    assert find_slow_gradients(make_pass_tables(None, None, 500.0, facts=MI300X)) == []
    summary = slow_wrw.find(
        make_pass_tables(None, None, 500.0, facts=facts("m", arch="gfx1100", find_db="user")), Settings()
    )[0]
    assert (
        summary.message
        == "0 of 1 backward-weight (W) problem are slow; 1 have no F or B time in the file; times of m, gfx1100"
    )


def test_the_worst_is_named_by_calls_times_the_time_above_the_slower_of_f_and_b() -> None:
    """The summary of a file names the convolution that loses most in the run. It need not have the slowest call."""
    often, once = W, replace(W, k=512)
    rows = [
        measurement(replace(p, direction=d).text, "miopen:A", us)
        for p, w_us in ((often, 500.0), (once, 900.0))
        for d, us in (("F", 80.0), ("B", 100.0), ("W", w_us))
    ]
    calls = [work(often.text, 10), work(once.text, 1)]
    summary = slow_wrw.find(tables(measurements=rows, workload=calls, facts=MI300X), Settings())[0]
    lost = (
        f"of the layer): in the run they lose ≈ 4.8 ms, and {often.label} loses most: ≈ 4 ms; times of m, gfx942, "
        "304 CUs"
    )
    assert summary.message.endswith(lost)
    uncounted = slow_wrw.find(tables(measurements=rows, facts=MI300X), Settings())[0]
    in_all = (
        "of the layer): one call of each takes 1.4 ms in all, ≈ 1.2 ms more than the slower of F and B; times of m, "
        "gfx942, 304 CUs"
    )
    assert uncounted.message.endswith(in_all), "no log counts the calls"


def test_totals() -> None:
    other = {x: replace(y, k=512) for x, y in {"F": F, "W": W}.items()}
    t = tables(
        measurements=[
            measurement(F.text, "miopen:A", 100.0),
            measurement(W.text, "miopen:A", 700.0),
            measurement(W.text, "miopen:B", 600.0),
            measurement(W.text, "miopen:C", None),
            measurement(other["F"].text, "miopen:A", 100.0),
            measurement(other["W"].text, "miopen:A", 200.0),
        ]
    )
    total = slow_wrw.totals(slow_wrw.backward_weights(find_best_pass_times(t), Settings()))
    assert total == {
        "problems": 2,
        "slow": 1,
        "without_siblings": 0,
        "held_us": 600.0,
        "recoverable_us": 500.0,
        "w_us": 800.0,
    }


def test_devices() -> None:
    assert {x.name for x in devices()} >= {"MI300X", "MI300A", "MI250X", "MI210", "MI100", "MI350X", "MI355X"}
    assert {x.name for x in devices()} >= {"H100", "H200", "A100"}
    assert all(x.source and x.hbm_gbs > 0 and x.peaks and x.cache_bytes for x in devices())
    by_name = device_of({"device": "AMD Instinct MI355X", "arch": "gfx950", "cu_count": "256"})
    assert by_name is not None
    assert by_name.name == "MI355X"
    by_arch = device_of({"arch": "gfx90a:sramecc+:xnack-", "cu_count": "110"})
    assert by_arch is not None
    assert by_arch.name == "MI250X"
    assert device_of({"arch": "gfx942", "cu_count": "80"}) is None
    assert device_of({}) is None


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"device": "AMD Radeon RX 9070 XT"}, "RX 9070 XT"),
        ({"device": "AMD Radeon RX 9070"}, "RX 9070"),
        ({"arch": "gfx1201", "cu_count": "28"}, "RX 9070"),
        ({"arch": "gfx1100", "cu_count": "48"}, "PRO W7900"),  # slower than the RX 7900 XTX, with as many WGPs
        ({"arch": "gfx1100", "cu_count": "96"}, None),
    ],
)
def test_radeons_are_known_by_name_or_by_the_wgps_that_hip_counts(facts: dict[str, str], name: str | None) -> None:
    found = device_of(facts)
    assert (found.name if found else None) == name


def test_roofline_is_the_longer_of_computing_and_moving() -> None:
    device = device_of({"device": "H200"})
    assert device is not None
    assert device.least_us(989.4e6, 0.0, "f16_r") == pytest.approx(1.0)
    assert device.least_us(0.0, 4800e3, "f16_r") == pytest.approx(1.0)
    assert device.least_us(1.0, 1.0, "f4_r") is None


def kernel(problem: str, name: str, us: float, calls: int = 4) -> dict[str, object]:
    row = {"source_id": "trace", "run": "r", "op": "aten::convolution_backward", "problem": problem, "kernel": name}
    return row | {"calls": calls, "total_us": us * calls, "min_us": us, "max_us": us}


def make_trace_tables(w_us: float, **known: str) -> Tables:
    """Return the trace of four steps of a job with a single convolution layer.

    Its weight gradient launches two kernels in each step and takes ``w_us`` µs in each.
    """
    rows = [kernel(F.text, "igemm_fwd", 100.0), kernel(B.text, "igemm_bwd", 200.0)]
    rows += [kernel(W.text, "batched_transpose", 20.0), kernel(W.text, "igemm_wrw", w_us - 20.0)]
    return tables(
        kernels=rows,
        calls=[call(p.text, count=4, source_id="trace", category="profiler") for p in (F, B, W)],
        workload=[work(p.text, 4, calls_from="profiler") for p in (F, B, W)],
        facts=facts("trace", **known),
    )


def test_a_trace_shows_a_slow_w_weighted_by_its_calls() -> None:
    [found] = find_slow_gradients(make_trace_tables(700.0, device="AMD Instinct MI300X", cu_count="304"))
    assert (found.per_call_us, found.calls, found.saving_us) == (500.0, 4, 2000.0)
    assert found.evidence.shown["solution"] == "kernel:igemm_wrw"
    as_long = (
        "W takes 700 µs with igemm_wrw, 3.5 × as long as B (200 µs), the slower of F and B. If W gets as fast as B, "
        "the run saves ≈ 2 ms"
    )
    assert found.message == as_long, "the job's own time, not the best known one"
    assert found.advice is not None
    assert "MIOpen" in found.advice
    assert find_slow_gradients(make_trace_tables(590.0)) == []


@pytest.mark.parametrize("known", [{"arch": "sm_90"}, {"device": "NVIDIA H200"}, {"backend": "CUDA"}])
def test_advice_on_nvidia_is_to_measure_with_logparse(known: dict[str, str]) -> None:
    """On NVIDIA, the user is advised to measure other kernels with ``logparse replay``.

    No NVIDIA tool searches for faster kernels as MIOpen does.
    """
    [found] = find_slow_gradients(make_trace_tables(700.0, **known))
    assert found.advice == slow_wrw.TUNE_CUDNN
    assert found.remedy == Replay()
    [amd] = find_slow_gradients(make_trace_tables(700.0, arch="gfx942"))
    assert amd.remedy == Search()


def test_a_trace_beside_a_find_db_of_its_device_is_weighted_too() -> None:
    both = make_trace_tables(700.0, device="AMD Instinct MI300X", cu_count="304")
    rows = make_pass_tables(100.0, 200.0, 800.0).measurements
    found = find_slow_gradients(
        replace(both, measurements=rows, facts=pd.concat([both.facts, tables(facts=MI300X).facts]))
    )
    assert [(x.per_call_us, x.calls) for x in found] == [(500.0, 4)]  # the smaller loss of one device


@pytest.mark.parametrize(
    ("known", "named"),
    [
        ({"arch": "gfx942", "miopen_version": "3.3.0"}, True),
        ({"arch": "gfx942", "miopen_version": "3.4.0"}, False),
        ({"arch": "gfx90a", "miopen_version": "3.3.0"}, False),
        ({"arch": "gfx942"}, False),
    ],
)
def test_the_known_issue_of_miopen_3_3_0_is_named(known: dict[str, str], named: bool) -> None:
    """If the run used MIOpen 3.3.0 on an MI300X, the advice names ROCm issue 4080 and another MIOpen version.

    Other versions and GPUs do not have this issue.
    """
    given = replace(planted(), facts=frame("facts", facts("m", **known)))
    (one,) = [x for x in slow_wrw.find(given, Settings()) if x.problem is not None]
    assert one.advice is not None
    assert ("ROCm issue 4080" in one.advice) is named
