from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analyzers.evidence.tables import Settings
from analyzers.recommend import apply_module
from analyzers.recommend.documents import report
from analyzers.recommend.files_action import OVERRIDES, USER_FIND_DB, files_actions
from analyzers.recommend.ranking import recommend
from logparse.model import Advise, Finding, Gain
from tests.analyzers.build import facts, frame, tables
from tests.analyzers.example import everything, gemm

TABLES = tables()
"""The tables of a run that has no trace."""


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    """Return the findings of the example that save time and can be written as a line of an override file.

    An override file is the user's choice of kernels.
    """
    found = recommend(everything(), Settings()).findings
    chosen = [x for x in found if x.override is not None and x.saving_us]
    assert len(chosen) > 1
    return chosen


def test_the_sum_of_the_rows_is_what_the_files_do(findings: list[Finding]) -> None:
    [result] = files_actions(findings, 1e9, TABLES, Settings(steps=4))
    assert result.saving_us == pytest.approx(sum(x.saving_us or 0.0 for x in findings))
    assert result.now_us == pytest.approx(sum((x.now_us or 0.0) * (x.calls or 1) for x in findings))
    assert (result.steps, len(result.parts)) == (4.0, len(findings))
    assert (result.measured_share, result.untimed) == (1.0, ())
    assert result.changed_us <= result.now_us


def test_only_rows_that_are_written_count(findings: list[Finding]) -> None:
    assert files_actions(findings, 1e9, TABLES, Settings(confirmed_only=True)) == [], "none is confirmed"
    best = max(findings, key=lambda x: x.saving_us or 0.0)
    [one] = files_actions(findings, 1e9, TABLES, Settings(max_rows=1))
    assert (one.saving_us, len(one.parts)) == (best.saving_us, 1)
    assert one.application.line.startswith("1 row, ")


def test_only_confirmed_savings_are_sure(findings: list[Finding]) -> None:
    [unsure] = files_actions(
        [replace(x, p=None, per_call=x.per_call and Gain(x.per_call.now_us, x.per_call.then_us)) for x in findings],
        1e9,
        TABLES,
        Settings(),
    )
    assert unsure.high_us == unsure.now_us
    assert not unsure.pays
    one = findings[0]
    gain, saving = one.per_call, one.saving_us or 0.0
    assert gain is not None
    ends = {"high_us": gain.now_us - 0.5 * gain.saving_us, "low_us": gain.now_us - 2.0 * gain.saving_us}
    sure = replace(one, p=0.001, per_call=replace(gain, **ends))
    [result] = files_actions([sure], 1e9, TABLES, Settings())
    assert result.pays
    assert (result.now_us - result.high_us, result.now_us - result.low_us) == pytest.approx(
        (0.5 * saving, 2.0 * saving)
    )
    assert "1 row, 1 confirmed" in result.application.line


def test_the_saving_per_step_comes_from_the_trace() -> None:
    """The saving per step that override files promise is computed from the calls in the trace, not in the logs.

    The trace has two calls of a product in two steps, which take 96 µs together. Measured alone, a call takes 50 µs, or
    40 µs with the kernel in the file. So the two steps save 96 · (50 − 40) / 50 = 19.2 µs. The 100 and 10 calls in the
    logs of two processes play no part in this.
    """
    known = everything()
    of_trace = {"source_id": "trace", "run": "r"}
    product = of_trace | {"op": "aten::mm", "problem": gemm().text, "kernel": "Cijk_7", "calls": 2, "total_us": 96.0}
    other = of_trace | {"op": "aten::relu", "kernel": "relu", "calls": 9, "total_us": 4.0}
    marked = pd.concat([known.facts, frame("facts", facts("trace", profiler_steps="2"))], ignore_index=True)
    found = recommend(replace(known, kernels=frame("kernels", [product, other]), facts=marked), Settings())
    [result] = [x for x in found.actions if x.action is OVERRIDES]
    assert (result.now_us, result.steps) == (100.0, 2.0)
    assert result.saving_us == pytest.approx(96.0 * (50 - 40) / 50)
    written = sum(x.override is not None and bool(x.saving_us) for x in found.findings)
    assert written > len(result.parts) == 1
    assert result.application.line.startswith(f"{written} rows, "), "apply.sh applies those of the other steps, too"
    assert "actions, with the GPU time of the whole job per step:" in report(found, []).splitlines()


def test_without_a_row_there_are_no_files(findings: list[Finding]) -> None:
    assert files_actions([replace(x, remedy=Advise()) for x in findings], 1e9, TABLES, Settings()) == []
    assert files_actions([replace(x, in_run=None) for x in findings], 1e9, TABLES, Settings()) == []


def test_savings_with_a_condition_are_stated_apart(findings: list[Finding]) -> None:
    first, *rest = findings
    unsettled = replace(first, evidence=replace(first.evidence, assumes="the job does not read its user find-db yet"))
    sure, perhaps = files_actions([unsettled, *rest], 1e9, TABLES, Settings())
    assert (sure.action, perhaps.action) == (OVERRIDES, USER_FIND_DB)
    assert perhaps.saving_us == pytest.approx(first.saving_us)
    assert sure.saving_us == pytest.approx(sum(x.saving_us or 0.0 for x in rest))


def test_recommend_lists_the_files_among_the_actions() -> None:
    found = recommend(everything(), Settings())
    assert OVERRIDES.name in [x.action.name for x in found.actions]
    assert any(line.startswith(f"  {OVERRIDES.name}: ") for line in report(found, []).splitlines())
    module = apply_module.module(found.actions)
    assert module is None or f"'{OVERRIDES.name}'" not in module.data.decode(), "apply.py holds what Python applies"
