"""All findings of a run, judged, ranked and gated, and the overrides that they propose.

The ceiling comes first: what would be gained if every problem ran at its best known time, and on how much of the calls
and of the time that claim rests.  What a confirmation did not confirm is left out.  "Nothing worth doing" is a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analyzers import ANALYZERS, library_hint, suboptimal_pick
from analyzers.analyzer import Settings, Tables
from analyzers.evidence.joins import calls_by_problem, timed
from analyzers.evidence.picks import BY_DEFAULT, MEASURED, compare
from analyzers.evidence.program_changes import by_hand
from analyzers.evidence.target import Facts, arch, folder, same_device, seen_by, serves
from analyzers.overrides.commands import COMMANDS
from analyzers.recommend.apply_script import script as apply_script
from analyzers.recommend.ceiling import BreakEven, Ceiling, break_even, ceiling, gpu_us
from analyzers.recommend.confidence import Judgement, basis, completed, judgement, pre_us
from analyzers.recommend.search_scripts import scripts, to_tune
from analyzers.recommend.wildcards import Times, exact, first, smallest
from logparse.errors import EmissionError
from logparse.formats.format import Emission, Writer
from logparse.formats.tunableop.signature import torch_version
from logparse.model import Family, Finding, Override, Problem, solution_from_text

WILDCARDS_FROM = (2, 15)
"""The first PyTorch whose TunableOp matches rows with wildcards."""


@dataclass(frozen=True)
class Recommendation:
    """``findings`` are about problems, the most valuable first; ``remarks`` about the run.

    ``judgement`` holds what was tested.  ``left_out`` counts, by reason, the findings that are not among ``findings``.
    ``calls`` and ``times`` (µs per problem and solution, of the file that speaks for the problem) are what families of
    rows are chosen by.  ``cuda``: the run's files are of NVIDIA GPUs.
    """

    run: str
    ceiling: Ceiling
    break_even: BreakEven | None
    judgement: Judgement
    remarks: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    left_out: Mapping[str, int]
    calls: Mapping[str, float]
    times: Times
    cuda: bool = False

    @property
    def gated(self) -> int:
        """How many findings were left out."""
        return sum(self.left_out.values())

    @property
    def overrides(self) -> tuple[Override, ...]:
        return tuple(x.override for x in self.findings if x.override is not None)


@dataclass(frozen=True)
class Emissions:
    """The files for one target, and what was not written and why."""

    target: Facts
    files: tuple[Emission, ...]
    notes: tuple[str, ...]


NOT_CONFIRMED = "not confirmed: paired samples do not show the gain"
BELOW_FLOOR = "gain below the floor"
TOO_LITTLE = "saves less than was asked for"


def recommend(tables: Tables, settings: Settings) -> Recommendation:
    """Run every analyzer and rank what they find by time saved per run; unknown savings last, by loss per call."""
    judged = judgement(tables, settings.floor_share)
    found = completed((x for analyzer in ANALYZERS for x in analyzer.find(tables, settings)), tables, judged)
    remarks = [x for x in found if x.problem is None]
    about = told_once([x for x in found if x.problem is not None], tables.links)
    reasons = [_why_left_out(x, settings, judged) for x in about]
    total = gpu_us(tables)
    kept = sorted((_with_share(x, total) for x, why in zip(about, reasons, strict=True) if why is None), key=rank)
    rows = compare(tables, settings)
    return Recommendation(
        run=tables.run,
        ceiling=ceiling(rows, kept, tables, settings),
        break_even=break_even(to_tune(kept), tables, settings),
        judgement=judged,
        remarks=tuple(remarks),
        findings=tuple(kept),
        left_out=dict(sorted(Counter(why for why in reasons if why is not None).items())),
        calls={str(x): float(n) for x, n in calls_by_problem(tables.workload).dropna().items()},
        times=_times(rows, tables),
        cuda=_of_cuda(tables),
    )


def told_once(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    """The same better solution saves its time only once.

    A plain pick that another analyzer explains is left out, and the explanation takes over its override; so is a
    library's hint to pad where padding was measured.  Of a problem whose calls nobody counts and which may be a counted
    one (a TunableOp key beside the log's line), only findings are kept that the counted one does not have.
    """
    return _without_echoes(_explained(findings), links)


def _without_echoes(findings: Sequence[Finding], links: pd.DataFrame) -> list[Finding]:
    about = [(x, x.problem.text) for x in findings if x.problem is not None]
    counted = {(x.analyzer, text) for x, text in about if x.calls is not None}
    rows = links[links["problem"].isin({text for x, text in about if x.calls is None})]
    may_be: dict[str, set[str]] = {str(text): set(others) for text, others in rows.groupby("problem")["other"]}
    echoes = {
        id(x)
        for x, text in about
        if x.calls is None and x.override is None and any((x.analyzer, y) in counted for y in may_be.get(text, ()))
    }
    return [x for x in findings if id(x) not in echoes]


def _explained(findings: Sequence[Finding]) -> list[Finding]:
    measured = {_remedy(x) for x in findings if x.per_call_us is not None}
    findings = [
        x for x in findings if x.analyzer != library_hint.NAME or _remedy(x) is None or _remedy(x) not in measured
    ]
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


def _remedy(finding: Finding) -> tuple[str, str] | None:
    """The problem and the kind of change that a finding proposes: ``torch:pad`` of ``torch:pad=8,stored``."""
    best = finding.evidence.get("best")
    if finding.problem is None or not isinstance(best, str) or not best.startswith("torch:"):
        return None
    return finding.problem.text, best.partition("=")[0]


def _better(finding: Finding) -> tuple[str, object] | None:
    """The problem and the better solution of which a finding claims a saving."""
    best = finding.evidence.get("best")
    if finding.problem is None or best is None or finding.per_call_us is None:
        return None
    return finding.problem.text, best


def rank(finding: Finding) -> tuple[bool, float, float, str, str]:
    """Sort key: known savings first and largest first, then the loss of one call, then the text."""
    text = finding.problem.text if finding.problem else ""
    saving = finding.saving_us
    return (saving is None, -(saving or 0.0), -(finding.per_call_us or 0.0), text, finding.message)


def action(finding: Finding) -> str:
    """What to do about a finding, in a few words."""
    if finding.override is not None:
        return f"use {finding.override.solution.text}"
    if to_tune([finding]):
        return "tune"
    # A better one is known: one that no file can make a library take, or of another build or device than the target.
    best = finding.evidence.get("best")
    if isinstance(best, str) and by_hand(solution_from_text(best)) and finding.per_call_us is not None:
        return f"by hand: {best}"
    return "see its advice" if finding.advice else "measure on the target"


def _why_left_out(finding: Finding, settings: Settings, judged: Judgement) -> str | None:
    if not judged.keeps(finding):
        return NOT_CONFIRMED
    before = pre_us(finding)
    if before is not None and finding.per_call_us is not None and finding.per_call_us < settings.floor_share * before:
        return BELOW_FLOOR
    if finding.saving_us is not None and finding.saving_us < settings.min_saving_us:
        return TOO_LITTLE
    return None


def _with_share(finding: Finding, total_us: float | None) -> Finding:
    if finding.saving_us is None or total_us is None:
        return finding
    return replace(finding, saving_share=finding.saving_us / total_us)


def _times(rows: pd.DataFrame, tables: Tables) -> dict[str, dict[str, float]]:
    """What the file that ``picks.compare`` took for a GEMM says of each of its solutions."""
    gemms = rows[rows["problem"].str.startswith("gemm ") & rows["basis"].isin((MEASURED, BY_DEFAULT))]
    chosen = gemms[["problem", "source_id", "origin", "measured"]].drop_duplicates("problem")
    told = tables.measurements.rename(columns={"problem": "measured"})
    told = timed(told[told["measured"].isin(set(chosen["measured"]))])
    out: dict[str, dict[str, float]] = {}
    joined = chosen.merge(told, on=["source_id", "origin", "measured"]).sort_values("time_us")
    for problem, solution, time_us in zip(joined["problem"], joined["solution"], joined["time_us"], strict=True):
        out.setdefault(str(problem), {}).setdefault(str(solution), float(time_us))
    return out


# ------------------------------------------------------------------------------------------------ what to write


def targets(recommendation: Recommendation, settings: Settings) -> Mapping[str, Facts]:
    """Folder name → facts: the target that the user named, else each set of facts that overrides were measured on.

    Two targets never share a folder, also when only a fact differs that their names do not show.
    """
    named = [settings.target] if settings.target else [dict(x.target) for x in recommendation.overrides]
    out: dict[str, Facts] = {}
    for facts in sorted({tuple(sorted(x.items())) for x in named}) or [()]:
        name, number = folder(dict(facts)), 2
        while name in out:
            name, number = f"{folder(dict(facts))}-{number}", number + 1
        out[name] = dict(facts)
    return out


def emissions(
    recommendation: Recommendation,
    target: Facts,
    writers: Sequence[Writer],
    settings: Settings,
    *,
    folder: str = ".",
    gpus: int = 1,
    commands: Mapping[str, Callable[[Problem], str]] = COMMANDS,
) -> Emissions:
    """The files for one target, which will lie in ``folder``: overrides by every writer that takes them, ``apply.sh``
    for these, and tuning scripts.

    What a writer refuses (a field that its library checks is unknown) becomes a note that says what was not written.
    """
    mine, caution = _sure(recommendation, target, settings)
    files: list[Emission] = []
    notes: list[str] = [caution] if caution else []
    rows: list[Override] = []
    for writer in writers:
        accepted, said = _rows(writer, [x for x in mine if writer.accepts(x)], target, recommendation, settings)
        made, refused = _written(writer, accepted, seen_by(gpus, target))
        files += made
        rows += accepted if made else []
        notes += [*(said if made else ()), *refused]
    unwritten = [x for x in mine if not any(writer.accepts(x) for writer in writers)]
    notes += [f"no writer for {x.solution.text} of {x.problem.label}" for x in unwritten]
    apply = apply_script(rows, files, target, folder, "" if settings.confirmed_only else caution)
    tuning, left_out = _searches(recommendation, target, commands)
    return Emissions(target, (*files, *([apply] if apply else []), *tuning), (*notes, *left_out))


def _of_cuda(tables: Tables) -> bool:
    """Whether the run's files tell GPUs, and all are NVIDIA's."""
    rows = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == "arch")]
    return bool(len(rows) and rows["value"].str.startswith("sm_").all())


def _searches(
    of: Recommendation, target: Facts, commands: Mapping[str, Callable[[Problem], str]]
) -> tuple[list[Emission], list[str]]:
    """The tuning scripts for a target; NVIDIA's libraries have no tool that searches."""
    concerned = [x for x in of.findings if _concerns(x, target)]
    if (arch(target) or "").startswith("sm_") or (of.cuda and arch(target) is None):
        count = len({x.problem for x in to_tune(concerned)})
        note = f"no tool of NVIDIA's searches for solutions of {count:,} problem(s): `logparse replay` measures them"
        return [], [note] if count else []
    return scripts(concerned, commands)


def _sure(of: Recommendation, target: Facts, settings: Settings) -> tuple[list[Override], str]:
    """The overrides for a target that are to be written, and what is to be known of those that nothing confirmed."""
    found = [(x.override, basis(x)) for x in of.findings if x.override is not None and _for(x.override, target)]
    sure = [override for override, how in found if how == "confirmed"]
    doubtful = len(found) - len(sure)
    if not doubtful:
        return sure, ""
    if settings.confirmed_only:
        return sure, f"{doubtful:,} of {len(found):,} overrides not written: nothing confirms them; {UNCONFIRMED}"
    caution = f"{doubtful:,} of {len(found):,} overrides are not confirmed (--confirmed leaves them out): {UNCONFIRMED}"
    return [override for override, _ in found], caution


UNCONFIRMED = (
    "the fastest of many times was lucky in part, the true gain is smaller and may be none "
    "(`logparse replay` on the target tests it)"
)
"""What the best of many unrepeated times is worth."""


def _rows(
    writer: Writer, overrides: Sequence[Override], target: Facts, of: Recommendation, settings: Settings
) -> tuple[list[Override], list[str]]:
    """The rows of a writer's file: families where its library matches wildcards, the most valuable first."""
    groups = exact(overrides, of.calls)
    if writer.name == "tunableop" and (torch_version(target) or (0, 0)) >= WILDCARDS_FROM:
        groups = smallest(overrides, of.calls, of.times, lambda x: writer.key(x, target), settings.family_regret)
    rows, lost = first(groups, settings.max_rows)
    notes = []
    families = [x.problem.label for x in rows if isinstance(x.problem, Family)]
    if families:
        notes.append(
            f"{writer.name}: {len(overrides):,} problems in {len(rows):,} rows; calls of other sizes match the "
            f"wildcards too: {', '.join(families[:3])}{' …' if len(families) > 3 else ''}"
        )
    if len(rows) < sum(len(x.rows) for x in groups):
        notes.append(
            f"{writer.name}: only the {len(rows):,} most valuable rows (--max-rows); "
            f"the others would save {lost / 1e3:,.3g} ms per run"
        )
    return rows, notes


def _written(writer: Writer, overrides: Sequence[Override], target: Facts) -> tuple[list[Emission], list[str]]:
    """The writer's files; overrides that it refuses by themselves are left out and said, the others are written."""
    refused: dict[str, list[str]] = {}
    good = []
    for override in overrides:
        try:
            writer.write([override], target)
            good.append(override)
        except EmissionError as error:
            refused.setdefault(str(error), []).append(override.problem.label)
    notes = [f"{writer.name}: {len(labels)} override(s) not written: {why}" for why, labels in refused.items()]
    try:
        return list(writer.write(good, target)) if good else [], notes
    except EmissionError as error:  # they are well alone and do not go together
        return [], [*notes, f"{writer.name}: {len(good)} override(s) not written: {error}"]


def _concerns(finding: Finding, target: Facts) -> bool:
    """Whether a finding may be true of the target: not one that was measured on another device."""
    place = {name: str(finding.evidence[name]) for name in ("arch", "cu_count") if finding.evidence.get(name)}
    return same_device(place, target) is not False


def _for(override: Override, target: Facts) -> bool:
    """Whether an override's own target is this one; another device or build never is, equal facts always are."""
    return dict(override.target) == dict(target) or serves(override.target, target, override.solution.library) is True
