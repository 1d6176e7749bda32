"""What to paste where for one problem: the library's bench command, and the override row of the best known solution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType

import pandas as pd

from analyzers.explore.plain_text import sentence
from analyzers.explore.tries import Row, Try
from analyzers.overrides.commands import COMMANDS
from analyzers.overrides.write import make
from analyzers.times.cells import number_of
from analyzers.times.comparison import INCOMPARABLE
from logparse.errors import EmissionError
from logparse.formats.format import Writer
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.hipblaslt.tuning_rules import with_objects
from logparse.formats.override_formats import WRITERS
from logparse.model import Override, Problem, Solution, problem_from_text, solution_from_text
from logparse.target import machine, serves
from logparse.text import duration


@dataclass(frozen=True)
class Advice:
    """``sentence`` is the recommendation; ``command`` and ``override`` are for the clipboard, empty where there is none
    (then ``*_note`` has the reason).  ``override_note`` also names the target on which the row was measured.
    """

    sentence: str
    command: str
    command_note: str
    override: str
    override_name: str
    override_note: str


def advice(
    row: Row,
    tries: Sequence[Try],
    facts: Mapping[str, str],
    writers: Sequence[Writer] = WRITERS,
    target: Mapping[str, str] = MappingProxyType({}),
    objects: Sequence[Problem] = (),
) -> Advice:
    """For a row of ``points``, the measurements of its problem, and the facts of the file that made them.

    The override is for ``target`` if that is given; empty if the time was measured elsewhere.  It has a second row for
    a problem of ``objects``, those that the run called through hipBLASLt's C++ object, where such calls need one.
    """
    problem = problem_from_text(str(row["problem"]))
    command, command_note = _command(problem, {**facts, **target})
    override, name, note = _override(problem, row, tries, facts, writers, target, objects)
    return Advice(_sentence(row) + _in_the_run(row), command, command_note, override, name, note)


_NOTHING_BETTER = "the pick is the best known solution"


def _sentence(row: Row) -> str:
    finding = row["finding"]
    if isinstance(finding, str) and finding:
        more = row["advice"]
        return sentence(finding) + (f" {sentence(more)}" if isinstance(more, str) and more else "")
    if pd.isna(row["best_us"]):
        return "No solution of this problem is timed. Run the command below and ingest its output, or: logparse replay."
    best = f"{row['best']} ({duration(row['best_us'])})"
    if pd.isna(row["pick_us"]) and row["best"] == row["pick"] and row["basis"] != INCOMPARABLE:
        return f"Only the pick is timed, {best}: nothing to compare with. Measure others: logparse replay."
    if pd.isna(row["pick_us"]):
        return f"The best known solution is {best}; what the library picks is not timed, so nothing is claimed."
    if row["loss_us"] <= 0:
        return f"The pick is the best known solution, {best}: nothing to do."
    return f"{row['pick']} takes {duration(row['pick_us'])}, {best} is the best known."


def _in_the_run(row: Row) -> str:
    """How times that were compared elsewhere become a saving of this run; empty where they are its own."""
    same = math.isclose(row["time_us"], row["pick_us"], rel_tol=1e-6)
    if pd.isna(row["pick_us"]) or not row["then_us"] < row["time_us"] or same:
        return ""
    return (
        f" In this run a call takes {duration(row['time_us'])}: with the same ratio of the two "
        f"{duration(row['then_us'])}."
    )


def _command(problem: Problem, facts: Mapping[str, str]) -> tuple[str, str]:
    if facts.get("arch", "").startswith("sm_"):
        return "", "no bench command: NVIDIA's libraries have none; logparse replay measures this problem"
    maker = COMMANDS.get("miopen" if problem.kind == "conv" else "hipblaslt")
    if maker is None:
        return "", "no bench command for this kind of problem"
    try:
        return maker(problem), ""
    except EmissionError as error:
        return "", f"no bench command: {error}"


def _override(
    problem: Problem,
    row: Row,
    tries: Sequence[Try],
    facts: Mapping[str, str],
    writers: Sequence[Writer],
    target: Mapping[str, str],
    objects: Sequence[Problem],
) -> tuple[str, str, str]:
    timed = [(x.time_us, x) for x in tries if x.time_us is not None and x.time_us > 0]
    if not timed:
        unread = "its single times are not read yet; open it again"
        return "", "", f"no override: {'nothing is measured' if pd.isna(row['best_us']) else unread}"
    if row["best"] == row["pick"]:
        return "", "", f"no override: {'only the pick is timed' if pd.isna(row['pick_us']) else _NOTHING_BETTER}"
    mine = [x for x in timed if x[1].solution == row["best"]]
    time_us, best = min(mine or timed, key=itemgetter(0))
    parts = solution_from_text(str(best.solution))
    fits = serves(facts, target, parts.library) if target else True
    if fits is False:
        return "", "", "no override: the best known time is of another device or library build than --target"
    override = Override(
        problem=problem,
        solution=Solution(parts.library, parts.id, best.raw or "", best.algorithm or None),
        target={**machine(facts), **target},
        time_us=time_us,
        default_us=number_of(row["pick_us"]),
        workspace_bytes=best.workspace_bytes,
        key_text=best.key_text or None,
    )
    where = ", ".join(f"{facts[x]}{' CUs' if x == 'cu_count' else ''}" for x in ("arch", "cu_count") if x in facts)
    reasons: dict[str, list[str]] = {}
    for writer in writers:
        if not writer.accepts(override):
            continue
        rows = with_objects([override], objects, override.target) if writer is tuning_file.WRITER else [override]
        made = make(writer, rows, override.target)
        if not made.files:
            for reason in made.refused:
                reasons.setdefault(reason, []).append(writer.name)
            continue
        proposed = (
            "" if row["has_override"] else "; not proposed by recommend: this is the best known, not a proven gain"
        )
        doubt = "" if fits else "; whether --target is of the same device and build is not known"
        also = "; the second row is for calls through hipBLASLt's C++ object" if len(made.held) > 1 else ""
        note = f"measured on {where or 'an unknown device'}{doubt}{also}{proposed}"
        return made.files[0].data.decode("utf-8", "replace").strip(), made.files[0].name, note
    refused = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return "", "", f"no override: {refused or f'no writer for {best.solution}'}"
