"""Complete proposed overrides for MIOpen, so that MIOpen really uses them. A solver is MIOpen's name for a kernel.

* Tuning parameters are added. Without its row in the perf-db, a tunable solver runs with default parameters, and is
  then often several times slower than measured.
* A second solver is added. A solver may not be applicable in the job, for example because the workspace is smaller or
  because the job is deterministic. If it is the only solver of its find-db record, MIOpen treats the record as empty,
  searches, and overwrites it.

The user's build of MIOpen may lack a solver. So if there is a find-db, log or replay of that build, it must name at
least one of the two solvers.

Source: ROCm/MIOpen ``src/find_db.cpp``, ``src/include/miopen/generic_search.hpp``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analyzers.evidence.cells import count_of, text_of
from analyzers.evidence.joins import keep_timed
from analyzers.evidence.tables import Tables
from logparse.lazy import pd
from logparse.libraries.builds import same_build
from logparse.model import Advise, ConvProblem, Evidence, Finding, Override, UseRows, solution_from_text
from logparse.target import Facts, same_device


def complete_overrides(findings: Sequence[Finding], tables: Tables, facts: Mapping[str, Facts]) -> list[Finding]:
    """Complete the proposals that MIOpen should use other kernels, so that MIOpen really uses these kernels.

    * A second kernel is added. It is the next fastest in the measurement of the first one.
    * Tuning parameters are added. They come from a perf-db (MIOpen's database of tuned parameters) of the same GPU. If
      the perf-db and the user's machine both state their MIOpen version, the versions must match.
    * If there are several perf-dbs, one of the user's own build is preferred, then the user's own files.
    """
    if not any(_of_miopen(x) for x in findings):
        return list(findings)
    known = _Known(tables.measurements, facts)
    return [known.completed(x, x.override) if x.override and _of_miopen(x) else x for x in findings]


def of_build(measurements: pd.DataFrame, facts: Mapping[str, Facts], target: Facts) -> pd.DataFrame:
    """Keep only measurements that were made with the same build of MIOpen as on the user's machine.

    The user's build certainly has the kernels in these measurements. It may lack kernels of other builds.
    """
    sources = [source for source, mine in facts.items() if _is_build(mine, target)]
    return measurements[(measurements["library"] == "miopen") & measurements["source_id"].isin(sources)]


def _is_build(mine: Facts, target: Facts) -> bool:
    tweaks = {x["miopen_tweak"] for x in (mine, target) if x.get("miopen_tweak")}
    return same_build(mine, target, "miopen") is True and len(tweaks) < 2


NOT_IN_THE_BUILD = (
    "MIOpen on the target machine may not have the solver {name}. No find-db, log or replay of that MIOpen build "
    "names {name} or another solver of this convolution. Without {name}, MIOpen would search for another solver and "
    "overwrite this override. Run `logparse replay` on the target machine to try {name}"
)
"""Advice to the user if an override may not work, because the MIOpen build seems to lack the solver (kernel).

It replaces the override. The build seems to lack the solver if no file of that build names it.
"""


UNTIMED_ZEROS = (
    "MIOpen's Find does not time the kernel that sets dW (the gradient of the weights) to zero before a GEMM solver "
    "runs, so a call takes longer than Find's time"
)
"""Warning that MIOpen measured too short a time for a weight gradient (W) that a GEMM solver computes.

Seen with MIOpen 3.5.1: the times of GemmWrwUniversal and GemmWrw1x1_stride1 lack the kernel that sets dW to zero.
"""
_FIND = frozenset({"find-db", "miopen-log"})
"""Kinds of files with times that MIOpen measured itself when it searched for the fastest kernel ("Find")."""


def _of_miopen(finding: Finding) -> bool:
    override = finding.override
    return override is not None and isinstance(override.problem, ConvProblem) and override.solution.library == "miopen"


class _Known:
    """Facts about MIOpen's kernels and their tuning parameters, by which proposed overrides are completed.

    An override is an entry in a file that makes MIOpen use another kernel.
    """

    def __init__(self, measurements: pd.DataFrame, facts: Mapping[str, Facts]) -> None:
        self._measurements, self._facts = measurements, facts
        self._builds: dict[tuple[tuple[str, str], ...], pd.DataFrame] = {}
        # It maps (key in MIOpen's perf-db, solver) to pairs of a file and the parameters as text. A perf-db is a
        # database of tuned parameters.
        self._tuned: dict[tuple[str, str], list[tuple[str, str]]] = {}
        rows = measurements[(measurements["origin"] == "perf-db") & (measurements["status"] != "skipped")]
        columns = (rows[name].astype(str) for name in ("key_text", "solution", "source_id", "raw"))
        for key, name, source, text in zip(*columns, strict=True):
            self._tuned.setdefault((key, name), []).append((source, text))

    def completed(self, finding: Finding, override: Override) -> Finding:
        """Complete a proposal that MIOpen should use another kernel: tuning parameters, workspace and a second kernel.

        The second kernel is for a MIOpen build that lacks the first. Without a usable kernel, the user only gets
        advice.
        """
        known = self._of_build(override.target)
        second = self._choose_second_solver(override, finding.evidence)
        names = set(known["solution"])
        # The build seems to lack both kernels: its own files name other kernels, but neither of the two. Then a kernel
        # that the build has for this convolution is proposed.
        if names and not names & {x.solution.text for x in (override, second) if x is not None}:
            same = known["problem"].isin((override.problem.text, finding.evidence.measured))
            second = _replace_by_fastest(override, known[same])
            if second is None:
                return replace(
                    finding,
                    remedy=Advise("use a MIOpen build that has this solver"),
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

    def _choose_second_solver(self, override: Override, evidence: Evidence) -> Override | None:
        """Return a second kernel to propose to MIOpen, in case its build lacks the first one (``override``).

        Returns None if MIOpen's search timed no other kernel.
        """
        rows = self._measurements
        same = (rows["problem"] == evidence.measured) & (rows["library"] == "miopen")
        same &= (rows["source_id"] == evidence.source_id) & (rows["origin"] == evidence.origin)
        # The second kernel is the next fastest of the search that timed the first one.
        return _replace_by_fastest(override, rows[same])

    def _tuned_to(self, override: Override, known: pd.DataFrame) -> Override:
        """Add tuning parameters and the size of the workspace to a kernel that is proposed to MIOpen (``override``).

        If the proposal states no workspace, the largest workspace that is known for the kernel is used.
        """
        rows = known[(known["problem"] == override.problem.text) & (known["solution"] == override.solution.text)]
        most = count_of(rows["workspace_bytes"].max())
        space = most if override.workspace_bytes is None else override.workspace_bytes
        return replace(override, parameters=self._parameters(override), workspace_bytes=space)

    def _parameters(self, override: Override) -> str | None:
        """Return the tuning parameters for a kernel that is proposed to MIOpen (``override``).

        They come from a perf-db (database of tuned parameters) of the same kind of GPU. None if no perf-db has them.
        """
        from logparse.libraries.miopen import perf_db  # Imported here because most runs have no override of MIOpen.
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


def _replace_by_fastest(override: Override, measurements: pd.DataFrame) -> Override | None:
    """Return a copy of the override with the fastest kernel among ``measurements`` that is not its own kernel.

    Returns None if no other kernel was timed. An override is a kernel that the library should use instead of its own
    choice.
    """
    rows = keep_timed(measurements).sort_values(["time_us", "solution"])
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
