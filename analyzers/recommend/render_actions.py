"""What actions do to a job, as lines: GPU time per step now and then, what loses, how sure, and the line to do it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analyzers.actions import ActionResult
from analyzers.actions.totals import row
from analyzers.job.gpu_time import GpuTime
from logparse.text import duration

_LOSERS = 3


def lines(results: Sequence[ActionResult], time: GpuTime | None) -> list[str]:
    """These actions, the best first; empty without any.  ``time``: the job's GPU time, None without a trace."""
    if not results:
        return []
    step = "step" if results[0].steps else "run"
    of = "of the whole job" if time is not None else "of the problems with two measured times"
    out = [f"actions, by GPU time {of} per {step}:"]
    for result in results:
        out += _action(result)
    return out


def rows(results: Sequence[ActionResult]) -> pd.DataFrame:
    """One row per action, the best first (columns: ``logparse.output.answer.TABLES``)."""
    return pd.DataFrame([row(x) for x in results])


def _action(result: ActionResult) -> list[str]:
    per = result.steps or 1.0
    now, then, low, high = (x / per for x in (result.now_us, result.then_us, *result.interval_us))
    change = f"{then / now - 1:+.1%}" if now else "unknown"
    head = f"  {result.action.name}: {duration(now)} → {duration(then)} [{duration(low)}, {duration(high)}], {change}"
    out = [head + _verdict(result), f"      {result.application.line}"]
    out.append(f"      {result.action.about}; {_certainty(result)}")
    if result.action.host_us:
        out.append(f"      {_host(result, per)}")
    if result.losers:
        shown = ", ".join(_loser(x.label, x.now_us / per, x.then_us / per) for x in result.losers[:_LOSERS])
        more = f" and {len(result.losers) - _LOSERS:,} more" if len(result.losers) > _LOSERS else ""
        out.append(f"      loses on {shown}{more}")
    if result.action.needs:
        out.append(f"      needs {result.action.needs}")
    if result.application.by_hand:
        out.append(f"      or {result.application.by_hand}")
    return out


def _host(result: ActionResult, per: float) -> str:
    least, most = result.action.least_host_us, result.action.host_us
    saved, left = (duration(x / per) for x in (result.now_us - result.then_us, result.saving_us))
    return (
        f"its calls cost the host {duration(least / per)} (their code in the core's caches) to {duration(most / per)} "
        f"more; the latter is charged, as if the GPU hid none of it: {left} of {saved} are left"
    )


def _verdict(result: ActionResult) -> str:
    if result.loses:
        return ": do not"
    unsure = "not confirmed" if result.action.kind == "files" else "no difference that is sure"
    return "" if result.pays else f": {unsure}"


def _certainty(result: ActionResult) -> str:
    share = result.changed_us / result.now_us if result.now_us else 0.0
    text = f"it changes {share:.0%} of the GPU time"
    missing = result.changed_us - result.measured_us
    if missing > 0.005 * result.now_us:
        return f"{text}, of which {result.measured_share:.0%} is measured and the rest counts as unchanged"
    return f"{text}, all of it measured"


def _loser(label: str, now_us: float, then_us: float) -> str:
    return f"{label} ({duration(now_us)} → {duration(then_us)})"
