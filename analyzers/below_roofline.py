"""Products and convolutions that a trace shows far below what the device, or the same job, reaches.

The time of a call is what its kernels took in the run's traces, on average.  Its efficiency is the roofline's time over
it (``roofline_us``: the data sheet's peaks).  No kernel reaches these peaks, so the efficiency is held against what
comparable problems of the same trace reach: same operation and direction, same type, bound by the same limit
(arithmetic or memory), and of at most ``NEAR`` times less or more roofline time.  Their upper quartile is taken as
within reach; where fewer than ``ENOUGH`` are comparable, ``WITHIN_REACH`` of the roofline is.  A problem is below it
where it takes more than ``FAR`` times the time that follows, which is never less than ``LEAST_US`` of a call.

Where B and W of a convolution are not assigned apart, neither can be replayed, and they are left out.

Both are estimates: no solution with that time is known.  A replay of these problems is the next step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.evidence.devices import device_of
from analyzers.evidence.gpu_time import traced_calls
from analyzers.evidence.joins import facts_by_source
from analyzers.evidence.roofline import input_type, roofline_us
from logparse.model import ConvProblem, Evidence, Family, Finding, Problem, problem_from_text

NAME = "below-roofline"
NEAR = 4.0
"""Comparable problems have at least a quarter and at most four times the roofline's time."""
ENOUGH = 4
"""Comparable problems from which their upper quartile is within reach."""
WITHIN_REACH = 0.5
"""Share of the roofline that libraries reach on problems of a usual shape: the peaks themselves are never reached."""
FAR = 2.0
"""A problem is reported where it takes more than this many times the time within reach."""
LEAST_US = 8.0
"""Time of a call that is not expected to become less: launch, prologue and tail of one kernel."""
ADVICE = (
    "Nothing is timed against these kernels yet: `logparse replay` measures what the library, other layouts and padded "
    "sizes reach, the largest estimates first."
)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per problem, on the device on which it took the most time."""
    facts = facts_by_source(tables.facts)
    rows = _rows(traced_calls(tables), facts)
    found = [_finding(row, rows, settings) for row in rows.to_dict("records")] if len(rows) else []
    return [x for x in found if x is not None]


def _rows(calls: pd.DataFrame, facts: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Problems with a roofline: ``traced_calls`` added up over the traces of one device, with what they are held to."""
    device = {str(source): _device(facts.get(str(source), {})) for source in calls["source_id"].unique()}
    known = calls.assign(device=calls["source_id"].map(device))
    known = known[known["device"].notna()].sort_values(["source_id", "problem"])
    sums = known.groupby(["device", "problem"]).agg(
        source_id=("source_id", "first"), total_us=("total_us", "sum"), calls=("calls", "sum")
    )
    rows = sums.reset_index().sort_values(["total_us", "device"]).drop_duplicates("problem", keep="last")
    rows = rows.sort_values("problem", ignore_index=True)
    rows["now_us"] = rows["total_us"] / rows["calls"]
    held = [
        _held_to(problem_from_text(x), facts.get(s, {}))
        for x, s in zip(rows["problem"], rows["source_id"], strict=True)
    ]
    rows["least_us"] = np.array([least for least, _ in held], dtype="float64")
    rows["group"] = [f"{device} {group}" for device, (_, group) in zip(rows["device"], held, strict=True)]
    rows["efficiency"] = rows["least_us"] / rows["now_us"]
    return rows[rows["least_us"].notna()].reset_index(drop=True)


def _device(facts: Mapping[str, str]) -> str | None:
    device = device_of(facts)
    return None if device is None else device.name


def _held_to(problem: Problem, facts: Mapping[str, str]) -> tuple[float | None, str]:
    """The roofline's time of a problem, and the group of those that it is comparable with."""
    least, device = roofline_us(problem, facts), device_of(facts)
    if isinstance(problem, ConvProblem) and problem.direction == "B+W":
        return None, ""
    if least is None or device is None or isinstance(problem, Family) or not problem.bytes:
        return None, ""
    bound = "memory" if problem.bytes / (device.hbm_gbs * 1e3) >= least else "arithmetic"
    grouped = "" if not isinstance(problem, ConvProblem) else f"{problem.direction} {(problem.groups or 1) > 1}"
    return least, f"{problem.kind} {grouped} {input_type(problem)} {bound}"


def _finding(row: Mapping[Hashable, Any], rows: pd.DataFrame, settings: Settings) -> Finding | None:
    now, least = float(row["now_us"]), float(row["least_us"])
    alike = rows[(rows["group"] == row["group"]) & rows["least_us"].between(least / NEAR, least * NEAR)]
    others = alike[alike["problem"] != row["problem"]]["efficiency"]
    reach = float(others.quantile(0.75)) if len(others) >= ENOUGH else WITHIN_REACH
    reach = min(reach, 1.0)  # a peak of the data sheet may be too low for a part of another clock
    within = max(least / reach, LEAST_US)
    if now <= FAR * within:
        return None
    text, calls = str(row["problem"]), int(row["calls"])
    held = (
        f"{len(others)} comparable problems of the trace reach {reach:.0%}"
        if len(others) >= ENOUGH
        else f"{reach:.0%} is taken to be within reach, as there are fewer than {ENOUGH} comparable problems"
    )
    return Finding(
        analyzer=NAME,
        problem=problem_from_text(text),
        message=(
            f"takes {now:,.1f} µs per call, {least / now:.1%} of what {row['device']} allows ({least:,.1f} µs); {held}"
        ),
        per_call_us=now - within,
        calls=calls,
        saving_us=(now - within) * calls,
        evidence=Evidence(
            now_us=now,
            source_id=str(row["source_id"]),
            details={
                "roofline_us": least,
                "efficiency": least / now,
                "within_reach_us": within,
                "comparable": len(others),
                "confidence": 0.3,  # an efficiency of others shows no solution for this one
            },
        ),
        advice=ADVICE,
    )


ANALYZER = Analyzer(
    name=NAME,
    about="products and convolutions of a trace that take far longer than the roofline or comparable problems suggest",
    find=find,
)
