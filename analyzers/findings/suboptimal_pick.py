"""Find calls for which the library chose a slower kernel than the best known one.

The loss of a call is (time of the chosen kernel) − (time of the best kernel in the same file). Losses are also reported
as a distribution, because a mean hides that a few GEMMs or convolutions have nearly all of the loss. If the chosen
kernel has no time of its own, the finding states ``unmeasured`` and claims no saving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analyzers.evidence import comparison
from analyzers.evidence.cells import count_of, number_of, text_of
from analyzers.evidence.joins import DEFAULT_TEXT, Given, facts_of, given_workspaces
from analyzers.evidence.miopen_tuning import complete_overrides
from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from logparse.devices import is_nvidia
from logparse.model import (
    Advise,
    ChangeProgram,
    Evidence,
    Finding,
    Override,
    Remedy,
    Replay,
    Search,
    Setting,
    UseRows,
    problem_from_text,
    solution_from_text,
)
from logparse.target import Facts
from logparse.text import pluralize

NAME = "suboptimal-pick"
BAD_REGRET = 0.10
_NONE = 0.0005
"""A smaller regret would be shown as 0.0 %."""


def regret(rows: pd.DataFrame) -> dict[str, float]:
    """Return statistics of how much slower the library's chosen kernels are than the best known ones.

    ``rows`` are rows of ``picks_vs_best`` that have the time of the choice (``pick_us``). Without rows the result is
    empty.

    * ``median``, ``p90``, ``largest``: statistics of pick_us / best_us − 1, in which each GEMM or convolution is
      counted once.
    * ``share_above_10_percent``: the fraction of the time (calls × pick_us) in GEMMs and convolutions that lose more
      than 10 %. If no log counts calls, each is counted as one call.
    """
    if not len(rows):
        return {}
    pick, best, calls = (rows[name].to_numpy(dtype="float64") for name in ("pick_us", "best_us", "calls"))
    ratio, known = pick / best - 1.0, np.isfinite(calls)
    weight = pick * (np.where(known, calls, 0.0) if known.any() else 1.0)
    return {
        "problems": len(rows),
        "median": float(np.median(ratio)),
        "p90": float(np.quantile(ratio, 0.9)),
        "largest": float(ratio.max()),
        "share_above_10_percent": float(weight[ratio > BAD_REGRET].sum() / (weight.sum() or 1.0)),
    }


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Report each call for which the library chose a slower kernel than the best known one.

    The first report tells how these losses are distributed over all calls.
    """
    rows = picks_vs_best(tables, settings)
    facts, workspaces = facts_of(tables), given_workspaces(tables)
    findings = [_distribution(rows)] if len(rows) else []
    better = rows[(rows["best"] != rows["pick"]) & (rows["basis"] != comparison.INCOMPARABLE)]
    for row in better.to_dict("records"):
        finding = _pick({str(key): value for key, value in row.items()}, facts, workspaces, settings)
        if finding is not None:
            findings.append(finding)
    return complete_overrides(findings, tables, facts)


def _distribution(rows: pd.DataFrame) -> Finding:
    compared = rows[rows["pick_us"].notna()]
    known = regret(compared)
    lone = rows["basis"] == comparison.UNMEASURED
    agree = lone & (rows["pick"] == rows["best"]) & (rows["tried"] <= 1)
    masks = (agree, lone & ~agree, rows["basis"] == comparison.INCOMPARABLE)
    agreeing, unmeasured, incomparable = (int(rows.loc[mask, "problem"].nunique()) for mask in masks)
    words = []
    if known and known["largest"] < _NONE:
        words.append(f"for {pluralize(len(compared), 'problem')}, the job runs the fastest known kernel")
    elif known:
        words.append(
            f"the kernels that the library chose for {pluralize(len(compared), 'problem')}, compared with the fastest "
            f"known ones: regret (extra time of the library's choice) median {known['median']:.1%}, p90 "
            f"{known['p90']:.1%}, largest {known['largest']:.1%}; {known['share_above_10_percent']:.0%} of the time "
            "is in problems with a regret of more than 10 %"
        )
    if unmeasured:
        words.append(
            f"{pluralize(unmeasured, 'problem')} cannot be judged, because the kernel that the library chose is not "
            "timed"
        )
    if agreeing:
        run = f"{pluralize(agreeing, 'problem')} {'runs' if agreeing == 1 else 'run'}"
        words.append(f"{run} the only kernel that was timed, so no faster kernel is known")
    if incomparable:
        words.append(
            f"{pluralize(incomparable, 'problem')} cannot be compared, because the logs and measurements are not known "
            "to be from the same library build and GPU arch (if you know that they are: --same-build)"
        )
    evidence: dict[str, object] = {"unmeasured": unmeasured, "agreeing": agreeing, "incomparable": incomparable}
    if known:
        evidence |= known | {"by_default": int((compared["basis"] == comparison.BY_DEFAULT).sum())}
    return Finding(analyzer=NAME, message="; ".join(words) + ".", evidence=Evidence(details=evidence))


def _remedy(known: comparison.Comparison, decided: Override | comparison.Refusal | None) -> Remedy:
    """Return what the user can do so that the library runs the faster kernel.

    1. Name the kernel in a file for the library.
    2. Change a setting or the program.
    3. Search or measure, if times are missing.
    """
    if isinstance(decided, Override):
        return UseRows(decided)
    if decided is None:  # The pick has no time.
        on_target = known.best_us is None
        searched = not on_target and not is_nvidia(known.facts)  # No tool of NVIDIA's searches.
        return Search() if searched else Replay(on_target=on_target)
    if comparison.by_hand(known.best):
        if comparison.out_of_reach(known.best):
            return Setting(known.best.text)
        return ChangeProgram(known.best.text, comparison.change(known.best))
    return Advise("choose the faster kernel by hand") if decided.advice else Replay(on_target=True)


def _pick(
    row: Mapping[str, object], facts: Mapping[str, Facts], given: Mapping[str, Given], settings: Settings
) -> Finding | None:
    """Report one call for which the library did not choose the best known kernel.

    Returns None if the loss is within noise, or if there is nothing to compare.
    """
    known, calls = _comparison(row, facts, given), number_of(row["calls"])
    if comparison.may_be_so(known.problem, known.measured, known.best.text):
        return None
    if known.basis != comparison.UNMEASURED and not known.loses:
        return None
    if known.basis == comparison.UNMEASURED and known.pick == DEFAULT_TEXT:
        return None  # No log names a pick, so there is nothing to compare the file with.
    gain = known.gain
    decided = None if gain is None else comparison.override_or_refusal(known, settings)
    return Finding(
        analyzer=NAME,
        problem=known.problem,
        message=_message(known) + _list_doubts(row) * (gain is not None),
        per_call=gain,
        calls=None if calls is None else round(calls),
        in_run=None if calls is None or gain is None else gain.times(calls),
        evidence=Evidence(
            sureness="estimated" if gain is None else "measured alone",
            now_us=known.pick_us,
            pick=known.pick,
            best=known.best.text,
            best_us=known.best_us,
            noise_us=known.noise_us,
            measured=known.measured,
            source_id=str(row["source_id"]),
            origin=known.origin,
            level=str(row["level"]),
            details={name: row[name] for name in ("basis", "choices", "fan", "candidates")},
        ),
        remedy=_remedy(known, decided),
        advice=decided.advice if isinstance(decided, comparison.Refusal) else None,
    )


def _comparison(
    row: Mapping[str, object], facts: Mapping[str, Facts], given: Mapping[str, Given]
) -> comparison.Comparison:
    """Collect what is known about the library's choice and the best kernel for one call, as a ``Comparison``.

    ``row`` is a row of ``picks_vs_best``.
    """
    named = solution_from_text(str(row["best"]))
    spaces = given.get(str(row["problem"]))
    return comparison.Comparison(
        problem=problem_from_text(str(row["problem"])),
        pick=str(row["pick"]),
        pick_us=number_of(row["pick_us"]),
        best=replace(named, raw=str(row["best_raw"] or ""), algorithm=text_of(row["algorithm"])),
        best_us=float(str(row["best_us"])),
        basis=str(row["basis"]),
        measured=str(row["measured"]),
        origin=str(row["origin"]),
        facts=facts.get(str(row["source_id"]), {}),
        noise_us=number_of(row["noise_us"]),
        ambiguous=bool(row["disagree"]),
        workspace_bytes=count_of(row["workspace_bytes"]),
        given_bytes=spaces.most if spaces else None,
        key_text=text_of(row["key_text"]),
    )


def _message(known: comparison.Comparison) -> str:
    what, best = known.pick, f"{known.best.text} ({known.best_us:.4g} µs, {known.origin})"
    if known.gain is None:
        return (
            f"the library chose {what}; the fastest known kernel is {best}. The gain is unknown, because the "
            "library's choice is not timed"
        )
    if known.basis == comparison.BY_DEFAULT:
        what = "the default" if what == DEFAULT_TEXT else f"the library's own choice in the measurement, {what},"
    # The saving of a confirmed pair comes from the paired ratio, which ``confidence`` adds to the finding.
    less = "less" if known.origin == CONFIRM else f"{known.best_us:.4g} µs"
    return f"{what} takes {known.pick_us:.4g} µs, {known.best.text} {less} ({known.origin})"


def _list_doubts(row: Mapping[str, object]) -> str:
    """Return reasons to doubt that a measured time belongs to the job's call, as a text in square brackets.

    The text is empty if there is no doubt.
    """
    words = []
    if row["level"] == "shape":
        words.append("the measured times were matched to this call by its shape only, so they may be of another call")
    if row["disagree"]:
        words.append(f"this call may be any of {row['choices']} measured ones, whose fastest kernels differ")
    if int(str(row["fan"])) > 1:
        words.append(f"one measured call is used for {row['fan']} logged calls")
    return f" [{'; '.join(words)}]" if words else ""


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "the kernel that the library chose (by its heuristic, or by default), compared with the fastest known kernel"
    ),
    worth="measured",
    find=find,
)
