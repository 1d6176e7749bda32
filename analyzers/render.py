"""A ``Recommendation`` as plain lines and table rows.  Nothing is computed here that is not about showing."""

from __future__ import annotations

import pandas as pd

from analyzers.recommend import Ceiling, Recommendation
from logparse.model import Finding


def lines(recommendation: Recommendation) -> list[str]:
    """The recommendation as text: ceiling, remarks on the run, verdict; the findings themselves are ``rows``."""
    out = [f"run {recommendation.run}", *ceiling_lines(recommendation.ceiling)]
    out += [f"{remark.analyzer}: {remark.message}" for remark in recommendation.remarks]
    # The same advice holds for many findings: each is said once.
    told = dict.fromkeys(x.advice for x in (*recommendation.remarks, *recommendation.findings) if x.advice)
    return [*out, *(f"→ {advice}" for advice in told), verdict(recommendation)]


def ceiling_lines(ceiling: Ceiling) -> list[str]:
    """The most that can be gained, and what that rests on."""
    if ceiling.share is None:
        return ["ceiling: unknown: no measured time of the default"]
    calls = "unknown" if ceiling.calls_share is None else f"{ceiling.calls_share:.1%}"
    time = "unknown, no trace" if ceiling.time_share is None else f"{ceiling.time_share:.1%}"
    gain = ceiling.share if ceiling.gpu_share is None else ceiling.gpu_share
    of = "the time of the problems below" if ceiling.gpu_share is None else "GPU time"
    return [
        f"ceiling: if every problem ran at its best known time you gain at most {gain:.1%} of {of} "
        f"({duration(ceiling.saving_us)} of {duration(ceiling.default_us)})",
        f"  it rests on {ceiling.problems:,} problems: {calls} of calls; share of GPU time: {time}",
    ]


def verdict(recommendation: Recommendation) -> str:
    """One line: how many findings and overrides, or that nothing is worth doing, and why."""
    found, gated = len(recommendation.findings), recommendation.gated
    small = f"; {gated:,} more save too little to be shown" if gated else ""
    if not found and not gated:
        return "nothing worth doing: no problem has a better known solution and none looks slow"
    if not found:
        return f"nothing worth doing: {gated:,} possible gains are all below the thresholds"
    known = [x.saving_us for x in recommendation.findings if x.saving_us is not None]
    worth = f", {len(known):,} of known worth" if known else ", none with a known number of calls"
    return f"{found:,} findings{worth}, {len(recommendation.overrides):,} with an override{small}"


def rows(recommendation: Recommendation) -> pd.DataFrame:
    """One row per finding about a problem, ranked: columns of the view ``findings`` and what a table shows besides.

    ``saving_us`` is per run of the workload and missing where the calls or the gain are unknown.
    """
    columns = (
        *("run", "analyzer", "kind", "problem", "label", "message", "calls", "per_call_us", "saving_us"),
        *("saving_share", "solution", "advice"),
    )
    out = pd.DataFrame([_row(x, recommendation.run) for x in recommendation.findings], columns=list(columns))
    return out.astype({"calls": "Int64", **dict.fromkeys(("per_call_us", "saving_us", "saving_share"), "float64")})


def brief(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of ``rows`` that a terminal has room for, times in ms."""
    out = pd.DataFrame({"saving_ms": frame["saving_us"] / 1e3, "per_call_ms": frame["per_call_us"] / 1e3})
    return out.assign(calls=frame["calls"], problem=frame["label"], use=frame["solution"], finding=frame["message"])


def _row(finding: Finding, run: str) -> dict[str, object]:
    problem = finding.problem
    return {
        "run": run,
        "analyzer": finding.analyzer,
        "kind": finding.kind,
        "problem": problem.text if problem else None,
        "label": problem.label if problem else None,
        "message": finding.message,
        "calls": finding.calls,
        "per_call_us": finding.per_call_us,
        "saving_us": finding.saving_us,
        "saving_share": finding.saving_share,
        "solution": finding.override.solution.text if finding.override else None,
        "advice": finding.advice,
    }


def duration(us: float) -> str:
    """``832 µs``, ``5.46 ms``, ``12.4 s``: a time for people."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}" if us < 1000 * size else f"{us / size:,.0f} {unit}"
    return f"{us:.3g} µs"
