"""Compare what ``logparse try`` says about an action with separate starts of the program (``jobs.py --tried``).

An action is a change to the job, such as TF32. Both sides are ratios of a step's time: with the action / without it.

========  ==========================================================================================================
side      how it was measured
========  ==========================================================================================================
said      ``logparse try`` switched the action on and off in the running program
truth     the program's own clock, in starts with the action and starts without it, which take turns on the device;
          the action is applied by hand before the first step (``job_programs/by_hand.py``)
========  ==========================================================================================================

The two agree if the intervals overlap. They contradict each other if they do not agree, one is a gain, the other a
loss, and either is beyond ``WRONG``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzers.evidence.trials import Tried
from logparse.libraries.own.job_trials import Record, record

WRONG = 0.02
"""A contradiction between two results is counted only if one of them changes the step by more than this fraction."""
NARROW, QUICK_S = 0.05, 60.0
"""Aims for ``logparse try``: how narrow its interval should be, and how quickly.

``NARROW`` is the largest distance of the interval's ends from the ratio. ``QUICK_S`` are the seconds of trials in the
job.
"""


def comparisons(row: Mapping[str, Any], truths: Mapping[str, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Compare what ``logparse try`` says about each change of a job (``row``) with the program's times (``truths``).

    In ``truths``, ``change``, ``low`` and ``high`` are relative changes of the step's time: −0.1 is 10 % less.
    """
    # row is the job's record, with the results of logparse try in "tried".
    trials = [record(json.dumps(x).encode()) for x in row.get("trials", ())]
    return [
        {**_compare_with_truth(said, truths.get(said["action"])), "narrow_s": narrow_after(trials, said["action"])}
        for said in row.get("tried", ())
    ]


def narrow_after(trials: Sequence[Record], action: str) -> float | None:
    """Return how many seconds of trying a change were needed until its gain was known precisely. None means never.

    The gain is precise if its interval is narrower than ``NARROW``.
    """
    # The interval is computed after each process that tried the change, because the result files do not state when a
    # single measurement was made.
    seen = [x for trial in trials for x in trial.seen if x.name == action and x.pairs]
    for count in range(1, len(seen) + 1):
        found = Tried(action, tuple(seen[:count]))
        ratio = found.ratio
        if ratio is not None and max(ratio.high - ratio.value, ratio.value - ratio.low) <= NARROW * ratio.value:
            return round(found.seconds, 1)
    return None


def _compare_with_truth(said: Mapping[str, Any], truth: Mapping[str, Any] | None) -> dict[str, Any]:
    out = {key: said[key] for key in ("action", "outcome", "why", "pairs", "processes", "seconds")}
    ratio = [said["ratio"], said["ratio_low"], said["ratio_high"]] if said["ratio"] is not None else None
    real = [1 + truth[x] for x in ("change", "low", "high")] if truth else None
    out |= {"said": ratio, "truth": real, "agree": None, "contradict": None}
    if ratio is not None and real is not None:
        out["agree"] = ratio[1] <= real[2] and real[1] <= ratio[2]
        out["within"] = real[1] <= ratio[0] <= real[2] or ratio[1] <= real[0] <= ratio[2]
        changes = ratio[0] - 1, real[0] - 1
        out["contradict"] = not out["agree"] and changes[0] * changes[1] < 0 and max(map(abs, changes)) > WRONG
    return out


def best(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the change for which ``logparse try`` found the largest gain, or None if no change was timed."""
    # Changes that were also timed in separate starts of the program come first. A combination of changes was only tried
    # in the running program.
    return min((x for x in found if x["said"]), key=lambda x: (x["truth"] is None, x["said"][0]), default=None)


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Count over all jobs how often ``logparse try`` measured the same effect of a change as the job's own clock.

    ``best`` counts only the best change of each job, ``all`` counts every change that was timed.
    """
    found = {name: row.get("compared", []) for name, row in rows.items() if "skipped" not in row}
    firsts = {name: x for name, of in found.items() if (x := best(of)) is not None}
    return {
        "jobs": len(found),
        "timed": len(firsts),
        "best": _counts(firsts.values()),
        "all": _counts([x for of in found.values() for x in of if x["said"]]),
        "disagree": [f"{name}: {x['action']}" for name, of in found.items() for x in of if x["agree"] is False],
        "contradict": [f"{name}: {x['action']}" for name, of in found.items() for x in of if x["contradict"]],
        "failed": {name: row["failed"] for name, row in rows.items() if "failed" in row},
    }


def _counts(found: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    kept = list(found)
    return {
        "timed": len(kept),
        "agree": sum(x["agree"] is True for x in kept),
        "one inside the other's interval": sum(x.get("within") is True for x in kept),
        "with a truth": sum(x["agree"] is not None for x in kept),
        "narrow and quick": sum(x["narrow_s"] is not None and x["narrow_s"] <= QUICK_S for x in kept),
    }


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table with a row for each job and change, like the one in ``docs/results.md``."""
    out = ["| job | action | `try` says | ratio in the job | truth | |", "|" + "---|" * 6]
    for name, row in rows.items():
        for x in row.get("compared", []):
            time = f"{_interval(x['said'])}, {x['pairs']} pairs, {x['seconds']:.0f} s" if x["said"] else x["why"]
            word = "" if x["agree"] is None else "contradicts" if x["contradict"] else "agrees" if x["agree"] else "–"
            out.append(f"| {name} | {x['action']} | {x['outcome']} | {time} | {_interval(x['truth'])} | {word} |")
        if "failed" in row:
            out.append(f"| {name} | | failed: {str(row['failed']).splitlines()[-1][-120:]} | | | |")
    return out


def _interval(ratio: Sequence[float] | None) -> str:
    return "?" if ratio is None else f"{ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}]"
