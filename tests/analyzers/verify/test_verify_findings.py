"""A setting is held against the findings before it: layouts are looked through, unequal work is not compared."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analyzers.analyzer import Tables
from analyzers.verify.findings import in_any_layout, verify_findings
from analyzers.verify.verify import lines as verify_lines
from analyzers.verify.verify import rows, run_us
from logparse.model import ConvProblem
from tests.analyzers.build import call, message, tables, work
from tests.analyzers.example import F, W, gemm

NHWC = dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "NHWC")
W_LAST, F_LAST = replace(W, **NHWC), replace(F, **NHWC)  # type: ignore[arg-type]


def run(label: str, *rows: tuple[ConvProblem, str, float], calls: int = 10, **more: object) -> Tables:
    """A trace: problem, kernel, µs of one call; and 100 µs of other kernels."""
    kernel = {"source_id": label, "run": label, "device": 0, "op": "aten::convolution_backward", "calls": calls}
    kernels = [
        kernel | {"problem": p.text, "kernel": name, "total_us": us * calls, "min_us": us, "max_us": us}
        for p, name, us in rows
    ]
    kernels.append(kernel | {"op": "aten::add", "problem": None, "kernel": "add", "total_us": 100.0})
    works = [work(p.text, calls, run=label, calls_from="profiler") for p, _, _ in rows]
    return tables(label, kernels=kernels, workload=works, **more)  # type: ignore[arg-type]


def findings(*rows: tuple[ConvProblem, float | None], label: str = "a") -> pd.DataFrame:
    """Problem and what it saves in 10 calls."""
    columns = ["run", "analyzer", "problem", "saving_us", "per_call_us", "advice"]
    told = [(label, "suboptimal-pick", p.text, us, None if us is None else us / 10, None) for p, us in rows]
    return pd.DataFrame(told, columns=columns)


BEFORE = run("a", (W, "wgrad_nchw", 500.0), (F, "fprop", 50.0))


def test_channels_last_is_found_again_and_paid() -> None:
    after = run("b", (W_LAST, "wgrad_nhwc", 100.0), (F_LAST, "fprop_nhwc", 40.0))
    found = verify_findings(BEFORE, after, findings((W, 3000.0), (W, 10.0)))
    (one,) = found.outcomes
    assert (one.effect, one.move, one.gained_us, one.promised_us) == ("changed kernel", "faster", 4000.0, 3000.0)
    assert (one.before_us, one.after_us, one.basis, one.calls) == (500.0, 100.0, "trace", 10)
    assert found.ok
    assert found.run_us == (5600.0, 1500.0)
    assert verify_lines(found) == [
        "verify: verified: 1 changed kernel of the findings; gained 4 ms a run (promised 3 ms)",
        "  GPU time of the traces: 5.6 ms → 1.5 ms, gained 4.1 ms",
        f"  {W.label}  changed kernel  500 µs → 100 µs a call  gained 4 ms",
    ]
    assert [x["problem"] for x in rows(found)] == [W.label]


def test_what_was_intended_is_the_solution_where_the_finding_names_one() -> None:
    promised = findings((W, 3000.0), (F, 10.0)).assign(solution=["torch:layout=NHWC", None], advice=None)
    found = verify_findings(BEFORE, BEFORE, promised)
    assert {x.problem: x.intended for x in found.outcomes} == {W.text: "torch:layout=NHWC", F.text: "suboptimal-pick"}
    old = verify_findings(BEFORE, BEFORE, findings((W, 3000.0)).assign(advice="keep it in channels_last"))
    assert [x.intended for x in old.outcomes] == ["keep it in channels_last"]


@pytest.mark.parametrize(
    ("ran", "effect", "ok"),
    [("91077", "applied", True), ("91033", "not applied", False), ("5", "not applied", False)],
)
def test_where_a_log_names_the_pick_only_the_proposed_solution_counts(ran: str, effect: str, ok: bool) -> None:
    problem = gemm(1)

    def logged(label: str, index: str) -> Tables:
        calls = [call(problem.text, count=3, solution=f"hipblaslt:{index}") | {"run": label}]
        return tables(label, calls=calls, workload=[work(problem.text, 3, run=label)])

    columns = ["run", "analyzer", "problem", "saving_us", "per_call_us", "solution"]
    promised = pd.DataFrame([("a", "suboptimal-pick", problem.text, 30.0, 10.0, "hipblaslt:91077")], columns=columns)
    found = verify_findings(logged("a", "91033"), logged("b", ran), promised)
    assert [x.effect for x in found.outcomes] == [effect]
    assert found.ok == ok


def test_slower_unchanged_and_gone() -> None:
    slower = verify_findings(BEFORE, run("b", (W_LAST, "k", 900.0)), findings((W, 3000.0), (F, 10.0)))
    assert slower.failures == (f"{W.label}: slower, 500 to 900 µs",)
    assert [x.effect for x in slower.outcomes] == ["changed kernel", "not called"]
    assert slower.run_us is None, "F is not called any more: that is other work"
    same = verify_findings(BEFORE, BEFORE, findings((W, 3000.0)))
    assert same.failures == ("no problem of a finding runs another kernel than before",)
    assert [x.move for x in same.outcomes] == ["same"]


def test_nothing_was_promised() -> None:
    for none in (findings(), findings((W, None)), findings((W, 5.0), label="other")):
        assert "nothing was promised" in verify_findings(BEFORE, BEFORE, none).failures[0]
    [failure] = verify_findings(BEFORE, BEFORE, findings((W, 3000.0), label="other")).failures
    assert "last `logparse recommend` was of run other: repeat it with --run a" in failure


def test_promises_are_per_call() -> None:
    """A run of twice the steps is promised twice the saving, and its whole time is not compared."""
    after = run("b", (W_LAST, "k", 100.0), (F, "fprop", 50.0), calls=20)
    found = verify_findings(BEFORE, after, findings((W, 3000.0)))
    assert (found.outcomes[0].promised_us, found.outcomes[0].gained_us) == (6000.0, 8000.0)
    assert found.run_us is None


def test_a_call_that_became_two_texts_is_weighed() -> None:
    """Where a trace after does not tell a layout, both texts mean the call."""
    vague = replace(W, in_layout=None)
    one = run("b", (W_LAST, "k", 100.0), calls=5)
    two = run("b", (vague, "k2", 300.0), calls=15)
    after = replace(
        one,
        kernels=pd.concat([one.kernels, two.kernels], ignore_index=True),
        workload=pd.concat([one.workload, two.workload], ignore_index=True),
    )
    (outcome,) = verify_findings(BEFORE, after, findings((W, 3000.0))).outcomes
    assert outcome.after_us == pytest.approx((5 * 100 + 15 * 300) / 20)
    assert (outcome.effect, outcome.calls) == ("changed kernel", 20)


def test_complaints_of_the_logs_fail() -> None:
    after = run("b", (W_LAST, "k", 100.0), messages=[message("error", text="Bad algorithm: x") | {"run": "b"}])
    assert not verify_findings(BEFORE, after, findings((W, 3000.0))).ok


def test_texts_and_whole_runs() -> None:
    assert in_any_layout(W.text) == in_any_layout(W_LAST.text) != in_any_layout(F.text)
    assert in_any_layout(gemm().text) == gemm().text
    assert run_us(BEFORE, BEFORE) == (5600.0, 5600.0)
    assert run_us(BEFORE, tables("b")) is None
    counted = replace(BEFORE, workload=BEFORE.workload.assign(calls_from="bench"))
    assert run_us(counted, counted) is None, "a log's calls are of the whole job"
