"""The most that overrides can gain, on what that rests, and what it costs to find the rest.  Pure.

The gain of a problem is its time × (1 − best/pick), both of one measured file.  Its time is the one in a trace of the
run, else calls × measured time of the pick.  Problems whose pick no log names, and of which a finding holds two
measured times all the same, count as in that finding: no sum of measured findings is above the ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analyzers.analyzer import Settings, Tables, once
from analyzers.job.gpu_time import gpu_us, kernels_of_run, steps
from analyzers.measure.plan import cost_s
from analyzers.recommend.confidence import Judgement, basis, pre_us
from analyzers.times.joins import calls_by_problem, closest, of_problems, timed
from analyzers.times.picks import counted_as
from logparse.model import Finding

ASSUMED_SOLUTIONS = {"gemm": 200, "conv": 40}
"""Solutions that a search tries for one problem, where the store holds no longer list of them."""
COMPILE_S = {"gemm": 0.0, "conv": 3.0}
"""Seconds to build one of them: hipBLASLt's are built already, MIOpen compiles most of its own."""
ASSUMED_US = 1_000.0
"""Time of one call, where none is known."""


@dataclass(frozen=True)
class Ceiling:
    """Every problem at its best known time.  Shares are None where they are not known.

    ``share`` is of ``default_us``, the time of the problems whose pick is measured; ``calls_share`` the part of all
    calls that these are, ``untimed_share`` the part of all calls that no file has any time of; ``time_share`` and
    ``gpu_share`` are of all GPU time of the run's traces (``gpu_us``), ``step_share`` of the wall time of their steps.
    ``solutions`` counts what was timed of these problems: the best known of few tries may not be the best.
    """

    share: float | None
    saving_us: float
    default_us: float
    problems: int
    calls_share: float | None
    untimed_share: float | None
    time_share: float | None
    gpu_share: float | None
    step_share: float | None
    gpu_us: float | None = None
    solutions: int = 0


@dataclass(frozen=True)
class BreakEven:
    """What tuning the problems without a measured better solution costs, and when that is paid back.

    ``seconds`` is an estimate in GPU time on the assumption stated in ``assumption``; ``saving_us`` is at most what
    those findings save per run of the workload.  ``runs`` and ``steps`` are None where the saving or the steps are
    unknown.
    """

    problems: int
    seconds: float
    saving_us: float
    runs: float | None
    steps: float | None
    assumption: str


def ceiling(
    rows: pd.DataFrame, findings: Sequence[Finding], tables: Tables, settings: Settings, judged: Judgement
) -> Ceiling:
    """From the rows of ``picks.compare`` and the findings that are kept, which ``in_the_job`` has weighed."""
    known = rows[rows["pick_us"].notna() & rows["calls"].notna()]
    calls, pick = known["calls"].astype("float64"), known["pick_us"].astype("float64")
    total, wall, traced = gpu_us(tables), steps(tables, settings)[1], _each_us(tables)
    each = known["problem"].map(traced).astype("float64").fillna(pick)
    now = (calls * each).groupby(known["problem"]).sum()
    gains = (calls * each * _gains(known, judged)).groupby(known["problem"]).sum()
    listed = _listed(known["problem"], findings, tables)
    default = float(now.sum())
    saving = float(gains.combine(listed.reindex(gains.index, fill_value=0.0), max).clip(upper=now).sum())
    every = calls_by_problem(tables.workload).dropna().astype("float64")
    counted = float(every.sum())
    more = _measured_beside(known["problem"], findings, tables)
    default += sum((x.calls or 0) * traced.get(x.problem.text if x.problem else "", pre_us(x) or 0.0) for x in more)
    saving += sum(x.saving_us or 0.0 for x in more)
    called = float(calls.sum()) + sum(x.calls or 0 for x in more)
    return Ceiling(
        share=saving / default if default else None,
        saving_us=saving,
        default_us=default,
        problems=int(known["problem"].nunique()) + len(more),
        calls_share=called / counted if counted else None,
        untimed_share=float(every[~every.index.isin(_with_time(tables, every.index))].sum()) / counted
        if counted
        else None,
        time_share=default / total if total else None,
        gpu_share=saving / total if total else None,
        step_share=saving / wall if total and wall else None,
        gpu_us=total,
        solutions=int(known.sort_values("candidates").drop_duplicates("problem", keep="last")["candidates"].sum()),
    )


@once
def _each_us(tables: Tables) -> pd.Series:
    """µs of one call of each problem in the run's traces: their kernels' time over the calls that they hold, whatever
    else counts the run's calls.  The page's column ``traced_us`` is the same.

    The time of a problem is that of all texts whose calls count as its own.
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
    groups = known.groupby([other.get(text, text) for text in known.index])
    merged = groups.sum(min_count=1).assign(most=groups["most"].max())
    of_all, of_each = (one["us"] / one["held"].fillna(one["most"]) for one in (merged, known))
    each = of_all.combine_first(of_each)
    return each[each > 0]


def _gains(known: pd.DataFrame, judged: Judgement) -> pd.Series:
    """Shares of their time that picks lose: of a confirmed pair the ratio of its pairs, else that of two times."""
    gains = 1 - known["best_us"].astype("float64") / known["pick_us"].astype("float64")
    for place, source, pick, best in known[["source_id", "pick", "best"]].itertuples():
        test = judged.by_source.get(str(source))
        if test is not None and (test.pick, test.winner) == (str(pick), str(best)):
            gains[place] = 1 - 1 / test.confirmation.speedup.value
    return gains.clip(lower=0.0)


def in_the_job(findings: Sequence[Finding], tables: Tables) -> list[Finding]:
    """The findings with savings of the time that the run's traces show, where they do: a call that takes 60 µs in the
    job cannot save 70, whatever it takes alone.  The gain of one call stays as it was measured.
    """
    traced = _each_us(tables).to_dict()
    return [_weighed(x, traced.get(x.problem.text if x.problem else "")) for x in findings]


def _weighed(finding: Finding, each_us: float | None) -> Finding:
    now = pre_us(finding)
    if each_us is None or not now:
        return finding
    times = (finding.saving_us, finding.saving_low_us, finding.saving_high_us)
    saving, low, high = (None if x is None else x * each_us / now for x in times)
    return replace(finding, saving_us=saving, saving_low_us=low, saving_high_us=high)


def _listed(known: pd.Series, findings: Sequence[Finding], tables: Tables) -> pd.Series:
    """What the findings with two measured times save of each known problem, or of one that may be it."""
    links = tables.links[tables.links["other"].isin(known)].sort_values(["problem", "other"])
    names = dict(zip(links["problem"], links["other"], strict=True)) | {x: x for x in known}
    rows = [
        (names[x.problem.text], x.saving_us)
        for x in findings
        if x.problem is not None and x.problem.text in names and x.saving_us and basis(x) != "inferred"
    ]
    return (
        pd.DataFrame(rows, columns=["problem", "saving"])
        .astype({"saving": "float64"})
        .groupby("problem")["saving"]
        .sum()
    )


def _measured_beside(known: pd.Series, findings: Sequence[Finding], tables: Tables) -> list[Finding]:
    """Findings with two measured times on problems that are not among the known ones; of one problem the largest."""
    theirs = tables.links.loc[tables.links["problem"].isin(known), "other"]
    seen = {*known, *theirs}
    out = []
    for finding in sorted(findings, key=lambda x: -(x.saving_us or 0.0)):
        text = finding.problem.text if finding.problem else ""
        if text not in seen and finding.saving_us and pre_us(finding) and basis(finding) != "inferred":
            seen.add(text)
            out.append(finding)
    return out


def _with_time(tables: Tables, problems: pd.Index) -> set[str]:
    """Problems that some file has a time of: a measurement of one that they are linked to, or a trace."""
    rows = timed(tables.measurements)
    linked = closest(tables, pd.Series(problems), rows["problem"])
    return set(linked["problem"]) | set(tables.kernels["problem"].dropna())


def break_even(to_tune: Sequence[Finding], tables: Tables, settings: Settings) -> BreakEven | None:
    """The cost of tuning these findings' problems, and when it pays; None where there is nothing to tune."""
    best: dict[str, Finding] = {}
    for finding in to_tune:  # of several findings of one problem the costliest counts
        if finding.problem is not None:
            old = best.get(finding.problem.text)
            if old is None or (finding.saving_us or 0.0) > (old.saving_us or 0.0):
                best[finding.problem.text] = finding
    if not best:
        return None
    rows = tables.measurements[["problem", "solution", "status", "time_us"]]
    tried = timed(of_problems(rows, set(best))).groupby("problem")["solution"].nunique().to_dict()
    seconds = 0.0
    for text, finding in best.items():
        kind = "conv" if finding.kind == "conv" else "gemm"
        solutions = max(int(tried.get(text, 0)), ASSUMED_SOLUTIONS[kind])
        seconds += cost_s(pre_us(finding) or ASSUMED_US, solutions) + solutions * COMPILE_S[kind]
    saving = sum(finding.saving_us or 0.0 for finding in best.values())
    runs = seconds * 1e6 / saving if saving else None
    count = steps(tables, settings)[0]
    return BreakEven(
        problems=len(best),
        seconds=seconds,
        saving_us=saving,
        runs=runs,
        steps=None if runs is None or count is None else runs * count,
        assumption=_ASSUMPTION,
    )


_ASSUMPTION = (
    f"at least {ASSUMED_SOLUTIONS['gemm']} solutions per GEMM and {ASSUMED_SOLUTIONS['conv']} per convolution (each "
    f"compiled in {COMPILE_S['conv']:g} s), raced as `logparse replay` does on one GPU"
)
