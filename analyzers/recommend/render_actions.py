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
    waiting, timed = ([x for x in results if x.action.waits is waits] for waits in (True, False))
    return [*_waiting(waiting, time), *_timed(timed, traced=time is not None)]


def _waiting(results: Sequence[ActionResult], time: GpuTime | None) -> list[str]:
    """Those against waiting for the host, with the waiting that they can remove."""
    if not results or time is None:
        return []
    step, count = ("step", time.steps) if time.steps else ("run", 1.0)
    idle, window = ((x or 0.0) / count for x in (time.idle_us, time.window_us))
    profiled = " under the profiler, which slows the host" if time.profiled else ""
    out = [
        f"actions against waiting for the host, {duration(idle)} of {duration(window)} per {step}{profiled}: at most "
        "that is gained by launching less, and what joined kernels save comes on top; no replay measures either and no "
        "sum of GPU time includes them:"
    ]
    for result in results:
        out += [f"  {result.action.name}: {result.application.line}", f"      {result.action.about}"]
        out.append(f"      needs {result.action.needs}")
    return [*out, f"      or {results[0].application.by_hand}"]


def _timed(results: Sequence[ActionResult], *, traced: bool) -> list[str]:
    if not results:
        return []
    step = "step" if results[0].steps else "run"
    of = "of the whole job" if traced else "of the problems with two measured times"
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
