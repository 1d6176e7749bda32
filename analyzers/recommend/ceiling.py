"""Compute the most that override files can gain (the ceiling), and for which part of the calls it is known.

The gain of an operator (with sizes) is its time × (1 − time of the best kernel / time of the library's choice). Both
kernels were timed in one measured file. The operator's time comes from a trace of the job, else it is the number of
calls × the measured time of the choice. For some operators no log names the library's choice, but a finding has two
measured times. The saving of that finding is then added to the ceiling, so that no sum of measured findings is above
it. No files are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analyzers.evidence.joins import calls_by_problem, keep_timed, linked_measurements
from analyzers.evidence.picks import counted_as
from analyzers.evidence.tables import Tables, cached_per_run
from analyzers.job.gpu_time import gpu_us, kernels_of_run
from analyzers.recommend.confidence import Judgement
from logparse.model import Finding


@dataclass(frozen=True)
class Ceiling:
    """How much time would be saved if every operator (with sizes) ran with its best known kernel.

    All fractions are from 0 to 1. None means unknown.

    * ``default_us``: the time (µs) of the operators whose present kernel was measured.
    * ``share``: the saving as a fraction of ``default_us``.
    * ``calls_share``: the calls of the measured operators, as a fraction of all calls.
    * ``untimed_share``: the fraction of all calls whose operator has no time in any file.
    * ``assumed_us``: the part of the saving that rests on a condition, and ``assumes`` is the condition.
    """

    share: float | None
    saving_us: float
    default_us: float
    problems: int
    calls_share: float | None
    untimed_share: float | None
    assumed_us: float = 0.0
    assumes: str = ""


def ceiling(rows: pd.DataFrame, findings: Sequence[Finding], tables: Tables, judged: Judgement) -> Ceiling:
    """Compute the most that a job can gain if its libraries use better kernels (from override files).

    * ``rows``: the present and the best kernels (``picks_vs_best``).
    * ``findings``: savings scaled to the whole job (``in_the_job``).
    """
    known = rows[rows["pick_us"].notna() & rows["calls"].notna()]
    calls, pick = known["calls"].astype("float64"), known["pick_us"].astype("float64")
    traced = _each_us(tables)
    each = known["problem"].map(traced).astype("float64").fillna(pick)
    now = (calls * each).groupby(known["problem"]).sum()
    gains = (calls * each * _gains(known, judged)).groupby(known["problem"]).sum()
    listed, more = _sum_measured_savings(known["problem"], findings, tables)
    default = float(now.sum())
    saving = float(gains.combine(listed.reindex(gains.index, fill_value=0.0), max).clip(upper=now).sum())
    every = calls_by_problem(tables.workload).dropna().astype("float64")
    counted, without = float(every.sum()), every[~every.index.isin(_with_time(tables, every.index))]
    default += sum((x.calls or 0) * traced.get(x.problem.text if x.problem else "", x.now_us or 0.0) for x in more)
    saving += sum(x.saving_us or 0.0 for x in more)
    assumed = [x for x in more if x.evidence.assumes]
    called = float(calls.sum()) + sum(x.calls or 0 for x in more)
    return Ceiling(
        share=saving / default if default else None,
        saving_us=saving,
        default_us=default,
        problems=int(known["problem"].nunique()) + len(more),
        calls_share=called / counted if counted else None,
        untimed_share=float(without.sum()) / counted if counted else None,
        assumed_us=sum(x.saving_us or 0.0 for x in assumed),
        assumes=next((x.evidence.assumes for x in assumed if x.evidence.assumes), ""),
    )


@cached_per_run
def _each_us(tables: Tables) -> pd.Series:
    """Return the time that one call of each operator (with sizes) takes in the job's traces, µs.

    The web page shows it as ``traced_us``.
    """
    kernels, held = kernels_of_run(tables), tables.calls[tables.calls["category"] == "profiler"]
    known = pd.DataFrame(
        {
            "us": kernels.groupby("problem")["total_us"].sum(),
            "held": held.groupby("problem")["count"].sum(min_count=1),
            "most": kernels.groupby("problem")["calls"].max(),
        }
    ).astype("float64")
    other = counted_as(tables).to_dict()
    # If logs and traces spell the same operator differently, all spellings are counted together.
    groups = known.groupby([other.get(text, text) for text in known.index])
    merged = groups.sum(min_count=1).assign(most=groups["most"].max())
    # The time is (time of the operator's kernels) / (calls in the traces). Calls that are only in other logs are not
    # used.
    of_all, of_each = (one["us"] / one["held"].fillna(one["most"]) for one in (merged, known))
    each = of_all.combine_first(of_each)
    return each[each > 0]


def _gains(known: pd.DataFrame, judged: Judgement) -> pd.Series:
    """Return which fraction (0 to 1) of a call's time the better kernel saves, for each row.

    If the two kernels were compared in a second test, its speedup is used. Otherwise it is 1 − best_us / pick_us.
    """
    gains = 1 - known["best_us"].astype("float64") / known["pick_us"].astype("float64")
    for place, source, pick, best in known[["source_id", "pick", "best"]].itertuples():
        test = judged.by_source.get(str(source))
        if test is not None and (test.pick, test.winner) == (str(pick), str(best)):
            gains[place] = 1 - 1 / test.confirmation.speedup.value
    return gains.clip(lower=0.0)


def in_the_job(findings: Sequence[Finding], tables: Tables) -> list[Finding]:
    """Scale savings that were measured on single calls to the times that the calls take in the job's traces.

    A call that takes 60 µs in the job cannot save 70 µs, however long it takes alone. If no trace contains a call, its
    saving stays as it is. The savings are also given as a fraction of all GPU time. The gain of one call stays as it
    was measured.
    """
    traced, total = _each_us(tables).to_dict(), gpu_us(tables)
    return [_scale_finding(x, traced.get(x.problem.text if x.problem else ""), total) for x in findings]


def _scale_finding(finding: Finding, each_us: float | None, total_us: float | None) -> Finding:
    now, gain = finding.now_us, finding.in_run
    if gain is None:
        return finding
    gain = gain.times(each_us / now if each_us is not None and now else 1.0)
    share = finding.saving_share if total_us is None else gain.saving_us / total_us
    return replace(finding, in_run=gain, saving_share=share)


def _sum_measured_savings(
    known: pd.Series, findings: Sequence[Finding], tables: Tables
) -> tuple[pd.Series, list[Finding]]:
    """Add up the measured savings of findings (possible savings), for operators in ``known`` and for all others.

    * first result: saving (µs) of each operator in ``known``
    * second result: the other operators' best findings
    """
    links = tables.links[tables.links["other"].isin(known)].sort_values(["problem", "other"])
    # Operators whose text may mean the same are included.
    names = dict(zip(links["problem"], links["other"], strict=True)) | {x: x for x in known}
    theirs = tables.links.loc[tables.links["problem"].isin(known), "other"]
    seen, saved, beside = {*known, *theirs}, dict[str, float](), list[Finding]()
    for x in sorted(findings, key=lambda x: -(x.saving_us or 0.0)):
        text = x.problem.text if x.problem else ""
        # Estimated savings are ignored.
        if not x.saving_us or x.sureness == "estimated":
            continue
        if text in names:
            saved[names[text]] = saved.get(names[text], 0.0) + x.saving_us
        elif text not in seen and x.now_us:
            seen.add(text)
            beside.append(x)
    return pd.Series(saved, dtype="float64"), beside


def _with_time(tables: Tables, problems: pd.Index) -> set[str]:
    """Return the operators (with sizes) among ``problems`` whose time is known, from a trace or from a measurement.

    A measurement may describe the operator differently than the job's log. It is used if it may be the same operator.
    """
    rows = keep_timed(tables.measurements)
    linked = linked_measurements(tables, pd.Series(problems), rows["problem"])
    return set(linked["problem"]) | set(tables.kernels["problem"].dropna())
