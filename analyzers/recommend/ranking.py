"""All findings of a run, judged, ranked and gated.

The ceiling comes first: what would be gained if every problem ran at its best known time, and on how much of the calls
and of the time that claim rests.  What a confirmation did not confirm is left out.  "Nothing worth doing" is a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import pandas as pd

from analyzers import ANALYZERS, below_roofline, suboptimal_pick
from analyzers.actions import ACTIONS, ActionResult
from analyzers.actions.totals import rank as rank_of_actions
from analyzers.actions.totals import results, wanted
from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.job.gpu_time import GpuTime, gpu_time, gpu_us
from analyzers.measure.plan import Item, plan
from analyzers.recommend.ceiling import BreakEven, Ceiling, break_even, ceiling, in_the_job
from analyzers.recommend.confidence import Judgement, basis, completed, judgement, post_us, pre_us
from analyzers.recommend.files_action import files_action
from analyzers.recommend.search_scripts import to_tune
from analyzers.times.call_devices import Unplaced, unplaced
from analyzers.times.joins import called_problems, calls_by_problem, of_problems
from analyzers.times.picks import compare
from analyzers.times.program_changes import by_hand, out_of_reach
from logparse.formats.aiter import log as aiter_log
from logparse.formats.hipblaslt import bench
from logparse.model import Finding, Override, Problem, changed, problem_from_text, solution_from_text
from logparse.text import duration


@dataclass(frozen=True)
class Recommendation:
    """``findings`` are about problems, the most valuable first; ``remarks`` about the run.

    ``judgement`` holds what was tested.  ``left_out`` counts, by reason, the findings that are not among ``findings``.
    ``calls``: how often each problem was called.  ``gpu_time`` is where the time of the run's traces goes,
    ``to_measure`` what a replay would measure first.  ``cuda``: the run's files are of NVIDIA GPUs.
    ``aiter_misses``: lines of shapes that aiter's tables lack.  ``object_calls``: problems called through hipBLASLt's
    C++ object.  ``actions``: what override files, settings and changes of the program do to the job, the best first.
    ``plan``: the order of a replay of all problems, by their text.  ``counted``: lines of the run's files that are
    calls or measurements.  ``untimed``: no action is timed, a
    search found what only one reaches, and a replay would time some.
    """

    run: str
    ceiling: Ceiling
    break_even: BreakEven | None
    judgement: Judgement
    remarks: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    left_out: Mapping[str, int]
    calls: Mapping[str, float]
    gpu_time: GpuTime | None = None
    to_measure: tuple[Problem, ...] = ()
    cuda: bool = False
    aiter_misses: tuple[str, ...] = ()
    object_calls: tuple[Problem, ...] = ()
    actions: tuple[ActionResult, ...] = ()
    plan: Mapping[str, Item] = field(default_factory=dict)
    counted: int = 0
    untimed: bool = False

    @property
    def overrides(self) -> tuple[Override, ...]:
        return tuple(x.override for x in self.findings if x.override is not None)

    @cached_property
    def rows(self) -> tuple[Mapping[str, object], ...]:
        """The fields of each finding, flat, as ``findings.json``, the store and every table have them."""
        return tuple(map(_row, self.findings))


POTENTIAL = "potential"
"""How the text of an action begins whose solution no setting chooses for one problem."""
NOT_CONFIRMED = "not confirmed: paired samples do not show the gain"
BELOW_FLOOR = "gain below the floor"
TOO_LITTLE = "saves less than was asked for"


def recommend(tables: Tables, settings: Settings, analyzers: Sequence[Analyzer] | None = None) -> Recommendation:
    """Run every analyzer, or these, and rank what they find by time saved per run; unknown last, by loss per call."""
    least = _least(settings)
    judged = judgement(tables, settings.floor_share)
    chosen = ANALYZERS if analyzers is None else analyzers
    found = completed((x for analyzer in chosen for x in analyzer.find(tables, least)), tables, judged)
    remarks = [x for x in found if x.problem is None]
    of_run = _of_run([x for x in found if x.problem is not None], tables)
    about = deduplicated([_placed(x, unplaced(tables)) for x in of_run], tables.links)
    weighed, total = in_the_job(about, tables), gpu_us(tables)
    reasons = [_why_left_out(x, settings, judged) for x in weighed]
    stands = [_with_share(x, total) for x, why in zip(weighed, reasons, strict=True) if why is None]
    kept = sorted(_instead(stands, tables), key=rank)
    unchanged = {(x.problem, x.analyzer, x.message) for x in kept}
    alone = sorted((x for x in about if (x.problem, x.analyzer, x.message) in unchanged), key=rank)
    rows = compare(tables, least)
    most = ceiling(rows, kept, tables, settings, judged)
    if least != settings:  # what can be gained at most does not depend on what was asked for
        held = judgement(tables, least.floor_share)
        other = _instead([x for x in weighed if _why_left_out(x, least, held) is None], tables)
        most = max(most, ceiling(rows, other, tables, settings, held), key=lambda x: x.saving_us)
    planned = plan(_to_plan(tables), run=tables.run)
    own = tables.sources[tables.sources["run"] == tables.run]
    actions = _actions(alone, most.default_us, tables, settings)
    return Recommendation(
        run=tables.run,
        ceiling=most,
        break_even=break_even(to_tune(kept), tables, settings),
        judgement=judged,
        remarks=tuple(remarks),
        findings=tuple(sorted(map(_potential, kept), key=rank)),
        left_out=dict(sorted(Counter(why for why in reasons if why is not None).items())),
        calls={str(x): float(n) for x, n in calls_by_problem(tables.workload).dropna().items()},
        gpu_time=gpu_time(tables),
        to_measure=_to_measure(planned, rows),
        cuda=_of_cuda(tables),
        aiter_misses=_aiter_misses(tables),
        object_calls=_object_calls(tables),
        actions=actions,
        plan={x.problem.text: x for x in planned},
        counted=int(own[["call_lines", "measurement_lines"]].sum().sum()),
        untimed=_untimed(kept, actions, tables, settings),
    )


def _least(settings: Settings) -> Settings:
    """The settings with gates that are no higher than the usual ones."""
    usual = Settings()
    floor = min(settings.floor_share, usual.floor_share)
    return replace(settings, floor_share=floor, min_saving_us=usual.min_saving_us)


def _actions(
    findings: Sequence[Finding], default_us: float, tables: Tables, settings: Settings
) -> tuple[ActionResult, ...]:
    files = files_action(findings, default_us, tables, settings)
    found = results(tables, ACTIONS, settings) + ([] if files is None else [files])
    return tuple(sorted(found, key=rank_of_actions))


def _untimed(findings: Sequence[Finding], actions: Sequence[ActionResult], tables: Tables, settings: Settings) -> bool:
    if any(x.action.kind != "files" and not x.action.waits for x in actions):
        return False
    return any(action(x).startswith(POTENTIAL) for x in findings) and bool(wanted(tables, ACTIONS, settings))


def _placed(finding: Finding, unplaced: Unplaced) -> Finding:
    """The finding, without calls and saving where its time is not known to be of the device that was called."""
    if finding.problem is None or not unplaced(finding.problem.text, finding.evidence.source_id or ""):
        return finding
    return replace(finding, calls=None, saving_us=None, saving_low_us=None, saving_high_us=None, saving_share=None)


def _instead(findings: Sequence[Finding], tables: Tables) -> list[Finding]:
    """Savings of one problem by several analyzers, or of problems that may be one: one of them keeps it, of the
    measured ones that of the override files, else the largest.  The others are made instead of it, not beside it: they
    state their worth, and save nothing.
    """
    ours = {x.problem.text for x in findings if x.problem is not None and x.saving_us}
    rows = tables.links[tables.links["problem"].isin(ours) & tables.links["other"].isin(ours)]
    same: dict[str, set[str]] = {str(text): set(others) for text, others in rows.groupby("problem")["other"]}
    claims: dict[str, str] = {}
    out = []
    for finding in sorted(findings, key=lambda x: (basis(x) == "inferred", x.override is None, rank(x))):
        text = finding.problem.text if finding.problem is not None else ""
        if not text or not finding.saving_us or _unreachable(finding):
            out.append(finding)
            continue
        by = {claims[x] for x in {text, *same.get(text, ())} if x in claims} - {finding.analyzer}
        claims.setdefault(text, finding.analyzer)
        out.append(_worth(finding, f"instead of what {min(by)} proposes") if by else finding)
    return out


def _worth(finding: Finding, why: str) -> Finding:
    """A finding that states its worth, and saves nothing."""
    text = f"{finding.message}; potential, not a saving ({duration(finding.saving_us or 0.0)} per run): {why}"
    return replace(finding, message=text, saving_us=None, saving_low_us=None, saving_high_us=None, saving_share=None)


def _unreachable(finding: Finding) -> str | None:
    """Why nothing that a person does reaches the better solution."""
    known = finding.evidence.best is not None and finding.override is None
    return out_of_reach(solution_from_text(str(finding.evidence.best))) if known else None


def _potential(finding: Finding) -> Finding:
    """A finding whose better solution nothing that a person does reaches: it states its worth, and saves nothing."""
    why = _unreachable(finding)
    return finding if why is None or finding.saving_us is None else _worth(finding, why)


_FIRST = 3
_PLANNED = ("calls", "workload", "measurements", "facts", "links", "kernels")


def _to_plan(tables: Tables) -> dict[str, pd.DataFrame]:
    """The tables of the plan, without the times of convolutions that only system find-dbs know and the run does not
    call: ``tables_to_analyse`` leaves most of them out, and the plan must not depend on whether they are there.
    """
    measured, facts = tables.measurements, tables.facts
    users = facts.loc[(facts["name"] == "find_db") & (facts["value"] == "user"), "source_id"]
    of_users = measured.loc[measured["source_id"].isin(users), "problem"]
    near = called_problems(tables).union(of_users)
    shipped = (measured["origin"] == "find-db") & (measured["kind"] == "conv")
    kept = measured[~shipped | measured["problem"].isin(near)]
    return {name: getattr(tables, name) for name in _PLANNED} | {"measurements": kept}


def _to_measure(planned: Sequence[Item], compared: pd.DataFrame) -> tuple[Problem, ...]:
    """The problems that a replay would measure first, of those that have no two times in one file."""
    compared_ = set(compared.loc[compared["pick_us"].notna(), "problem"])
    left = (x.problem for x in planned if x.problem.text not in compared_)
    return tuple(islice((x for x in left if getattr(x, "direction", None) != "B+W"), _FIRST))


def _of_run(findings: Sequence[Finding], tables: Tables) -> list[Finding]:
    """Those whose problem the run called or measured: what only other runs of the store did is no finding about it."""
    own = {None, *tables.sources.loc[tables.sources["run"] == tables.run, "source_id"]}
    called = called_problems(tables)
    return [x for x in findings if x.evidence.source_id in own or (x.problem is not None and x.problem.text in called)]


def _aiter_misses(tables: Tables) -> tuple[str, ...]:
    messages = tables.messages
    of = messages["function"].isin([aiter_log.UNTUNED, aiter_log.DEFAULT, aiter_log.FUSED_MOE])
    missed = messages[(messages["category"] == aiter_log.CATEGORY) & of]
    return tuple(sorted(set(missed["text"])))


def _object_calls(tables: Tables) -> tuple[Problem, ...]:
    found = tables.messages[tables.messages["function"] == bench.OBJECT]
    return tuple(problem_from_text(text) for text in sorted(set(found["text"])))


def deduplicated(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    """The same better solution saves its time only once.

    A plain pick that another analyzer explains is left out, and the explanation takes over its override.  An inferred
    saving beside another one of the problem becomes a reason of that.  Of a problem whose calls no log counts and which
    may be a counted one (a TunableOp key beside the log's line), only findings are kept that the counted one does not
    have.
    """
    return _one_saving(_without_echoes(_explained(findings), links))


def _one_saving(findings: Sequence[Finding]) -> list[Finding]:
    """Of the findings that claim a saving of one problem the surest and then largest keeps it, and an inferred one
    beside it becomes a reason: the same time cannot be saved twice.
    """
    best: dict[str, Finding] = {}
    for finding in findings:
        if finding.problem is not None and finding.per_call_us is not None:
            text = finding.problem.text
            best[text] = min(best.get(text, finding), finding, key=_surest)
    why: dict[str, list[str]] = {}
    out = []
    for finding in findings:
        mine = best.get(finding.problem.text) if finding.problem else None
        if mine is None or finding is mine or finding.per_call_us is None or basis(finding) != "inferred":
            out.append(finding)
        elif finding.problem is not None:
            why.setdefault(finding.problem.text, []).append(f"{finding.analyzer}: {finding.message}")
    return [
        changed(x, reasons=(*x.reasons, *why[x.problem.text]))
        if x.problem is not None and x.problem.text in why and best[x.problem.text] is x
        else x
        for x in out
    ]


def _surest(finding: Finding) -> tuple[bool, float, str, str]:
    return basis(finding) == "inferred", -(finding.per_call_us or 0.0), finding.analyzer, finding.message


def _without_echoes(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    about = [(x, x.problem.text) for x in findings if x.problem is not None]
    counted = {(x.analyzer, text) for x, text in about if x.calls is not None}
    rows = of_problems(links, {text for x, text in about if x.calls is None})
    may_be: dict[str, set[str]] = {str(text): set(others) for text, others in rows.groupby("problem")["other"]}
    echoes = {
        id(x)
        for x, text in about
        if x.calls is None and x.override is None and any((x.analyzer, y) in counted for y in may_be.get(text, ()))
    }
    return [x for x in findings if id(x) not in echoes]


def _explained(findings: Sequence[Finding]) -> list[Finding]:
    plain = {_better(x): x for x in findings if x.analyzer == suboptimal_pick.NAME}
    explained = {_better(x) for x in findings if x.analyzer != suboptimal_pick.NAME} - {None}
    out = []
    for finding in findings:
        key = _better(finding)
        if key not in explained:
            out.append(finding)
        elif finding.analyzer != suboptimal_pick.NAME:
            twin = plain.get(key)
            out.append(replace(finding, override=finding.override or (twin.override if twin else None)))
    return out


def _better(finding: Finding) -> tuple[str, object] | None:
    """The problem and the better solution of which a finding claims a saving."""
    best = finding.evidence.best
    if finding.problem is None or best is None or finding.per_call_us is None:
        return None
    return finding.problem.text, best


def rank(finding: Finding) -> tuple[bool, float, float, str, str]:
    """Sort key: known savings first and largest first, then the loss of one call, then the text."""
    text = finding.problem.text if finding.problem else ""
    saving = finding.saving_us
    return (saving is None, -(saving or 0.0), -(finding.per_call_us or 0.0), text, finding.message)


def action(finding: Finding) -> str:
    """The action on a finding, in a few words."""
    if finding.override is not None:
        return f"use {finding.override.solution.text}"
    if finding.analyzer == below_roofline.NAME:
        return "replay"
    if to_tune([finding]):
        return "tune"
    # A better one is known: one that no file can make a library take, or of another build or device than the target.
    best = finding.evidence.best
    if best is not None and by_hand(solution_from_text(best)) and finding.per_call_us is not None:
        return f"{POTENTIAL if out_of_reach(solution_from_text(best)) else 'by hand'}: {best}"
    return "see its advice" if finding.advice else "measure on the target"


def _why_left_out(finding: Finding, settings: Settings, judged: Judgement) -> str | None:
    before, gain = pre_us(finding), finding.per_call_us
    small = before is not None and gain is not None and gain < settings.floor_share * before
    if not judged.keeps(finding):  # samples may well show a gain, of less than was asked for
        return BELOW_FLOOR if small and finding.p is not None and (finding.per_call_low_us or 0) > 0 else NOT_CONFIRMED
    if small:
        return BELOW_FLOOR
    if finding.saving_us is not None and finding.saving_us < settings.min_saving_us:
        return TOO_LITTLE
    return None


def _with_share(finding: Finding, total_us: float | None) -> Finding:
    if finding.saving_us is None or total_us is None:
        return finding
    return replace(finding, saving_share=finding.saving_us / total_us)


def _of_cuda(tables: Tables) -> bool:
    """Whether the run's files name GPUs, and all are NVIDIA's."""
    rows = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == "arch")]
    return bool(len(rows) and rows["value"].str.startswith("sm_").all())


def _row(finding: Finding) -> dict[str, object]:
    problem = finding.problem
    return {
        "analyzer": finding.analyzer,
        "kind": finding.kind,
        "problem": problem.text if problem else None,
        "label": problem.label if problem else None,
        "message": "; also ".join((finding.message, *finding.reasons)),
        "calls": finding.calls,
        "pre_us": pre_us(finding),
        "post_us": post_us(finding),
        **{name: getattr(finding, name) for name in _OWN},
        "confidence": basis(finding),
        "action": action(finding),
        "solution": finding.override.solution.text if finding.override else None,
        "advice": finding.advice,
    }


_OWN = (
    *("per_call_us", "per_call_low_us", "per_call_high_us", "saving_us", "saving_low_us", "saving_high_us"),
    *("saving_share", "interval_from", "p"),
)
