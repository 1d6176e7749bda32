"""Tests of the gains that logparse promises for changes of a job, against gains that were measured on an H200.

``benchmarks/actions.py`` recorded the measurements, so no test needs a GPU. The tests also check which calls a change
affects.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from analyzers.actions import ACTIONS, ActionResult, channels_last, padded_output
from analyzers.actions.action import Application, Part, with_job_interval
from analyzers.actions.job import Job, Work
from analyzers.actions.ratio import Ratio
from analyzers.actions.totals import estimate_result, factors_of
from analyzers.evidence.statistics.intervals import median
from logparse.model import DEFAULT, ConvProblem, Gain, GemmProblem, Operand, OperatorProblem, Problem, problem_from_text
from tests.analyzers.example import gemm
from tests.conftest import ROOT

CONV = ConvProblem(
    direction="F", n=2, c=8, h=4, w=4, k=8, filter_h=1, filter_w=1, pad_h=0, pad_w=0, stride_h=1, stride_w=1,
    dilation_h=1, dilation_w=1, out_h=4, out_w=4, groups=1,
    **dict.fromkeys(("in_type", "weights_type", "out_type"), "FP16"),
    **dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NCHW"),
)  # fmt: skip
PLAIN = Operand("float16", (2, 8, 4, 4), (128, 16, 4, 1))
LAST = Operand("float16", (2, 8, 4, 4), (128, 1, 32, 8))
VIEW, TURNED = (Operand("float16", (2, 4, 4, 8), strides) for strides in ((128, 4, 1, 16), (128, 32, 8, 1)))


def job(*works: tuple[Problem, float], total: float | None = None, backend: str = "CUDA") -> Job:
    made = tuple(Work(problem=problem, calls=1.0, us=us) for problem, us in works)
    return Job(work=made, total_us=total or sum(us for _, us in works), steps=1.0, backend=backend)


def times(*rows: tuple[Problem, str, float]) -> dict[tuple[str, str], tuple[str, tuple[float, ...]]]:
    return {(problem.text, solution): (problem.text, (us, us * 1.1, us)) for problem, solution, us in rows}


def test_an_operator_is_read_back_from_its_text() -> None:
    problem = OperatorProblem("aten::cat", ((PLAIN, LAST), "1", "", "[1,1]", Operand("int64", (), ())))
    assert problem_from_text(problem.text) == problem
    for text in ("operator", "operator x float16(1|", "operator x y"):
        with pytest.raises(ValueError, match=r"\w"):
            problem_from_text(text)


def test_a_layout_changes_images_and_drops_copies_that_only_turn_them() -> None:
    add = OperatorProblem("aten::add_", (PLAIN, PLAIN, "1"))
    other = OperatorProblem("aten::add_", (Operand("float16", (2, 3), (3, 1)),) * 2)
    turn = OperatorProblem("aten::copy_", (TURNED, VIEW, "False"))
    known = job((CONV, 10.0), (add, 5.0), (other, 1.0), (turn, 2.0))

    def becomes(problem: Problem) -> object:
        return channels_last.ACTION.change(Work(problem=problem, calls=1.0, us=1.0), known)

    changed: Any = becomes(add)
    assert changed.problem == OperatorProblem("aten::add_", (LAST, LAST, "1"))
    assert becomes(other) is None
    gone: Any = becomes(turn)
    assert gone.problem is None
    conv: Any = becomes(CONV)
    assert (conv.problem, conv.solution) == (CONV, "torch:layout=NHWC,stored")


def test_a_slice_of_a_channels_last_gradient_is_channels_last() -> None:
    """If images are stored as channels_last, a gradient that is cut out of a larger image's gradient is too."""
    # For example, DeepLabV3 concatenates five images. The gradient of one of them is a slice of channels, so its
    # strides differ from the strides of a whole image.
    part = Operand("float16", (2, 3, 4, 4), (128, 16, 4, 1))
    resized = OperatorProblem("aten::upsample_bilinear2d_backward", (part, "[4, 4]", "[2, 3, 1, 1]", "False", "", ""))
    known = job((CONV, 9.0), (resized, 1.0))
    changed: Any = channels_last.ACTION.change(known.work[1], known)
    assert changed.problem.tensors == (Operand("float16", (2, 3, 4, 4), (128, 1, 32, 8)),)
    other = OperatorProblem("aten::mul", (Operand("float16", (2, 3, 4, 4), (144, 16, 4, 1)),))
    assert channels_last.ACTION.change(Work(problem=other, calls=1.0, us=1.0), known) is None, "of no image"


def test_adding_the_gradient_of_a_mean_costs_a_copy() -> None:
    """With channels_last, adding the gradient of a mean to an image costs a copy, and logparse predicts its cost."""
    # The gradient of a mean over pixels (as in squeeze-and-excitation) is one value for all pixels: its strides are 0.
    # Such a tensor has no layout, so PyTorch leaves it in NCHW. Adding it to an image in channels_last then needs a
    # copy.
    mean = OperatorProblem("aten::div", (Operand("float16", (2, 8, 4, 4), (8, 1, 0, 0)), Operand("int64", (), ())))
    total = OperatorProblem("aten::add_", (PLAIN, PLAIN, "1"))
    turned = OperatorProblem("aten::copy_", (LAST, PLAIN, "False"))

    def added(*works: tuple[Problem, float]) -> list[tuple[Problem, float | None]]:
        return [(x.problem, x.calls) for x in channels_last.ACTION.added(job((CONV, 10.0), *works))]

    assert added((mean, 1.0), (total, 2.0)) == [(turned, 1.0)]
    assert added((mean, 1.0)) == [], "nothing reads it in both layouts"
    assert added((total, 2.0)) == []


def test_totals_count_losers_and_leave_the_unmeasured_as_it_is() -> None:
    add, slow = (OperatorProblem(f"aten::{name}", (PLAIN, PLAIN)) for name in ("add", "mul"))
    turned = OperatorProblem("aten::add", (LAST, LAST))
    known = job((CONV, 100.0), (add, 10.0), (slow, 20.0), total=200.0)
    taken = times((CONV, "Default", 50.0), (CONV, "torch:layout=NHWC,stored", 25.0), (add, "Default", 4.0),
                  (turned, "Default", 8.0))  # fmt: skip
    found = estimate_result(channels_last.ACTION, known, taken)
    assert found is not None
    assert (found.now_us, found.then_us) == (200.0, pytest.approx(200.0 - 50.0 + 10.0))
    assert found.measured_share == pytest.approx(110 / 130)
    assert (
        found.in_part
        == "only 85% of the time that channels_last changes was measured; the rest may gain or lose in the same way"
    )
    assert [(x.group, x.then_us) for x in found.losers] == [("aten::add", pytest.approx(20.0))]
    assert found.low_us <= found.then_us <= found.high_us < found.now_us
    assert found.widened.ends_us == pytest.approx((found.low_us - 20 * 50 / 110, found.high_us + 20 * 10 / 110))
    assert factors_of(found)[slow.text][:3] == pytest.approx((1.0, 1 - 50 / 110, 1 + 10 / 110))
    assert found.pays
    host = {(CONV.text, "Default"): ("x", (9.0, 8.0)), (CONV.text, "torch:layout=NHWC,stored"): ("x", (7.0, 5.5))}
    aside = estimate_result(channels_last.ACTION, replace(known, steps=2.0), taken, host)
    assert aside is not None
    assert [(x.of, x.host_us) for x in aside.parts if x.host_us] == [(CONV.text, -2.5)], "one call, undisturbed"
    assert factors_of(aside)[CONV.text].host_us == -1.25, "of a step"
    logged = replace(known, work=tuple(replace(x, us=None) for x in known.work), total_us=None, steps=2.0)
    untraced = estimate_result(channels_last.ACTION, logged, taken, host)
    assert untraced is not None
    assert untraced.host_us == 0, "no trace, no step"
    assert estimate_result(channels_last.ACTION, known, {}) is None, "nothing is assumed"
    assert estimate_result(channels_last.WITH_BENCHMARK, job((CONV, 1.0), backend="CPU"), taken) is None


def test_printed_intervals_contain_the_measured_times() -> None:
    """In 92 of 97 cases, the interval that logparse predicts for a step's time after a change is right.

    The changes were made and measured on an H200.
    """
    # An interval that only considers the scatter of the measured kernels would contain just 17 of the 97 times.
    held, alone, small, pays = [], [], [], []
    for name in ("actions", "actions-others"):
        path = ROOT / "benchmarks" / "results" / f"{name}-NVIDIA-H200-2026-11-23.json"
        for model in json.loads(path.read_text(encoding="utf-8"))["models"].values():
            for x in model["actions"]:
                if "predicted_us" not in x or "measured_us" not in x:
                    continue
                now, then, sampled = model["now_us"], x["measured_us"], (x["low_us"], x["high_us"])
                low, high = with_job_interval(Gain(now, x["predicted_us"], *sampled)).ends_us
                held.append(low <= then <= high)
                alone.append(sampled[0] <= then <= sampled[1])
                if sampled[1] < now:
                    (pays if now - x["predicted_us"] > 0.004 * now else small).append(then < now)
    assert (len(held), sum(held), sum(alone)) == (97, 92, 17)
    assert (len(small), sum(small)) == (14, 12)
    assert (len(pays), sum(pays)) == (58, 58), "what pays has not cost time"


def test_a_gain_below_the_noise_of_a_step_does_not_pay() -> None:
    found = ActionResult(
        action=channels_last.ACTION,
        application=Application(line="x"),
        now_us=1000.0,
        then_us=997.0,
        low_us=990.0,
        high_us=998.0,
        parts=(),
    )
    assert not found.pays
    assert replace(found, then_us=994.0).pays
    files = replace(channels_last.ACTION, kind="files")
    assert replace(found, action=files).pays, "their gains are confirmed"
    part = Part(of="x", label="x", group="x", calls=1.0, now_us=10.0, then_us=9.0, host_us=-51.0)
    assert replace(found, parts=(part,), steps=2.0).pays, "the host launches it in 5 % of the GPU time less"
    assert not replace(found, parts=(replace(part, host_us=-49.0),), steps=2.0).pays
    assert not replace(found, parts=(part,)).pays, "of no step"
    assert not replace(found, parts=(part,), steps=2.0, low_us=1001.0, then_us=1002.0, high_us=1003.0).pays
    low, high = found.job_gain.ends_us
    assert low < 985
    assert 1010 < high < 1020


def test_caches_save_a_convolution_a_constant_time() -> None:
    """The gain of a convolution in the job is predicted correctly from times that were measured outside of the job.

    In a job a call takes less time than alone, because its inputs are still in the cache. The cache saves the same
    number of microseconds before and after a change, and ``Ratio.in_job`` corrects the ratio of the two times for this.
    The corrected ratios are compared with the calls of six models that were trained on an H200, before and after a
    change of layout.
    """
    path = ROOT / "benchmarks" / "results" / "in-job-NVIDIA-H200-2026-11-22.json.gz"
    pairs = [x for x in json.loads(gzip.decompress(path.read_bytes()))["pairs"] if x["changed"]]
    shares, kept = [], []
    for pair in pairs:
        if not pair["problem"].startswith("conv"):
            continue
        before, after = (median(pair[f"job_{x}_us"]) for x in ("before", "after"))
        alone = pair["replay_winner_us"] / pair["replay_pick_us"]
        found = Ratio(alone, alone, alone, pair["replay_pick_us"]).in_job(before)
        assert found.low == found.value == found.high > 0
        shares.append(math.log(alone * before / after))
        kept.append(math.log(found.value * before / after))
    assert len(kept) == 120
    assert abs(sum(kept)) < 0.005 * len(kept) < abs(sum(shares))
    assert math.hypot(*kept) < 0.9 * math.hypot(*shares)


def test_a_call_that_is_no_shorter_in_the_job_keeps_its_ratio() -> None:
    assert Ratio(0.5, 0.4, 0.6, 10.0).in_job(10.0) == Ratio(0.5, 0.4, 0.6, 10.0)
    assert Ratio(1.0, 1.0, 1.0, 10.0).in_job(8.0).value == pytest.approx(1.0), "the same kernel"
    assert Ratio(2.0, 1.9, 2.1, 10.0).in_job(8.0).value == pytest.approx(18 / 8), "the same time is spared"
    found = Ratio(0.5, 0.4, 0.6, 10.0).in_job(8.0)
    assert 0.5 < found.value < 5 / 8
    assert found.low < found.value < found.high
    assert Ratio(0.5, 0.4, 0.6, 10.0).in_job(0.1) == Ratio(0.5, 0.4, 0.6, 10.0).in_job(1.0), "no cache spares that much"


def test_channels_last_promises_nothing_before_it_is_measured() -> None:
    """logparse promises no gain from channels_last until convolutions were measured in this layout.

    A trace shows which copies the layout would save, but not how long the convolutions would then take.
    """
    turn = OperatorProblem("aten::copy_", (TURNED, VIEW, "False"))
    known = job((CONV, 10.0), (turn, 2.0))
    assert estimate_result(channels_last.ACTION, known, {}) is None
    taken = times((CONV, "Default", 10.0), (CONV, "torch:layout=NHWC,stored", 5.0))
    found = estimate_result(channels_last.ACTION, known, taken)
    assert found is not None
    assert found.then_us == pytest.approx(12.0 - 5.0 - 2.0)


def test_the_output_layer_is_what_is_padded() -> None:
    first = gemm(m=32003, n=512, k=64, lda=64, ldb=64, ldd=32003, trans_a="T", trans_b="N")
    known = job((first, 9.0), (gemm(m=512, n=515, k=64, lda=64, ldb=64, ldd=512, trans_a="T"), 1.0))
    assert padded_output.odd_output(known) == 32003
    changed: Any = padded_output.ACTION.change(known.work[0], known)
    assert (changed.problem.m, changed.problem.ldd, changed.solution) == (32064, 32064, DEFAULT.text)


def test_the_layer_of_queries_keys_and_values_is_not_the_output_layer() -> None:
    """The layer that computes queries, keys and values is not mistaken for the model's output layer."""
    # No other layer reads the outputs of a model's output layer. But the same is true for a layer in Swin's first
    # blocks: attention splits its 288 = 3 × 96 outputs into heads of 32. So this property alone must not make a layer
    # the output layer.
    known = job(*((x, 9.0) for x in linear(288, 96)), *((x, 0.1) for x in linear(1000, 768)))
    assert padded_output.odd_output(known) == 1000
    assert padded_output.odd_output(job(*((x, 9.0) for x in linear(288, 96)))) is None


def test_the_layer_before_the_softmax_is_the_output_layer() -> None:
    """If a softmax in the trace reads the outputs of a layer, only that layer is taken for the model's output layer."""
    # Here the softmax reads 1,000 outputs. Attention with grouped queries has a layer with 360 = 5 × 72 outputs and 192
    # inputs, which could be an output layer by its sizes.
    layers = [(x, 9.0) for x in linear(360, 192)] + [(x, 0.1) for x in linear(1000, 768)]
    loss = OperatorProblem("aten::_log_softmax", (Operand("float32", (512, 1000), (1000, 1)), "1", "False"))
    assert padded_output.odd_output(job(*layers)) == 360
    assert padded_output.odd_output(job(*layers, (loss, 0.1))) == 1000


def linear(outputs: int, inputs: int, rows: int = 512) -> tuple[GemmProblem, GemmProblem, GemmProblem]:
    """Return the three matrix products of a linear layer: forward, input gradient and weight gradient."""
    return (
        gemm(m=outputs, n=rows, k=inputs, lda=inputs, ldb=inputs, ldd=outputs, trans_a="T", trans_b="N"),
        gemm(m=inputs, n=rows, k=outputs, lda=inputs, ldb=outputs, ldd=inputs, trans_a="N", trans_b="N"),
        gemm(m=inputs, n=outputs, k=rows, lda=inputs, ldb=outputs, ldd=inputs, trans_a="N", trans_b="T"),
    )


def test_actions_have_names_of_their_own() -> None:
    names = [x.name for x in ACTIONS]
    assert len(set(names)) == len(names)
    assert {y for x in ACTIONS for y in x.contains} <= set(names)


def row(action: str, predicted: float, measured: float) -> dict[str, Any]:
    return {"action": action, "predicted_us": predicted, "measured_us": measured, "error": predicted / measured - 1}


def test_what_the_benchmark_owes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    pytest.importorskip("torch")
    summary = importlib.import_module("actions").summary
    good = {"now_us": 100.0, "actions": [row("a", 80.0, 82.0), row("b", 101.0, 103.0)]}
    assert summary({"m": good})["kept"]
    assert (
        summary({"m": {**good, "actions": [row("a", 80.0, 90.0), row("b", 101.0, 103.0)]}})["within_5_percent"] == 0.5
    )
    wrong = {"now_us": 100.0, "actions": [row("a", 98.0, 102.5)]}
    assert summary({"m": wrong})["right_sign"] == 0.0
    second = {"now_us": 100.0, "actions": [row("a", 80.0, 83.0), row("b", 81.0, 81.0)]}
    assert summary({"m": second})["first_is_best"][0]["above_best"] == pytest.approx(83 / 81 - 1)
    assert not summary({"m": second})["kept"]
    assert not summary({})["kept"]


def test_records_of_several_gpus_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    pytest.importorskip("torch")
    merged = importlib.import_module("actions").merge_records
    one = {"device": "d", "steps": 3, "models": {"m": {"now_us": 100.0, "actions": [row("a", 80.0, 82.0)]}}}
    other = {"device": "d", "steps": 3, "models": {"n": {"now_us": 100.0, "actions": [row("a", 80.0, 90.0)]}}}
    both = merged([one, other])
    assert list(both["models"]) == ["m", "n"]
    assert (both["device"], both["summary"]["pairs"], both["summary"]["within_5_percent"]) == ("d", 2, 0.5)
    assert merged([both, {**other, "models": {"n": one["models"]["m"]}}])["summary"]["within_5_percent"] == 1.0
    with pytest.raises(ValueError, match="different environments"):
        merged([one, {**other, "device": "e"}])
