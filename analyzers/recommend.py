"""All findings of a run, ranked and gated, and the overrides that they propose.

The ceiling comes first: what would be gained if every problem ran at its best known time, and on how much of the calls
and of the time that claim rests.  "Nothing worth doing" is a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analyzers import ANALYZERS
from analyzers.analyzer import Settings, Tables
from analyzers.joins import calls_by_problem
from analyzers.picks import compare
from analyzers.scripts import COMMANDS, environment, scripts
from analyzers.target import Facts, folder, same_device, serves
from logparse.errors import EmissionError
from logparse.formats.format import Emission, Writer
from logparse.model import Finding, Override, Problem


@dataclass(frozen=True)
class Ceiling:
    """The most that overrides can gain: every problem at its best known time.

    ``share`` is of the time of the problems whose default is measured (None: no such problem), ``calls_share`` the part
    of all calls that these are, ``gpu_share`` the gain over all GPU time of the run where a trace tells that.
    """

    share: float | None
    saving_us: float
    default_us: float
    problems: int
    calls_share: float | None
    time_share: float | None
    gpu_share: float | None


@dataclass(frozen=True)
class Recommendation:
    """``findings`` are about problems, the most valuable first; ``remarks`` about the run.  ``gated`` counts what was
    left out for saving less than asked.
    """

    run: str
    ceiling: Ceiling
    remarks: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    gated: int

    @property
    def overrides(self) -> tuple[Override, ...]:
        return tuple(x.override for x in self.findings if x.override is not None)


@dataclass(frozen=True)
class Emissions:
    """The files for one target, and what was not written and why."""

    target: Facts
    files: tuple[Emission, ...]
    notes: tuple[str, ...]


def recommend(tables: Tables, settings: Settings) -> Recommendation:
    """Run every analyzer and rank what they find by time saved per run; unknown savings last, by loss per call."""
    found = [finding for analyzer in ANALYZERS for finding in analyzer.find(tables, settings)]
    total = _gpu_us(tables)
    ceiling = _ceiling(compare(tables, settings), tables, total)
    remarks, about = [x for x in found if x.problem is None], [x for x in found if x.problem is not None]
    kept = [x for x in about if _worth_it(x, settings)]
    return Recommendation(
        run=tables.run,
        ceiling=ceiling,
        remarks=tuple(remarks),
        findings=tuple(sorted((_with_share(x, total) for x in kept), key=rank)),
        gated=len(about) - len(kept),
    )


def rank(finding: Finding) -> tuple[bool, float, float, str, str]:
    """Sort key: known savings first and largest first, then the loss of one call, then the text."""
    text = finding.problem.text if finding.problem else ""
    saving = finding.saving_us
    return (saving is None, -(saving or 0.0), -(finding.per_call_us or 0.0), text, finding.message)


def _worth_it(finding: Finding, settings: Settings) -> bool:
    if finding.saving_us is not None and finding.saving_us < settings.min_saving_us:
        return False
    pick = finding.evidence.get("pick_us")
    if isinstance(pick, float) and finding.per_call_us is not None:
        return finding.per_call_us >= settings.floor_share * pick
    return True


def _with_share(finding: Finding, total_us: float | None) -> Finding:
    if finding.saving_us is None or total_us is None:
        return finding
    return replace(finding, saving_share=finding.saving_us / total_us)


def _gpu_us(tables: Tables) -> float | None:
    """GPU time of the run's traces, where the traces also count the run's calls; else None.

    A log's calls are of the whole job, a trace's time of the steps that it saw: their quotient would mean nothing.
    """
    rows = tables.kernels[tables.kernels["run"] == tables.run]
    counted = tables.workload["calls_from"].eq("profiler")
    total = float(rows["total_us"].sum())
    return total if len(rows) and total > 0 and counted.all() else None


def _ceiling(rows: pd.DataFrame, tables: Tables, gpu_us: float | None) -> Ceiling:
    known = rows[rows["pick_us"].notna() & rows["calls"].notna()]
    calls = known["calls"].astype("float64")
    default = float((calls * known["pick_us"].astype("float64")).sum())
    gain = (known["pick_us"].astype("float64") - known["best_us"].astype("float64")).clip(lower=0.0)
    saving = float((calls * gain).sum())
    every = calls_by_problem(tables.workload).dropna()
    return Ceiling(
        share=saving / default if default else None,
        saving_us=saving,
        default_us=default,
        problems=int(known["problem"].nunique()),
        calls_share=float(calls.sum() / every.sum()) if len(every) and every.sum() else None,
        time_share=default / gpu_us if gpu_us else None,
        gpu_share=saving / gpu_us if gpu_us else None,
    )


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
    commands: Mapping[str, Callable[[Problem], str]] = COMMANDS,
    gpus: int = 1,
) -> Emissions:
    """The files for one target: overrides by every writer that takes them, tuning scripts and the environment.

    What a writer refuses (a field that its library checks is unknown) becomes a note that says what was not written.
    """
    mine = [x for x in recommendation.overrides if _for(x, target)]
    files: list[Emission] = []
    notes: list[str] = []
    for writer in writers:
        accepted = [x for x in mine if writer.accepts(x)]
        made, refused = _written(writer, accepted, {**target, "gpus": str(gpus)})
        files += made
        notes += refused
    unwritten = [x for x in mine if not any(writer.accepts(x) for writer in writers)]
    notes += [f"no writer for {x.solution.text} of {x.problem.label}" for x in unwritten]
    findings = [x for x in recommendation.findings if _concerns(x, target)]
    tuning, left_out = scripts(findings, commands)
    return Emissions(target, (*files, *tuning, environment(findings)), (*notes, *left_out))


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
