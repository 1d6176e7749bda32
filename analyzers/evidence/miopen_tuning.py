"""What a MIOpen override needs beside its solver: the parameters that it was tuned to, and a second solver.

A tunable solver without its perf-db row runs at default parameters, often several times slower than measured; a find-db
record whose only solver does not apply (another workspace, a deterministic run) counts as empty, and MIOpen searches.
Source: ROCm/MIOpen ``src/find_db.cpp``, ``src/include/miopen/generic_search.hpp``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analyzers.analyzer import Tables
from analyzers.evidence.cells import count_of
from analyzers.evidence.joins import timed
from analyzers.evidence.target import Facts, same_build, same_device
from logparse.formats.miopen import perf_db
from logparse.formats.miopen.problem_key import problem_from_key
from logparse.formats.miopen.solvers import TUNABLE
from logparse.model import ConvProblem, Evidence, Finding, Override, Solution, solution_from_text


def completed(findings: Sequence[Finding], tables: Tables, facts: Mapping[str, Facts]) -> list[Finding]:
    """The findings, their MIOpen overrides completed from the same record and perf-dbs of machines like the target.

    The second solver is the next fastest of the record that the first one is of.  Parameters are taken from perf-dbs of
    the target's device, and of its MIOpen version where both state one; the target's own build and user files first.
    """
    if not any(_of_miopen(x) for x in findings):
        return list(findings)
    tuned = _Tuned(tables.measurements, facts)
    return [_completed(x, tables.measurements, tuned) if _of_miopen(x) else x for x in findings]


def _of_miopen(finding: Finding) -> bool:
    override = finding.override
    return override is not None and isinstance(override.problem, ConvProblem) and override.solution.library == "miopen"


def _completed(finding: Finding, measurements: pd.DataFrame, tuned: _Tuned) -> Finding:
    override = finding.override
    assert override is not None
    second = _second(override, finding.evidence, measurements)
    second = None if second is None else replace(second, parameters=tuned.parameters(second))
    return replace(finding, override=replace(override, parameters=tuned.parameters(override), fallback=second))


def _second(override: Override, evidence: Evidence, measurements: pd.DataFrame) -> Override | None:
    """The next fastest solver of the record (source, origin, problem) that the override rests on."""
    same = measurements["problem"] == evidence.measured
    same &= (measurements["source_id"] == evidence.source_id) & (measurements["origin"] == evidence.origin)
    rows = timed(measurements[same & (measurements["library"] == "miopen")]).sort_values(["time_us", "solution"])
    rows = rows[rows["solution"] != override.solution.text]
    if not len(rows):
        return None
    row = rows.iloc[0]
    named = solution_from_text(str(row["solution"]))
    algorithm, space = row["algorithm"], row["workspace_bytes"]
    return replace(
        override,
        solution=Solution(
            named.library, named.id, str(row["raw"] or ""), str(algorithm) if isinstance(algorithm, str) else None
        ),
        time_us=float(row["time_us"]),
        workspace_bytes=count_of(space),
    )


class _Tuned:
    """(perf-db key, solver) → sources and the parameters that each has."""

    def __init__(self, measurements: pd.DataFrame, facts: Mapping[str, Facts]) -> None:
        rows = measurements[measurements["origin"] == perf_db.ORIGIN]
        self._facts = facts
        self._known: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for key, name, source, text in zip(
            rows["key_text"], rows["solution"], rows["source_id"], rows["raw"], strict=True
        ):
            self._known.setdefault((str(key), str(name)), []).append((str(source), str(text)))

    def parameters(self, override: Override) -> str | None:
        """The solver's parameters for the override's problem on its target; None where no perf-db contains them."""
        if not TUNABLE.match(override.solution.id):
            return None
        found = self._known.get((_perf_key(override) or "", override.solution.text), [])
        fitting = [(source, text) for source, text in found if self._fits(source, override.target)]
        return min(fitting, key=lambda entry: self._order(entry[0], override.target))[1] if fitting else None

    def _fits(self, source: str, target: Facts) -> bool:
        mine = self._facts.get(source, {})
        return same_device(mine, target) is True and same_build(mine, target, "miopen") is not False

    def _order(self, source: str, target: Facts) -> tuple[bool, bool, str]:
        mine = self._facts.get(source, {})
        return mine.get("miopen_tweak") != target.get("miopen_tweak"), mine.get("perf_db") != "user", source


def _perf_key(override: Override) -> str | None:
    with contextlib.suppress(ValueError):
        return perf_db.perf_key_of(problem_from_key(override.key_text or ""))
    return perf_db.key(override.problem, override.target)
