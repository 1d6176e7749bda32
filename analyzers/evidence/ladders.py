"""Fill the gaps between measured sizes in hipBLASLt's tuning file, so that calls of other sizes profit as well.

hipBLASLt looks a row up by exact sizes, so a job whose token counts vary needs a row for each size. For example, n =
1,024 and n = 2,048 are measured. Then rows for n = 1,040, 1,056 … (every 16th) are added, all with one kernel. The two
measured products with the sizes between them are called a *rung*, and all rungs together a ladder.

For most sizes there is a faster kernel. The time that is lost is the *regret*: (time of the chosen kernel) / (the best
time) − 1. It is known at both ends and in the middle of the rung if a replay timed the kernels there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from analyzers.evidence.action_times import of_one_environment
from analyzers.evidence.joins import calls_by_problem, facts_of, is_default, keep_timed, not_elsewhere
from analyzers.evidence.origins import ACTION, CONFIRM, RACE
from analyzers.evidence.tables import Settings, Tables, cached_per_run
from logparse.libraries.builds import can_decide_for
from logparse.model import GemmProblem, Override, Problem, problem_from_text, solution_from_text
from logparse.roofline import resized
from logparse.target import Facts
from logparse.text import pluralize

LIBRARY = "hipblaslt"
MOST = 0.03
"""Largest loss of time (0.03 = 3 %, compared with the best kernel) for which rows for unmeasured sizes are written."""


@dataclass(frozen=True)
class Rung:
    """All sizes n between two measured matrix products that are otherwise equal. One kernel is used for all of them.

    * ``low``, ``high``: the two products.
    * ``sizes``: the values of n between them.
    * ``override``: the override of ``low`` or ``high``, whose kernel is used for the sizes.
    * ``regrets``: (time of this kernel) / (best time) − 1 at the low end, in the middle and at the high end. None if
      unknown.
    * ``why``: why the sizes get no row in the tuning file. It is empty if they get rows.
    """

    low: GemmProblem
    high: GemmProblem
    sizes: range
    override: Override | None = None
    regrets: tuple[float | None, ...] = ()
    why: str = ""

    @property
    def middle(self) -> GemmProblem:
        return resized(self.low, "n", self.sizes[len(self.sizes) // 2])

    @property
    def timed(self) -> tuple[GemmProblem, GemmProblem, GemmProblem]:
        """The matrix products at the beginning, in the middle and at the end of the range of sizes.

        They are timed to decide whether one kernel is fast enough for all sizes in the range.
        """
        return self.low, self.middle, self.high

    @property
    def untimed(self) -> bool:
        """True if the kernel for this range of sizes has no time yet at the beginning, in the middle or at the end."""
        return None in self.regrets

    @property
    def line(self) -> str:
        """A line for the user about a range of sizes for which one kernel was checked.

        It states the time lost, and how many rows hipBLASLt's tuning file (a list of kernels) gets, or why none.
        """
        sizes = zip(self.timed, self.regrets, strict=True)
        costs = ", ".join(f"{x:.1%} at {problem.n:,}" for problem, x in sizes if x is not None)
        regret = f"regret (time lost against the best solution) {costs}" if costs else "regret unknown"
        solution = self.override.solution.text if self.override else ""
        end = f"not written: {self.why}" if self.why else pluralize(len(self.sizes), "row")
        return f"ladder {self.low.label} to n = {self.high.n:,}: {solution} {regret}; {end}"

    @property
    def rows(self) -> list[Override]:
        """The rows that are added to hipBLASLt's tuning file (a list of kernels), one for each size in the range."""
        if self.override is None or self.why:
            return []
        # The rows have no time, because the kernel was timed only at the ends and in the middle of the range.
        row = replace(self.override, time_us=None, default_us=None, key_text=None, fallback=None)
        return [replace(row, problem=resized(self.low, "n", n)) for n in self.sizes]


def called(tables: Tables) -> list[Problem]:
    """Return the GEMMs and convolutions that the job calls. If no log has its calls, return those with measured times.

    Only measurements from the job's own files are used, and none from a replay (which times the calls alone).
    """
    texts: Sequence[str] = list(calls_by_problem(tables.workload).index)
    if not texts:
        own = keep_timed(tables.measurements[tables.measurements["run"] == tables.run])
        texts = sorted(own.loc[~own["origin"].isin({RACE, CONFIRM, ACTION}), "problem"].unique())
    return [problem_from_text(x) for x in texts]


def rungs(problems: Iterable[Problem], step: int) -> list[Rung]:
    """Find ranges of the size n between two matrix products of the job that are otherwise alike.

    One kernel may serve all sizes in such a range. A range must contain a multiple of ``step``.
    """
    families: dict[GemmProblem, dict[int, GemmProblem]] = {}
    for problem in problems:
        if isinstance(problem, GemmProblem) and not problem.members and problem.n is not None:
            families.setdefault(resized(problem, "n", None), {})[problem.n] = problem
    out = []
    for family in families.values():
        ends = [family[n] for n in sorted(family)]
        # The job calls no product with an n inside the range.
        for low, high in pairwise(ends):
            sizes = range(step * ((low.n or 0) // step + 1), high.n or 0, step)
            out += [Rung(low, high, sizes)] if sizes else []
    return out


@dataclass(frozen=True)
class Race:
    """The times of several kernels for one GEMM or convolution, measured against each other.

    * ``times``: the time of each kernel, µs.
    * ``pick``: the kernel that the library chooses by itself.
    * ``facts``: facts about the machine.
    """

    times: Mapping[str, float]
    pick: str = ""
    facts: Facts = field(default_factory=dict)


def choose_rungs(
    tables: Tables, settings: Settings, step: int, overrides: Sequence[Override] | None = None
) -> list[Rung]:
    """Choose a kernel for each range of sizes n between two products that the job calls.

    Each end of the range may have an override, which names a kernel. If both ends have one, the kernel that loses less
    time is chosen, judged by its largest loss in the range. Without ``overrides``, the fastest kernels of the replays
    are used. A range without a kernel at either end is left out.
    """
    raced = races(tables, settings)
    if overrides is None:
        best = {text: min(race.times, key=race.times.__getitem__) for text, race in raced.items()}
        overrides = [
            Override(problem=problem_from_text(text), solution=solution_from_text(solution), target={})
            for text, solution in best.items()
        ]
    proposed = {override.problem.text: override for override in overrides if override.solution.library == LIBRARY}
    out = []
    for rung in rungs(called(tables), step):
        found = [raced.get(problem.text, Race({})) for problem in rung.timed]
        ends = [proposed[problem.text] for problem in (rung.low, rung.high) if problem.text in proposed]
        facts = found[1].facts
        tried = [_served(rung, end, found) for end in ends if can_decide_for(facts, end.target, LIBRARY) is not False]
        if tried:
            out.append(min(tried, key=lambda x: (x.untimed, max(y or 0.0 for y in x.regrets))))
    return out


def _served(rung: Rung, override: Override, races: Sequence[Race]) -> Rung:
    """Check whether one kernel (``override.solution``) is fast enough for a whole range of sizes.

    The result states the time lost against the fastest kernel at three sizes, or why the kernel is not used.
    """
    solution, why = override.solution.text, ""
    taken = [race.times.get(solution) for race in races]
    regrets = tuple(us and us / min(race.times.values()) - 1 for us, race in zip(taken, races, strict=True))
    missing = [f"{problem.n:,}" for problem, us in zip(rung.timed, taken, strict=True) if us is None]
    if missing:
        why = f"no replay timed the kernel at N = {' and '.join(missing)}"
    elif max(regret or 0.0 for regret in regrets) > MOST:
        why = f"the kernel's regret is above {MOST:.0%}"
    elif (taken[1] or 0.0) > races[1].times.get(races[1].pick, math.inf):
        why = f"at N = {rung.middle.n:,}, halfway, the library's own choice is faster than this kernel"
    return replace(rung, override=override, regrets=regrets, why=why)


@cached_per_run
def races(tables: Tables, settings: Settings) -> dict[str, Race]:
    """Return for each GEMM or convolution the times of all its kernels that were measured against each other.

    All times are from one machine and one set of library versions.
    """
    rows = keep_timed(tables.measurements[(tables.measurements["origin"] == RACE).to_numpy(dtype=bool)])
    rows = of_one_environment(not_elsewhere(rows, tables, settings), tables).sort_values("time_us", ascending=False)
    times: dict[tuple[str, str], dict[str, float]] = {}
    for text, source, solution, us in rows[["problem", "source_id", "solution", "time_us"]].itertuples(index=False):
        times.setdefault((str(text), str(source)), {})[str(solution)] = float(us)
    own = rows[is_default(rows, tables.facts)]
    picks, facts = dict(zip(own["source_id"], own["solution"], strict=True)), facts_of(tables)
    # If it was measured several times, the measurement with the most kernels is used, because it comes last.
    fewest = sorted(times.items(), key=lambda x: len(x[1]))
    return {text: Race(of, str(picks.get(source, "")), facts.get(source, {})) for (text, source), of in fewest}
