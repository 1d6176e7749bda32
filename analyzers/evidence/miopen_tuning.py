"""What a MIOpen override needs beside its solver: the parameters that it was tuned to, and a second solver.

A tunable solver without its perf-db row runs at default parameters, often several times slower than measured; a find-db
record whose only solver does not apply (another workspace, a deterministic run) counts as empty, and MIOpen searches
and overwrites it.  So one of the two solvers is one that a find-db, log or replay of the target's build names, as far
as there is such a file.
Source: ROCm/MIOpen ``src/find_db.cpp``, ``src/include/miopen/generic_search.hpp``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analyzers.evidence.cells import count_of, text_of
from analyzers.evidence.joins import timed
from analyzers.evidence.tables import Tables
from logparse.lazy import pd
from logparse.model import Advise, ConvProblem, Evidence, Finding, Override, UseRows, solution_from_text
from logparse.target import Facts, same_build, same_device


def completed(findings: Sequence[Finding], tables: Tables, facts: Mapping[str, Facts]) -> list[Finding]:
    """The findings, their MIOpen overrides completed from the same record and perf-dbs of machines like the target.

    The second solver is the next fastest of the record that the first one is of.  Parameters are taken from perf-dbs of
    the target's device, and of its MIOpen version where both state one; the target's own build and user files first.
    """
    if not any(_of_miopen(x) for x in findings):
        return list(findings)
    known = _Known(tables.measurements, facts)
    return [known.completed(x, x.override) if x.override and _of_miopen(x) else x for x in findings]


def of_build(measurements: pd.DataFrame, facts: Mapping[str, Facts], target: Facts) -> pd.DataFrame:
    """The measurements by the target's build of MIOpen: their solutions are solvers that it has."""
    sources = [source for source, mine in facts.items() if _is_build(mine, target)]
    return measurements[(measurements["library"] == "miopen") & measurements["source_id"].isin(sources)]


def _is_build(mine: Facts, target: Facts) -> bool:
    tweaks = {x["miopen_tweak"] for x in (mine, target) if x.get("miopen_tweak")}
    return same_build(mine, target, "miopen") is True and len(tweaks) < 2


NOT_IN_THE_BUILD = (
    "{name} is named by no find-db, log or replay of the target's MIOpen, nor is another solver of the problem: where "
    "the build lacks it, MIOpen searches again and overwrites the record; `logparse replay` on the target tries it"
)
"""Why an override is not proposed."""


UNTIMED_ZEROS = "MIOpen's Find leaves the kernel that sets dW to zero out of a GEMM solver's time: a call takes longer"
"""Seen with MIOpen 3.5.1: its time of GemmWrwUniversal and GemmWrw1x1_stride1 is that of the other kernels."""
_FIND = frozenset({"find-db", "miopen-log"})
"""Origins whose times Find took."""


def _of_miopen(finding: Finding) -> bool:
    override = finding.override
    return override is not None and isinstance(override.problem, ConvProblem) and override.solution.library == "miopen"


class _Known:
    """What is measured, by which builds, and which parameters perf-dbs have: (perf-db key, solver) → sources, texts."""

    def __init__(self, measurements: pd.DataFrame, facts: Mapping[str, Facts]) -> None:
        self._measurements, self._facts = measurements, facts
        self._builds: dict[tuple[tuple[str, str], ...], pd.DataFrame] = {}
        self._tuned: dict[tuple[str, str], list[tuple[str, str]]] = {}
        rows = measurements[(measurements["origin"] == "perf-db") & (measurements["status"] != "skipped")]
        columns = (rows[name].astype(str) for name in ("key_text", "solution", "source_id", "raw"))
        for key, name, source, text in zip(*columns, strict=True):
            self._tuned.setdefault((key, name), []).append((source, text))

    def completed(self, finding: Finding, override: Override) -> Finding:
        """The finding with its override's parameters, workspace and second solver; without it where no build has it."""
        known = self._of_build(override.target)
        second = self._second(override, finding.evidence)
        names = set(known["solution"])
        if names and not names & {x.solution.text for x in (override, second) if x is not None}:
            same = known["problem"].isin((override.problem.text, finding.evidence.measured))
            second = _fastest(override, known[same])
            if second is None:
                return replace(
                    finding,
                    remedy=Advise("build with this solver"),
                    advice=NOT_IN_THE_BUILD.format(name=override.solution.id),
                )
        fallback = None if second is None else self._tuned_to(second, known)
        made = replace(self._tuned_to(override, known), fallback=fallback)
        untimed = override.solution.id.startswith("GemmWrw") and finding.evidence.origin in _FIND
        message = f"{finding.message}; {UNTIMED_ZEROS}" if untimed else finding.message
        return replace(finding, remedy=UseRows(made), message=message)

    def _of_build(self, target: Facts) -> pd.DataFrame:
        place = tuple(sorted(target.items()))
        if place not in self._builds:
            self._builds[place] = of_build(self._measurements, self._facts, target)
        return self._builds[place]

    def _second(self, override: Override, evidence: Evidence) -> Override | None:
        """The next fastest solver of the record (source, origin, problem) that the override rests on."""
        rows = self._measurements
        same = (rows["problem"] == evidence.measured) & (rows["library"] == "miopen")
        same &= (rows["source_id"] == evidence.source_id) & (rows["origin"] == evidence.origin)
        return _fastest(override, rows[same])

    def _tuned_to(self, override: Override, known: pd.DataFrame) -> Override:
        """With its parameters, and the largest workspace that is known of it where it has none, as a confirmation."""
        rows = known[(known["problem"] == override.problem.text) & (known["solution"] == override.solution.text)]
        most = count_of(rows["workspace_bytes"].max())
        space = most if override.workspace_bytes is None else override.workspace_bytes
        return replace(override, parameters=self._parameters(override), workspace_bytes=space)

    def _parameters(self, override: Override) -> str | None:
        """The solver's parameters for the override's problem on its target; None where no perf-db contains them."""
        from logparse.libraries.miopen import perf_db  # here, as most runs have no override of MIOpen
        from logparse.libraries.miopen.solvers import TUNABLE

        if not TUNABLE.match(override.solution.id):
            return None
        found = self._tuned.get((perf_db.own_key(override, override.target) or "", override.solution.text), [])
        fitting = [(source, text) for source, text in found if self._fits(source, override.target)]
        return min(fitting, key=lambda entry: self._order(entry[0], override.target))[1] if fitting else None

    def _fits(self, source: str, target: Facts) -> bool:
        mine = self._facts.get(source, {})
        return same_device(mine, target) is True and same_build(mine, target, "miopen") is not False

    def _order(self, source: str, target: Facts) -> tuple[bool, bool, str]:
        mine = self._facts.get(source, {})
        return mine.get("miopen_tweak") != target.get("miopen_tweak"), mine.get("perf_db") != "user", source


def _fastest(override: Override, measurements: pd.DataFrame) -> Override | None:
    """The override with the fastest other solver of these rows."""
    rows = timed(measurements).sort_values(["time_us", "solution"])
    rows = rows[rows["solution"] != override.solution.text]
    if not len(rows):
        return None
    row = rows.iloc[0]
    raw, algorithm = str(row["raw"] or ""), text_of(row["algorithm"])
    return replace(
        override,
        solution=replace(solution_from_text(str(row["solution"])), raw=raw, algorithm=algorithm),
        time_us=float(row["time_us"]),
        workspace_bytes=count_of(row["workspace_bytes"]),
    )
