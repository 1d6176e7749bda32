"""Find matrix products and convolutions of a trace that take far longer than the GPU should need.

The GPU's peak rates give a least time for each call (the roofline). Comparable calls of the same trace show which
fraction of the peak rates can be reached (``analyzers/job/efficiency.py``). Together they give the time that should be
possible, at least ``LEAST_US``. A call is reported if it takes more than ``FAR`` times that long.

The difference is the estimated saving. No solution with the possible time is known, so the estimate is never added to
measured savings. The next step for the user is a replay, which measures the gain. Once a replay has timed other
solutions for a problem, the problem is no longer reported here, whatever the gain was.

If measured times of comparable problems on the device give an expected time, ``slower-than-comparable`` judges the
problem instead. Its estimate errs by a tenth, but the estimate here errs by a factor of two (docs/expected.md).
Problems with a known cause are left to ``naive-convolution``, ``leading-dimension`` and ``odd-output``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from analyzers.evidence.joins import calls_of
from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import leading_dimension, naive_convolution, odd_output
from analyzers.findings.finding import RESTS_ON, Analyzer
from analyzers.job.efficiency import ENOUGH, efficiencies
from analyzers.job.expectations import expected_problems
from logparse.model import Evidence, Finding, Gain, Replay, problem_from_text

NAME = "below-roofline"
ADVICE = (
    "No search has timed other kernels for these calls yet. `logparse replay` measures what the library's other "
    "kernels, other layouts and padded sizes reach, and begins with the largest estimates."
)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Report each matrix product or convolution that takes far longer than the GPU should need.

    If several kernels were timed for it, it is not reported here, because measured times are better than the estimate
    on which this report is based.
    """
    rows = efficiencies(tables.kernels, tables.calls, tables.facts)
    rows = rows[rows["far"]]
    if len(rows):
        rows = rows[~rows["problem"].isin(expected_problems(tables, settings))]
        known = picks_vs_best(tables, settings)
        rows = rows[~rows["problem"].isin(known.loc[known["tried"] > 1, "problem"])]
        # The cause of a naive pass is known, and a replay is not its remedy.
        naive = {x.problem.text for x in naive_convolution.find(tables, settings) if x.problem is not None}
        rows = rows[~rows["problem"].isin(naive)]
        # The same holds for a product that is faster with another leading dimension or number of outputs.
        for cause in (leading_dimension, odd_output):
            rows = rows[~rows["problem"].isin(cause.explained(tables, settings))]
    # The log counts all calls of a job, while a trace may hold a few steps only.
    run = calls_of(tables, rows["problem"])
    return [_finding(row, run.get(str(row["problem"]), int(row["calls"]))) for row in rows.to_dict("records")]


def _finding(row: Mapping[Hashable, Any], calls: int) -> Finding:
    now, least, within = (float(row[name]) for name in ("now_us", "least_us", "within_us"))
    share, few = f"{row['reach']:.0%} of the roofline", f"fewer than {ENOUGH} comparable problems"
    guessed, granted = row["comparable"] < ENOUGH, f"{share} is reached (too few comparable problems)"
    reach = (
        f"{share} is taken as reachable, because the trace has {few}"
        if guessed
        else f"{row['comparable']} comparable problems of the trace reach {share}"
    )
    allowed = f"{least / now:.1%} of the roofline: {row['device']} needs at least {least:,.1f} µs"
    gain = Gain(now, within)
    return Finding(
        analyzer=NAME,
        problem=problem_from_text(str(row["problem"])),
        message=f"takes {now:,.1f} µs per call, {allowed}; {reach}",
        per_call=gain,
        calls=calls,
        in_run=gain.times(calls),
        evidence=Evidence(source_id=str(row["source_id"]), details={RESTS_ON: granted} if guessed else {}),
        remedy=Replay(),
        advice=ADVICE,
    )


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "GEMMs and convolutions in a trace that take far longer than the device should need. This time follows from "
        "the roofline (the least time that the device allows) and from the share of the roofline that comparable "
        "calls of the trace reach. Calls with an [expected time](expected.md) are left out"
    ),
    worth=(
        "estimated as the call's time minus the time that the device should need. `logparse replay` measures the saving"
    ),
    find=find,
)
