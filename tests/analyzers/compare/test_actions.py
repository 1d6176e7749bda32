"""Tests of the verdicts of ``logparse verify``: did a change of settings or of the model make a job faster?

The jobs are made up, and the right verdicts were computed by hand.
"""

# verify must compare steps of the same kind, tell computation from communication, and use wall-clock time.

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import pandas as pd
import pytest

from analyzers.actions import ACTIONS
from analyzers.actions.totals import results
from analyzers.compare import actions
from analyzers.compare.actions import verify_actions
from analyzers.compare.proof import ActionProof
from analyzers.compare.proof_text import answer, lines
from analyzers.compare.unit_time import SideBySide, UnitTime, unit_time
from analyzers.evidence.origins import ACTION
from analyzers.evidence.statistics.distributions import student_t_quantile
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import Units, scale_to_average_unit, units
from analyzers.job.step.answer import Ceilings, StepAnswer
from logparse.errors import InputError
from logparse.model import DEFAULT, ConvProblem, Gain
from logparse.output import CHECK_FAILED
from tests.analyzers.build import measurement, tables

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
FASTER = 0.8
"""The time of a convolution with the change (cuDNN tries all its algorithms), divided by the time without it."""


def conv(batch: int) -> ConvProblem:
    return ConvProblem(
        direction="F", n=batch, c=8, h=4, w=4, k=8, filter_h=1, filter_w=1, pad_h=0, pad_w=0, stride_h=1, stride_w=1,
        dilation_h=1, dilation_w=1, out_h=4, out_w=4, groups=1,
        **dict.fromkeys(("in_type", "weights_type", "out_type"), "FP16"),
        **dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NCHW"),
    )  # fmt: skip


class Kind:
    """One kind of step in a made-up job. All times are in µs.

    * ``conv_us``, ``other_us`` and ``talk_us`` are the times of convolutions, of other computation and of collectives
      in one step.
    * ``wall`` has the wall-clock times of the steps.
    """

    def __init__(
        self, batch: int, count: int, traced: int, conv_us: float, other_us: float = 0.0, talk_us: float = 0.0,
        wall: Sequence[float] = (),
    ) -> None:  # fmt: skip
        self.name, self.batch, self.count, self.traced = f"float16[{batch}, 3]", batch, count, traced
        self.times = {"aten::conv": conv_us, "aten::add": other_us, "c10d::allreduce": talk_us}
        self.wall = list(wall)

    def kernels(self) -> list[dict[str, object]]:
        names = {"aten::conv": "conv_kernel", "aten::add": "add", "c10d::allreduce": NCCL}
        return [
            {
                "op": op,
                "kernel": names[op],
                "problem": conv(self.batch).text if op == "aten::conv" else None,
                "calls": self.traced,
                "total_us": us * self.traced,
                "unit": self.name,
            }
            for op, us in self.times.items()
            if us and self.traced
        ]


def steady(us: float, spread: float = 0.002) -> list[float]:
    """Return forty times that vary slightly around ``us``, as the steps of a job on a quiet machine do."""
    return [us * (1 + spread * (-1) ** i * (1 + i % 3)) for i in range(40)]


def job(
    run: str,
    *kinds: Kind,
    ratio: float = FASTER,
    more: Mapping[str, Mapping[str, object]] | None = None,
    ratios: Mapping[str, float] | None = None,
) -> Tables:
    """Return made-up measurements of a job with steps of the given kinds.

    * ``ratio`` and ``ratios`` are (time with the change) / (time without it), for all convolutions or per kernel.
    * ``more`` adds facts about the job's files.
    """
    # The measurements are the steps, and the times of the convolutions. ratios has the form {kernel: ratio}, and more
    # has the form {file: {name: value}}.
    held = {x.name: json.dumps({"count": x.count, "traced": x.traced, "us": x.wall}) for x in kinds}
    facts: dict[str, dict[str, object]] = {
        "units": {"unit": "optimizer", "unit_tracing": "settled"} | {f"unit:{name}": x for name, x in held.items()},
        "trace": {"arch": "sm_90"},
    }
    if any(x.traced for x in kinds):
        traced = {x.name: x.traced for x in kinds if x.traced}
        facts["trace"] |= {"unit_kinds": json.dumps(traced), "profiler_steps": sum(traced.values())}
    for source, values in (more or {}).items():
        facts[source] = facts.get(source, {}) | dict(values)
    place = {"source_id": "trace", "run": run, "device": 0}
    texts = [(conv(x.batch).text, x.traced) for x in kinds]
    samples = {DEFAULT.text: 100.0} | {x: 100.0 * y for x, y in (ratios or {"torch:benchmark": ratio}).items()}
    made = tables(
        run,
        kernels=[place | row for x in kinds for row in x.kernels()],
        calls=[
            {"source_id": "trace", "run": run, "category": "profiler", "kind": "conv", "problem": text, "count": count,
             "pid": 1, "by_tool": False}
            for text, count in texts if count
        ],
        workload=[
            {"run": run, "pid": 1, "kind": "conv", "problem": text, "calls": count, "calls_from": "profiler"}
            for text, count in texts if count
        ],
        measurements=[
            measurement(text, solution, us, source_id="replay", run="before", origin=ACTION, samples_us=[us] * 3)
            for text, _ in texts
            for solution, us in samples.items()
        ],
        facts=[
            {"source_id": source, "run": run, "name": name, "value": str(value)}
            for source, values in facts.items()
            for name, value in values.items()
        ],
    )  # fmt: skip
    return scale_to_average_unit(made)


def verify_and_check(before: Tables, after: Tables, **more: object) -> ActionProof:
    found = verify_actions(before, after, ["cudnn_benchmark"], **more)  # type: ignore[arg-type]
    printed = lines(found)
    assert printed[0].startswith(f"{found.verdict}: ")
    assert len(printed) <= 12
    assert max(map(len, printed)) <= 100
    assert answer(found).code == (0 if found.verdict == "verified" else CHECK_FAILED)
    return found


def unwrap_lines(found: ActionProof) -> list[str]:
    """Return the lines that ``verify`` prints, without indentation. Lines that were wrapped are joined again."""
    return [x.strip() for x in "\n".join(lines(found)).replace("\n    ", " ").split("\n")]


def simple(run: str, conv_us: float, wall: Sequence[float], **more: float) -> Tables:
    return job(run, Kind(8, 100, 6, conv_us, more.get("other_us", 1000.0), more.get("talk_us", 0.0), wall))


def test_a_gain_in_kernels_and_wall_time_is_verified() -> None:
    """A change is "verified" if both the kernels and the whole step became faster by as much as was promised."""
    # Here convolutions take 1 ms of the 2 ms of all kernels. The change promises to save a fifth of the 1 ms, and it
    # does save 0.2 ms.
    found = verify_and_check(simple("before", 1000, steady(2500)), simple("after", 800, steady(2300)))
    assert found.verdict == "verified"
    assert (found.unit, found.promised.then_us, found.measured) == ("step", 1800, Gain(2000, 1800))
    assert found.wall is not None
    assert found.wall.saving_us == pytest.approx(200, rel=0.01)
    assert (found.wall.saving_low_us or 0) > 0
    assert [(x.name, x.promised.then_us) for x in found.groups] == [("convolution", 800), ("aten::add", 1000)]


def test_shorter_waits_in_nccl_kernels_are_no_gain() -> None:
    """If NCCL's kernels get shorter only because they wait less, a change gets no credit for that."""
    # In this DDP job all kernels took 52.1 ms before and 43.1 ms after the change, but the step got no faster. NCCL's
    # kernels account for 7.7 ms of the difference.
    before = job("before", Kind(8, 100, 6, 15000, 15000, 22100, steady(39700)), ratio=0.95)
    after = job("after", Kind(8, 100, 6, 13700, 15000, 14400, steady(41500)), ratio=0.95)
    found = verify_and_check(before, after)
    assert found.verdict == "took effect, not faster"
    assert found.refuted
    assert found.measured.now_us + found.collectives_us[0] == pytest.approx(52100)
    assert found.measured.then_us + found.collectives_us[1] == pytest.approx(43100)
    assert times(found) == pytest.approx((30000, 29250, 28700))
    assert (
        "exposed communication changed by -7.7 ms (22.1 ms → 14.4 ms), "
        "which the change does not explain" in unwrap_lines(found)
    )
    assert not found.faster


def test_a_setting_in_use_promises_no_further_gain() -> None:
    """logparse promises no gain from a setting that the program already uses, such as ``cudnn.benchmark``.

    The program may set it by itself, or its user may have followed logparse's advice.
    """
    kinds = Kind(8, 100, 6, 1000, 1000, 0, steady(2500))
    channels = {"torch:layout=NHWC,stored": 0.7, "torch:layout=NHWC,stored,benchmark": 0.6, "torch:benchmark": 0.8}

    def offered(settings: str) -> dict[str, float]:
        held = job("before", kinds, ratios=channels, more={"units": {"job_settings": settings}})
        return {x.action.name: x.then_us / x.now_us for x in results(held, ACTIONS, Settings())}

    now = offered("blas=cublas")
    assert (now["cudnn_benchmark"], now["channels_last_benchmark"]) == pytest.approx((0.9, 0.8))
    after = offered("cudnn_benchmark blas=cublas")
    assert after["cudnn_benchmark"] == 1, "apply.py has it still, as the program may apply it by name"
    assert (after["channels_last"], after["channels_last_benchmark"]) == pytest.approx((0.875, 0.875)), "0.6 of 0.8"


def server(run: str, counts: Sequence[int], traced: Sequence[int], ratio: float) -> Tables:
    """Return a run of a server with batches of 1, 4 and 16.

    ``counts`` and ``traced`` have the number of steps of each batch size. ``ratio`` multiplies the time of the
    convolutions.
    """
    # counts has the numbers in the run, traced the numbers in the trace. With ratio 1, the convolutions take half of
    # the kernels' time.
    each = zip((1, 4, 16), counts, traced, (200, 400, 1200), (1000, 1500, 3000), strict=True)
    kinds = (
        Kind(batch, n, held, us * ratio, us, 0, steady(wall * (0.5 + ratio / 2))) for batch, n, held, us, wall in each
    )
    return job(run, *kinds)


def test_other_batch_sizes_are_no_gain() -> None:
    """If the second run serves other batch sizes, ``verify`` computes both times for the first run's mix of sizes.

    The first run has 60 %, 30 % and 10 % of batches 1, 4 and 16: 0.6 · 400 + 0.3 · 800 + 0.1 · 2400 = 720 µs.
    Convolutions take half of the 720 µs, and a fifth of their time is saved: 72 µs. Without this correction, the traces
    would show 1680 µs before and 864 µs after.
    """
    before, after = server("before", (60, 30, 10), (1, 1, 3), 1.0), server("after", (10, 30, 60), (3, 1, 1), 0.8)
    found = verify_and_check(before, after)
    assert times(found) == pytest.approx((720, 648, 648))
    assert found.wall is not None
    assert found.wall.now_us == pytest.approx(0.6 * 1000 + 0.3 * 1500 + 0.1 * 3000, rel=0.01)
    assert found.wall.saving_us == pytest.approx(135, rel=0.02)
    assert found.verdict == "verified"
    assert found.share == 1


def test_batch_sizes_that_one_run_lacks_are_left_out() -> None:
    """If the second run has no trace of one batch size, ``verify`` compares the other sizes, and the output says so."""
    # Batch 16 is missing. It takes 300 of the 1350 µs in the first run, so (1350 − 300) / 1350 = 78 % of the time can
    # be compared.
    before, after = server("before", (60, 30, 10), (1, 1, 3), 1.0), server("after", (10, 30, 60), (3, 1, 0), 0.8)
    found = verify_and_check(before, after)
    assert found.share == pytest.approx(1050 / 1350, rel=0.01)
    assert (found.measured.now_us, found.measured.then_us) == pytest.approx(
        ((60 * 400 + 30 * 800) / 90, (60 * 360 + 30 * 720) / 90)
    )
    assert found.promised.then_us == pytest.approx(found.measured.then_us)
    assert "kinds of steps that both runs have take 78 % of the time of before".replace(" %", "%") in unwrap_lines(
        found
    )


def test_runs_that_do_other_units_are_another_workload() -> None:
    before = job("before", Kind(8, 100, 6, 1000, 1000, 0, steady(2500)))
    assert (
        verify_and_check(before, job("after", Kind(16, 100, 6, 800, 1000, 0, steady(2300)))).verdict
        == "another workload"
    )
    mostly = job("before", Kind(8, 10, 6, 1000, 1000, 0, steady(2500)), Kind(4, 90, 6, 900, 900, 0, steady(2000)))
    found = verify_and_check(mostly, simple("after", 800, steady(2300)))
    assert (found.verdict, round(found.share, 2)) == ("another workload", 0.12)


def test_a_step_and_a_call_are_not_compared() -> None:
    """``verify`` does not compare times of training steps with times of single model calls.

    Both are named after the sizes of their tensors, so a step and a call can have the same name.
    """
    call = job("after", Kind(8, 100, 6, 800, 1000, 0, steady(2300)), more={"units": {"unit": "module"}})
    found = verify_and_check(simple("before", 1000, steady(2500)), call)
    assert (found.verdict, found.share) == ("another workload", 0)
    assert not [x for x in unwrap_lines(found) if x.startswith("computation")], "nothing equal is there to compare"


def test_kernels_that_stay_as_they_are_show_no_effect() -> None:
    before = simple("before", 1000, steady(2500))
    assert verify_and_check(before, simple("after", 1001, steady(2500))).verdict == "had no effect"
    assert verify_and_check(before, simple("after", 1001, [])).verdict == "had no effect", "their time alone shows it"
    slower = verify_and_check(before, simple("after", 1300, []))
    assert slower.verdict == "took effect, not faster"


def test_a_gain_far_outside_of_the_promise_is_no_pass() -> None:
    found = verify_and_check(simple("before", 1000, steady(2500)), simple("after", 800, steady(1700), other_us=400.0))
    assert found.verdict == "another workload"
    assert not found.refuted
    assert [x.name for x in found.unexplained] == ["aten::add"]
    assert (
        "kinds of kernels whose time fell far more than `recommend` promised, for an unknown reason: aten::add 1 ms → "
        "400 µs" in unwrap_lines(found)
    )
    same = verify_and_check(simple("before", 1000, steady(2500)), simple("after", 800, steady(2500), other_us=400.0))
    assert same.verdict == "took effect, not faster"
    beside = (make_units("a", 2500, 2501, 2502), make_units("b", 1700, 1701, 1702))
    proven = verify_and_check(
        simple("before", 1000, steady(2500)), simple("after", 800, steady(1700), other_us=400.0), times=beside
    )
    assert (proven.verdict, proven.ok) == ("faster, not as promised", False), "by turns both did the same work"
    assert (
        "kinds of kernels whose time fell far more than `recommend` promised, for an unknown reason: aten::add 1 ms → "
        "400 µs" in unwrap_lines(proven)
    )


def test_a_gain_below_the_promise_does_not_pass() -> None:
    """If a change makes the job faster, but by less than was promised, the verdict is "faster, not as promised"."""
    # The promise is 200 µs, but the gain is only 40 µs. The gain is real, because two equal runs differ by less than
    # that.
    found = verify_and_check(simple("before", 1000, steady(2500)), simple("after", 960, steady(2450)))
    assert found.verdict == "faster, not as promised"
    assert not found.refuted, "the step is faster, so what was applied stays"
    beside = (make_units("a", 2500, 2501, 2502), make_units("b", 2300, 2301, 2302))
    found = verify_and_check(simple("before", 1000, steady(2500)), simple("after", 1000, steady(2500)), times=beside)
    assert found.verdict == "faster, not as promised", "kernels as they were, and a step that is faster all the same"


@pytest.mark.parametrize("wall_us", [3000, 1900])
def test_gain_beyond_the_kernels_is_credited_to_the_host(wall_us: float) -> None:
    """If the wall-clock time changes by more than the kernels did, the verdict is "time unknown".

    The reason may be the host. Two jobs on H200s showed this:

    * With DDP, computation gained 1.74 ms as promised, but another job on the host made the step lose 18.8 of 32.7 ms.
    * With FSDP, computation gained 10.3 ms, and the step gained 14.7 of 51.3 ms. When the two versions ran in
      alternation, the step gained only 3 ms.
    """
    before, after = simple("before", 1000, steady(2500)), simple("after", 800, steady(wall_us))
    found = verify_and_check(before, after)
    assert found.verdict == "time unknown"
    assert not found.refuted
    said = (
        "the kernels do not explain this difference; the host or communication may differ between two starts of the job"
    )
    assert said in unwrap_lines(found)
    beside = verify_and_check(
        before, after, times=(make_units("a", 2500, 2501, 2502), make_units("b", wall_us, wall_us + 1, wall_us - 1))
    )
    assert beside.verdict == ("verified" if wall_us < 2500 else "took effect, not faster"), "there the host is the same"


def times(found: ActionProof) -> tuple[float, float, float]:
    """Return three times of a job's kernels in µs: before the change, as promised, and after the change."""
    return found.measured.now_us, found.promised.then_us, found.measured.then_us


def make_step_answer(
    now_us: float, then_us: float, free_kernels_us: float, error: float = 0.05, launch_us: float = 4.0
) -> StepAnswer:
    ends = (then_us * (1 - error), then_us * (1 + error))
    ceilings = Ceilings(now_us, now_us, now_us, free_kernels_us)
    about = {"limit": "host", "host_factor": 1.0, "launch_us": launch_us, "rough": False, "shares": {}}
    return StepAnswer(now_us, then_us, *ends, ceilings=ceilings, **about)


def test_the_gain_is_compared_with_the_simulated_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """``verify`` compares the measured gain of a step with the gain that a simulation of the step predicts."""
    # Kernels and step get 200 µs faster. But the kernels run during communication, so the simulation predicts only 20
    # µs. The kernels do not explain the other 180 µs, so the verdict is "time unknown". If the simulation predicts 180
    # µs, the verdict is "verified".
    before, after = simple("before", 1000, steady(2500)), simple("after", 800, steady(2300))
    monkeypatch.setattr(actions, "step_of", lambda *_: make_step_answer(2500, 2480, 2000, 0.01))
    found = verify_and_check(before, after)
    assert found.verdict == "time unknown"
    assert "promised for the wall time, by simulation: 20 µs [-4.8 µs, 44.8 µs]" in unwrap_lines(found)
    monkeypatch.setattr(actions, "step_of", lambda *_: make_step_answer(2500, 2320, 2000, 0.01))
    assert verify_and_check(before, after).verdict == "verified"


@pytest.mark.parametrize(
    ("free_us", "before_us", "fewer_us", "verdict"),
    [
        (2490, (2500, 2900, 2600), 0, "took effect, not faster"),
        (2300, (2500, 2900, 2600), 0, "time unknown"),  # the spread of the units may hide a gain of kernels
        # The step seems to be faster, but kernels cannot be the reason.
        (2490, (2800, 2801, 2802), 0, "time unknown"),
        (2490, (2500, 2900, 2600), 89, "took effect, not faster"),
        # The host launches so much less that the step may be faster.
        (2490, (2500, 2900, 2600), 91, "time unknown"),
    ],
)
def test_a_host_bound_step_is_not_made_faster_by_kernels(
    free_us: float, before_us: tuple[float, ...], fewer_us: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the host limits the step, faster kernels get the verdict "took effect, not faster".

    On an H200, a step took 26.3 ms, but its kernels only 3.6 ms. Earlier versions of ``verify`` wrongly said "time
    unknown". One version did so because the times of the steps differed by 5 %. A later version did so because the step
    launched 60 kernels less (of 2,404), and each launch takes 3.6 µs.
    """
    before, after = simple("before", 1000, steady(2500)), simple("after", 800, steady(2500))
    after = replace(after, kernels=after.kernels.assign(calls=after.kernels["calls"] * 0.9))
    gone = 0.1 * verify_and_check(before, before).launched[0]
    monkeypatch.setattr(actions, "step_of", lambda *_: make_step_answer(2500, 2500, free_us, launch_us=fewer_us / gone))
    found = verify_and_check(before, after, times=(make_units("a", *before_us), make_units("b", 2500, 2600, 2450)))
    assert found.verdict == verdict
    limit = "the host is the limit: if kernels took no time, a step would take 2.49 ms, not 2.5 ms (simulated)"
    assert (limit in unwrap_lines(found)) == (verdict == "took effect, not faster")
    shares = {"host": 0.3, "kernels": 0.4, "data loading": 0.3 + 1e-9}
    assert replace(found, host_us=-101.0).limit == "", "a replay saw the host save 4 % and more"
    loads = replace(found, step=replace(make_step_answer(2500, 2500, 2490), limit="kernels", shares=shares))
    assert loads.limit.startswith("data loading is the limit: if kernels took no time")
    once = verify_and_check(before, simple("after", 800, steady(2400)))
    assert (once.verdict == "time unknown") == (free_us == 2490), "a faster run at another time proves nothing else"


@pytest.mark.parametrize(
    ("after_us", "launched", "verdict"),
    [
        (995, 1, "had no effect"),
        (1005, 1, "had no effect"),
        # The spread of the units hides 2 % of a step, but the kernels show a gain.
        (960, 1, "time unknown"),
        (800, 1, "time unknown"),
        # The host launches less, which may make the step faster.
        (995, 0.9, "time unknown"),
    ],
)
def test_unchanged_kernel_times_mean_no_effect(after_us: int, launched: float, verdict: str) -> None:
    """If kernels and launches take as long as before a change, the verdict is "had no effect", however steps vary."""
    # On an H200, the kernels of a step of the job "moe" took 20.0 ms before and 19.9 ms after a change. Its steps take
    # 33 ms and vary by 8 %, so a shorter step proves nothing.
    before, after = simple("before", 1000, steady(2500)), simple("after", after_us, steady(2500))
    after = replace(after, kernels=after.kernels.assign(calls=after.kernels["calls"] * launched))
    found = verify_and_check(
        before, after, times=(make_units("a", 2500, 2900, 2600), make_units("b", 2500, 2600, 2450))
    )
    assert found.verdict == verdict
    said = [x for x in unwrap_lines(found) if x.startswith("the kernels and their launches gained at most")]
    assert len(said) == (verdict != "time unknown")
    assert all(x.endswith(" µs, less than 4% of a step") for x in said)


def prefill(run: str, conv_us: float, walls: Sequence[float]) -> Tables:
    """Return a run of a language model's server, which makes two kinds of steps.

    There are ninety steps of 1 ms that generate tokens (decode), and ten steps of about 100 ms that read prompts
    (prefill).
    """
    return job(run, Kind(1, 90, 4, 100, 300, 0, steady(1000)), Kind(16, 10, 2, conv_us, 10000, 0, walls))


def test_untimed_main_steps_give_time_unknown() -> None:
    """If the steps that make up most of the time were not timed, the verdict is "time unknown"."""
    # Here a server alternates between two kinds of steps: it reads prompts (prefill) and generates tokens (decode).
    # Only decoding steps were timed, because the first prefill came after the last timed step. They say nothing about
    # the time of a prefill.
    untimed = verify_and_check(prefill("before", 90_000, []), prefill("after", 72_000, []))
    assert (untimed.verdict, untimed.wall, untimed.refuted) == ("time unknown", None, False)
    timed_too = prefill("before", 90_000, steady(100_000)), prefill("after", 72_000, steady(82_000))
    assert verify_and_check(*timed_too).verdict == "verified"
    turns = [{"float16[1, 3]": 1000.0} for _ in range(20)]
    assert verify_and_check(*timed_too, times=SideBySide(((turns, turns),) * 2)).verdict == "verified", (
        "by the traced runs"
    )


def test_fewer_launches_without_a_time_are_no_proof_of_no_effect() -> None:
    before, after = simple("before", 1000, steady(2500)), simple("after", 995, [])
    assert verify_and_check(before, after).verdict == "had no effect"
    fewer = replace(after, kernels=after.kernels.assign(calls=after.kernels["calls"] * 0.7))
    assert verify_and_check(before, fewer).verdict == "time unknown"


@pytest.mark.parametrize("untimed", ["before", "after"])
def test_without_units_that_no_profiler_slowed_the_time_is_unknown(untimed: str) -> None:
    walls = {"before": steady(2500), "after": steady(2300), untimed: [2000.0] * 4}
    found = verify_and_check(simple("before", 1000, walls["before"]), simple("after", 800, walls["after"]))
    assert (found.verdict, found.wall) == ("time unknown", None)
    assert f"{untimed}: too few steps were timed without the profiler" in unwrap_lines(found)


def test_a_job_that_ends_before_it_settles_has_a_sentence() -> None:
    early = job("after", Kind(8, 4, 0, 800, 1000, 0, [9000, 3000, 2400, 2300]), more={"units": {"unit_tracing": ""}})
    found = verify_and_check(simple("before", 1000, steady(2500)), early)
    assert found.verdict == "time unknown"
    assert (
        "after has no trace with GPU kernels: the job ended before the times of its steps became steady"
        in unwrap_lines(found)
    )


def ranks(run: str, ratio: float, other: Mapping[str, object], alive: bool = True) -> Tables:
    """Return a run of a job with two ranks.

    ``ratio`` multiplies the time of the convolutions. ``other`` adds facts (names with values) about the steps of the
    second rank. If ``alive`` is false, the second rank has no trace.
    """
    more: dict[str, Mapping[str, object]] = {
        "units": {"rank": 0, "ranks": 2},
        "trace": {"rank": 0},
        "units1": {"rank": 1, "ranks": 2, "unit": "optimizer", "unit_tracing": "settled"} | other,
    }
    if alive:
        more["trace1"] = {"rank": 1, "unit_kinds": json.dumps({"float16[8, 3]": 6})}
    return job(run, Kind(8, 100, 6, 1000 * ratio, 1000, 0, steady(2300 + 200 * ratio)), more=more)


def test_ranks_that_cannot_be_compared_have_a_sentence() -> None:
    alike = {"unit:float16[8, 3]": json.dumps({"count": 100, "traced": 6, "us": steady(2500)})}
    fewer = {"unit:float16[8, 3]": json.dumps({"count": 50, "traced": 6, "us": steady(2500)})}
    before = ranks("before", 1.0, alike)
    assert verify_and_check(before, ranks("after", 0.8, alike)).doubts == ()
    dead = verify_and_check(before, ranks("after", 0.8, alike, alive=False))
    assert (dead.verdict, dead.doubts) == ("time unknown", ("rank 1 of after wrote no trace: did the process die?",))
    unlike = verify_and_check(before, ranks("after", 0.8, fewer))
    assert unlike.verdict == "time unknown"
    assert unlike.doubts == ("the ranks of after do different work (50 of step, 100 of step …)",)
    both = verify_and_check(ranks("before", 1.0, alike, alive=False), ranks("after", 0.8, alike, alive=False))
    assert both.doubts == ()
    killed = job("after", Kind(8, 100, 6, 800, 1000, 0, steady(2300)), more={"units": {"rank": 0, "ranks": 2}})
    assert verify_and_check(before, killed).doubts == ("rank 1 of after wrote no units: did the process die?",)


def test_an_action_that_nothing_was_promised_for_is_an_error() -> None:
    before = simple("before", 1000, steady(2500))
    with pytest.raises(
        InputError, match="no replay of run before timed the action tf32: the timed actions are cudnn_benchmark"
    ):
        verify_actions(before, before, ["tf32"])


def make_units(run: str, *walls: float) -> list[Units]:
    return [x for us in walls if (x := units(simple(run, 1000, [us] * 40))) is not None]


def test_alternating_runs_have_students_interval() -> None:
    """The time after a change gets the interval of Student's t-test, from three runs before and three after it."""
    # The runs take 100, 101, 102 µs before and 97, 98, 99 µs after the change. The averages are 101 and 98 µs, each
    # with a variance of 1/3. So there are 4 degrees of freedom, and the interval is 98 ± t · √(1/3 + 1/3).
    found = unit_time(make_units("a", 100, 101, 102), make_units("b", 97, 98, 99), {"float16[8, 3]": 100})
    off = student_t_quantile(0.975, 4) * (2 / 3) ** 0.5
    kinds = ("float16[8, 3]",)
    assert found == UnitTime(101, 98, pytest.approx(98 - off), pytest.approx(98 + off), runs=3, kinds=kinds)
    assert found.faster
    unsure = unit_time(make_units("a", 100, 101, 110), make_units("b", 97, 98, 99), {"float16[8, 3]": 100})
    assert unsure is not None
    assert not unsure.faster


def by_turns(*us: float, kind: str = "float16[8, 3]") -> list[dict[str, float]]:
    return [{kind: x} for x in us]


def test_alternating_runs_are_compared_with_their_neighbours() -> None:
    """If a job runs in turns with and without a change, each turn is compared with the turns before and after it."""
    # So it does no harm that the host gets slower for a while, or that some turns are disturbed. The steps take 100 µs
    # before and 80 µs after the change, and this gain of 20 µs is found.
    slow = [1.0] * 24 + [1.7] * 8
    before = by_turns(*(x * y for x, y in zip([100, 101, 99, 190, 100, 100, 160, 100] * 4, slow, strict=True)))
    after = by_turns(*(x * y for x, y in zip([80, 240, 80, 81, 79, 120, 80, 80] * 4, slow, strict=True)))
    found = SideBySide(((before, after), (before, after))).unit_time({"float16[8, 3]": 7})
    assert found is not None
    assert (found.now_us, found.then_us) == pytest.approx((100, 80), rel=0.02)
    assert found.ratio == pytest.approx(0.8, rel=0.005)
    assert (found.runs, found.turns) == (2, 64)
    assert (found.saving_low_us, found.saving_high_us) == pytest.approx((20, 20), rel=0.05), "both pairs are alike"
    alone = SideBySide(((before, after),)).unit_time({"float16[8, 3]": 7})
    assert alone is not None
    assert alone.ends_us == (pytest.approx(80, abs=4), pytest.approx(80, abs=4))
    assert alone.runs == 1


def test_the_interval_of_two_pairs_comes_from_the_starts() -> None:
    """If both versions of a job were started twice, the interval of the gain comes from how much the starts differ.

    The first pair of starts gained 3 %, the second pair 1 %. So the mean gain is (3 + 1) / 2 = 2 % with a standard
    error of (3 − 1) / 2 = 1 % and one degree of freedom. All measurements within a pair are equal. This must not make
    the interval narrower.
    """
    a, b, c, d = (by_turns(*[100.0 * math.exp(x)] * 20) for x in (0.0, 0.02, -0.03, 0.01))
    found = SideBySide(((a, c), (b, d))).unit_time({"float16[8, 3]": 1})
    off, before = student_t_quantile(0.975, 1) * 0.01, 100 * math.exp(0.01)
    assert found is not None
    assert found.now_us == pytest.approx(before)
    assert found.saving_us == pytest.approx(before * (1 - math.exp(-0.02)))
    assert found.ends_us == pytest.approx([before * math.exp(-0.02 + x) for x in (-off, off)])
    assert not found.faster
    four = SideBySide(((a, c), (b, d)) * 2).unit_time({"float16[8, 3]": 1})
    assert four is not None
    assert four.faster, "three degrees of freedom"


def test_95_percent_intervals_contain_the_true_gain_in_95_percent() -> None:
    """The 95 % interval of a gain, from two starts of each version, contains the true gain in about 95 % of cases."""
    # The measurements are simulated with a true gain of 3 %. Starts of a job differ by 5 %, and measurements within a
    # start by 2 %.
    chance = random.Random(7)
    kind = "float16[8, 3]"

    def turns(us: float) -> list[dict[str, float]]:
        start = us * math.exp(chance.gauss(0, 0.05))
        return by_turns(*(start * math.exp(chance.gauss(0, 0.02)) for _ in range(12)))

    held = 0
    for _ in range(400):
        found = SideBySide(tuple((turns(100), turns(97)) for _ in range(2))).unit_time({kind: 1})
        assert found is not None
        low, high = found.ends_us
        held += low <= 0.97 * found.now_us <= high
    assert 0.93 < held / 400 < 0.98


def test_kinds_that_few_turns_had_are_no_part_of_the_comparison() -> None:
    common, rare = by_turns(*[100.0] * 8), by_turns(*[300.0] * 2, kind="rare")
    sides = SideBySide((([*common, *rare], [*common, *rare]),))
    found = sides.unit_time({"float16[8, 3]": 3, "rare": 1})
    assert found is not None
    assert found.now_us == pytest.approx(100)
    assert sides.unit_time({"float16[8, 3]": 1, "rare": 3}) is None, "most of the units"
    assert sides.kinds == {"float16[8, 3]": 16, "rare": 4}


def test_the_interval_of_a_drifting_run_comes_from_blocks() -> None:
    """If the times of a run's steps drift, the interval is computed from the means of blocks of neighbouring steps.

    Single steps would make the interval too narrow, because neighbouring steps resemble each other.
    """
    late = [100.0 + 10 * (i // 50 % 2) for i in range(500)]
    before = job("before", Kind(8, 1000, 6, 1000, 0, 0, [*[500.0] * 500, *late]))
    found = unit_time(*([x] if (x := units(before)) else [] for _ in range(2)), {"float16[8, 3]": 1})
    assert found is not None
    assert found.now_us == fmean(late) == 105
    variance = 10 * 25 / 9 / 10  # ten blocks, each 5 off the mean
    assert found.saving_high_us == pytest.approx(student_t_quantile(0.975, 18) * (2 * variance) ** 0.5)


def test_times_by_turns_take_the_place_of_those_of_the_traced_runs() -> None:
    before, after = simple("before", 1000, steady(2500)), simple("after", 800, steady(2300))
    found = verify_and_check(
        before, after, times=(make_units("a", 2500, 2501, 2502), make_units("b", 2500, 2501, 2502))
    )
    assert found.verdict == "took effect, not faster"
    assert found.wall is not None
    assert found.wall.runs == 3


@pytest.mark.parametrize("conv_us", [1000, 800])
def test_an_interval_with_zero_and_a_large_gain_decides_nothing(conv_us: float) -> None:
    """If the measured gain may be zero but may also be large, the verdict is "time unknown"."""
    # On two H100s, an earlier version reported "had no effect" although the change made the program 27 % faster. The
    # interval of the gain was [-29.6, 21.2] ms for a step of 65 ms.
    before, after = (simple(run, us, steady(2500), talk_us=300) for run, us in (("before", 1000), ("after", conv_us)))
    others = replace(after, kernels=after.kernels.assign(kernel=after.kernels["kernel"] + "_2"))
    found = verify_and_check(
        before, others, times=(make_units("a", 2500, 2900, 2600), make_units("b", 2600, 2400, 2800))
    )
    assert found.verdict == "time unknown"
    assert not found.refuted, "so what was applied stays"
    assert any("too uncertain to decide" in x for x in lines(found))


def test_where_the_same_kernels_ran_there_was_no_effect_whatever_the_wall_time() -> None:
    before, after = (simple(run, 1000, steady(2500), talk_us=300) for run in ("before", "after"))
    times = (make_units("a", 2500, 2900, 2600), make_units("b", 2600, 2400, 2800))
    found = verify_and_check(before, after, times=times)
    assert found.verdict == "had no effect"
    assert any("the same kernels ran as before: the change affected no call of the job" in x for x in lines(found))
    fewer = replace(after, kernels=after.kernels.assign(calls=after.kernels["calls"] * 0.9))
    assert not verify_and_check(before, fewer, times=times).same, "some of its calls are not made any more"


def test_two_runs_are_timed_beside_their_logs_where_one_was_not_timed_without() -> None:
    before, after = simple("before", 1000, steady(2500)), simple("after", 800, steady(2300))
    alone = json.dumps({"count": 100, "traced": 0, "us": steady(1500)})
    rows = [
        {"source_id": "alone", "run": "before", "name": name, "value": value}
        for name, value in (("unit", "optimizer"), ("unit_alone", "1"), ("unit:float16[8, 3]", alone))
    ]
    more = replace(before, facts=pd.concat([before.facts, pd.DataFrame(rows)], ignore_index=True))
    found = verify_and_check(more, after)
    assert found.wall is not None
    assert found.wall.now_us == pytest.approx(2500, rel=0.01)


def test_gains_of_changes_and_override_files_are_added() -> None:
    """If a change of the job and an override file are used together, ``verify`` adds the two promised gains.

    An override file is the user's choice of kernels. Of 2000 µs of kernels, the change saves 200 µs and the override
    file promises another 200 µs: 2000 − 200 − 200 = 1600 µs. But if both affect the same call, the override file may
    save nothing more. Then only 2000 − 200 = 1800 µs are promised.
    """
    before, after = simple("before", 1000, steady(2500)), simple("after", 800, steady(2300), other_us=800.0)

    [setting] = [x for x in results(before, ACTIONS, Settings()) if x.action.name == "cudnn_benchmark"]
    now = setting.now_us
    named = replace(setting.action, name="overrides", kind="files")
    files = replace(setting, action=named, then_us=0.9 * now, low_us=0.9 * now, high_us=0.9 * now, parts=())
    found = verify_and_check(before, after, files=files)
    assert found.actions == ("cudnn_benchmark", "overrides")
    assert (found.promised.then_us, found.measured.then_us, found.verdict) == (pytest.approx(1600), 1600, "verified")
    both = verify_and_check(before, after, files=replace(files, parts=setting.parts))
    assert both.promised.then_us == pytest.approx(1800)
    assert both.promised.ends_us[0] < 1600


def make_marked_run(
    run: str, conv_us: float, wall: Sequence[float], *, asked: Sequence[str] = (), **facts: object
) -> Tables:
    """Return made-up data of a job whose processes recorded which changes they applied to themselves.

    * ``asked`` are the names of the changes that they were told to apply.
    * ``facts`` are further entries of this record.
    """
    seen = {"applied_asked": json.dumps({"settings": [*asked], "scripts": []}), **facts}
    return job(run, Kind(8, 100, 6, conv_us, 1000.0, 0.0, wall), more={"marks": seen})


APPLIED = {"applied:cudnn_benchmark": '{"setting": true}'}


def test_a_run_that_left_its_mark_is_judged_as_ever() -> None:
    after = make_marked_run("after", 800, steady(2300), asked=["cudnn_benchmark"], **APPLIED)
    assert verify_and_check(simple("before", 1000, steady(2500)), after).verdict == "verified"


def test_a_change_that_no_process_reported_has_no_verdict() -> None:
    """If no process reports that it made the requested change, the verdict of ``verify`` is "time unknown".

    Here the job ran without the change. The step was only faster because the machine was quieter.
    """
    found = verify_and_check(
        simple("before", 1000, steady(2500)), make_marked_run("after", 800, steady(2300), asked=["cudnn_benchmark"])
    )
    assert found.verdict == "time unknown"
    assert "after did not report that it applied cudnn_benchmark, so it ran without cudnn_benchmark" in unwrap_lines(
        found
    )


def test_equal_kernels_without_a_report_are_no_gain() -> None:
    """If nothing shows that the program applied a change, a faster step is not attributed to the change."""
    # No process of the job has reported that it applied the change, and the same kernels ran as before. logparse was
    # not asked to apply the change itself.
    before, after = simple("before", 1000, steady(2500)), make_marked_run("after", 985, steady(2300))
    found = verify_and_check(before, after, times=([units(before)] * 3, [units(after)] * 3))
    assert found.same
    assert found.verdict == "time unknown"
    said = "no process of after reported that it applied cudnn_benchmark, and the same kernels ran"
    assert said in unwrap_lines(found)
    in_force = make_marked_run("after", 985, steady(2300), job_settings="cudnn_benchmark")
    assert "unit" not in in_force.facts["name"].tolist()[-1]
    known = replace(in_force, facts=in_force.facts.replace({"source_id": {"marks": "units"}}))
    assert verify_and_check(before, known, times=([units(before)] * 3, [units(after)] * 3)).verdict != "time unknown"
    older = simple("after", 985, steady(2300))
    assert verify_and_check(before, older, times=([units(before)] * 3, [units(older)] * 3)).verdict != "time unknown"


def at_end(word: str, **more: str) -> dict[str, str]:
    return {"applied:cudnn_benchmark": json.dumps({"setting": True, "at_end": word, **more})}


@pytest.mark.parametrize("settings", ["", "cudnn_benchmark"])
def test_a_change_that_was_lost_has_no_verdict(settings: str) -> None:
    """If the job itself undid a change, ``verify`` does not say that the change made the job faster.

    This also holds if the change was still in force when the job's settings were recorded (``settings``).
    """
    lost = at_end("lost", undone="torch.backends.cudnn.benchmark")
    after = make_marked_run("after", 800, steady(2300), asked=["cudnn_benchmark"], **lost)
    seen = make_marked_run("after", 800, steady(2300), job_settings=settings, **lost)
    for run in (after, replace(seen, facts=seen.facts.replace({"source_id": {"marks": "units"}}))):
        found = verify_and_check(simple("before", 1000, steady(2500)), run)
        assert (found.verdict, found.wall) == ("time unknown", None)
        assert unwrap_lines(found)[0] == "time unknown: cudnn_benchmark was not in force until the end of after"
        why = (
            "cudnn_benchmark was set, but it was not in force any more when after ended: the job itself, or a library "
            "that it uses, sets torch.backends.cudnn.benchmark; remove that line, or call "
            "`apply.settings('cudnn_benchmark')` after it"
        )
        assert why in unwrap_lines(found)
        assert not any("report" in line or "gained" in line for line in unwrap_lines(found))


def test_a_run_that_lost_a_change_is_a_run_without_it() -> None:
    lost = at_end("lost", undone="torch.backends.cudnn.benchmark")
    before = make_marked_run("before", 1000, steady(2500), **lost)
    after = make_marked_run("after", 800, steady(2300), asked=["cudnn_benchmark"], **at_end("in force"))
    assert verify_and_check(before, after).verdict == "verified"


def test_a_change_whose_end_is_unknown_is_judged_and_told() -> None:
    after = make_marked_run("after", 800, steady(2300), asked=["cudnn_benchmark"], **at_end("unknown"))
    found = verify_and_check(simple("before", 1000, steady(2500)), after)
    assert found.verdict == "verified"
    assert "no process of after reported at its end whether cudnn_benchmark was still in force" in unwrap_lines(found)


def test_a_job_that_applied_it_before_is_compared_with_itself() -> None:
    before = make_marked_run("before", 1000, steady(2500), **APPLIED)
    after = make_marked_run("after", 800, steady(2300), asked=["cudnn_benchmark"], **APPLIED)
    found = verify_and_check(before, after)
    assert found.verdict == "time unknown"
    assert "before also ran with cudnn_benchmark, so the job is compared with itself" in unwrap_lines(found)
