"""A replay's plan, steps and report as lines and rows.  Nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analyzers.measure.plan import Item
from analyzers.measure.replay import Report, Step
from analyzers.measure.results import Result
from logparse.output import Answer
from logparse.text import counted


def plan_rows(items: Sequence[Item]) -> pd.DataFrame:
    """One row per planned problem, in the order of work; ``cost_s`` and ``saving_us`` are estimates.

    ``basis`` states what ``time_us`` rests on; ``risk`` is a predicted probability, missing where nothing predicts it.
    """
    columns = ["problem", "calls", "time_us", "basis", "risk", "saving_us", "solutions", "cost_s", "text"]
    rows = [
        (x.problem.label, x.calls, x.time_us, x.basis, x.risk, x.saving_us, x.solutions, x.cost_s, x.problem.text)
        for x in items
    ]
    return pd.DataFrame(rows, columns=columns).astype({"risk": "float64"})


def step_line(step: Step) -> str:
    """One outcome: what the library's pick takes, what the best known takes, how long is left."""
    left = "" if step.eta_s is None else f", {step.eta_s:,.0f} s left"
    head = f"[{step.done}/{step.total}{left}] {step.outcome.problem.label}"
    if isinstance(step.outcome, Result):
        pick, best = step.outcome.pick_us, step.outcome.best_us
        times = "no time" if pick is None or best is None else f"pick {pick:,.2f} µs, best {best:,.2f} µs"
        tried, offered = len(step.outcome.rows), step.outcome.offered
        of = f" of {offered}" if offered > tried else ""
        return f"{head}: {times}, {tried}{of} solutions ({step.outcome.ended})"
    if step.confirmation is None:
        return f"{head}: not confirmed, no pairs"
    speedup, word = step.confirmation.speedup, "confirmed" if step.confirmation.confirmed else "not confirmed"
    return f"{head}: {word}, ×{speedup.value:.3f} [{speedup.low:.3f}, {speedup.high:.3f}]"


def report_lines(report: Report) -> list[str]:
    """What a replay did, as text."""
    if not report.total:
        return [f"run {report.run}: no problem of what was asked for can be measured", *report.remarks]
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(report.statuses.items())) or "nothing new"
    known = sum(result.known for result in report.results)
    before = f" ({known:,} of them known from before)" if known else ""
    done = f"{len(report.results):,} of {report.total:,} problems{before}"
    out = [f"run {report.run}: {done}, {report.seconds:,.0f} s; {statuses}"]
    if report.confirmations or not known:
        flagged, kept = len(report.confirmations), len(report.kept)
        out.append(f"{flagged:,} flagged, {kept:,} confirmed under false-discovery control")
    if widely := report.searched_widely:
        lost = [(x.proposed_us or 0.0) / (x.best_us or 1.0) - 1 for x in widely]
        total = sum(x.proposed_us or 0.0 for x in widely) / sum(x.best_us or 0.0 for x in widely) - 1
        would = f"would have lost {max(0.0, total):.1%} of their time, {max(0.0, *lost):.1%} at worst"
        out.append(f"searched widely: {counted(len(widely), 'problem')}, of which the proposed solutions alone {would}")
    out.append("`logparse recommend` ranks what is worth changing")
    goes_on = f"the same command {'' if report.resume else 'without --again '}goes on from here"
    if report.interrupted:
        out.append(f"interrupted: everything measured is kept; {goes_on}")
    elif not report.finished and not report.results:
        out.append("the budget is spent, and no problem was measured: it needs a longer --budget")
    elif not report.finished:
        out.append(f"the budget is spent: {goes_on}")
    return [*out, *report.remarks]


def plan_answer(items: Sequence[Item], instead: Sequence[str] = (), also: Sequence[str] = ()) -> Answer:
    """The plan of a replay and the lines ``also``, or the lines of what was made of it."""
    frame = plan_rows(items)
    line = f"{counted(len(items), 'problem')}, about {frame['cost_s'].sum():,.0f} s of device time"
    return Answer(instead or [frame.drop(columns="text"), line, *also], frame, "replay")
