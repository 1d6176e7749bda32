"""Decide what to do with the user's lists of preferred kernels (override files) after an upgrade of a library.

For each row of the files the decision is to keep it, to measure it again, or to drop it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from analyzers.compare.diff import FAIL_ON
from analyzers.evidence.joins import against_default
from analyzers.evidence.statistics.intervals import TIE
from analyzers.evidence.tables import Tables
from analyzers.overrides.lint import by_name, facts_of_run
from logparse.libraries.builds import ids_are_names, same_build
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.libraries.kinds.reading import Row
from logparse.links import may_be
from logparse.model import problem_from_text
from logparse.target import Facts, same_device
from logparse.text import signed_percent

Decision = Literal["keep", "re-measure", "drop"]


@dataclass(frozen=True)
class PlannedRow:
    """A row of an old override file (the user's list of preferred kernels), with the decision what to do with it.

    The decision is to keep the row, to measure it again, or to drop it. ``reason`` explains the decision.
    """

    file: str
    line: int
    key: str
    solution: str
    action: Decision
    reason: str


def upgrade_plan(files: Sequence[OverrideFile], b: Tables, floor: float = FAIL_ON) -> list[PlannedRow]:
    """Decide what to do with each row of old override files on a new machine or build: keep, measure again or drop.

    The run ``b`` was made on the new machine. The files were read without a target machine.

    * If run ``b`` itself measured the gain of a row, the gain decides. A row with a gain below ``floor`` is dropped.
    * A row that names its kernel by an index must be measured again after a change of the library's build, because
      the index may mean another kernel there.
    * On the same device, a row that names its kernel (a MIOpen solver) is kept, because the name means the same
      solver in every build.
    """
    facts = facts_of_run(b)
    ratios = against_default(b.measurements[b.measurements["run"] == b.run], b.facts)
    out = []
    for file in files:
        format = by_name(file.format)
        work = b.workload[b.workload["kind"].isin(format.kinds)]["problem"].drop_duplicates()
        served: dict[str | None, list[str]] = {}
        for text in work:
            served.setdefault(format.key(problem_from_text(text), {**file.facts, **facts}), []).append(text)
        ignored = any(file.facts[x] != facts[x] for x in file.facts if x.startswith(format.compared) and x in facts)
        for row in file.rows:
            action, reason = _decision(file, row, facts, served if len(work) else None, ratios, floor)
            reason += (
                "; write the row into a new file, because the new build ignores this file"
                if ignored and action == "keep"
                else ""
            )
            solution = row.solution.text if row.solution else ""
            out.append(PlannedRow(file.name, row.line, row.key, solution, action, reason))
    return out


def _decision(
    file: OverrideFile,
    row: Row,
    facts: Facts,
    served: Mapping[str | None, Sequence[str]] | None,
    ratios: Mapping[tuple[str, str], float],
    floor: float,
) -> tuple[Decision, str]:
    format = by_name(file.format)
    if not row.live:
        return "drop", row.verdicts.why
    foreign = format.not_in_this_build(row.key, facts)
    if foreign is not None:
        return "re-measure", foreign
    calls = [] if served is None else served.get(row.key, ())
    vague = () if served is None else served.get(None, ())  # Calls whose logs leave some fields of the key open.
    if served is not None and not calls and not any(may_be(row.problem, problem_from_text(x)) for x in vague):
        return "drop", "no call of the new run matches this row"
    library = row.solution.library if row.solution else ""
    name = row.solution.text if row.solution else ""
    gains = [1 / ratios[x, name] - 1 for x in calls if (x, name) in ratios]
    device, build = same_device(file.facts, facts), same_build(file.facts, facts, library)
    stale = not ids_are_names(library) and build is not True
    if gains and not stale:
        best = max(gains)
        gain = f"measured in the new run: {signed_percent(best)} against the library's default"
        return ("keep" if best >= floor - TIE else "drop"), gain
    if device is False:
        return "re-measure", "the new run used another kind of GPU than the one for which the override file was written"
    if stale:
        what = f"another build of {library}" if build is False else f"an unknown build of {library}"
        return "re-measure", f"the new run used {what}, in which the row's index may name another kernel"
    return "keep", "the file and the new run have the same library build" if not ids_are_names(library) else (
        "the row names its kernel by name, which is the same in every library build"
    )
