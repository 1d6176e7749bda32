"""Compare two runs of a job, operator by operator: which became slower or faster, are new or have vanished.

A "problem" in this module is an operator with its sizes, for example one GEMM.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import pyarrow as pa

from analyzers.compare.timings import RANK, RunTimes, times_of
from analyzers.evidence.origins import CONFIRM, TRACE
from analyzers.evidence.statistics.intervals import TIE
from analyzers.evidence.tables import Tables
from logparse.groups import in_groups
from logparse.lazy import duckdb, pd
from logparse.libraries import FORMATS
from logparse.libraries.builds import BUILDS, ids_are_names, same_build
from logparse.libraries.hipblaslt.tuning_rules import work_of
from logparse.libraries.override_formats import OVERRIDE_FORMATS
from logparse.links import find_link_level
from logparse.model import Problem, problem_from_text
from logparse.store.database import shared_database
from logparse.target import Facts, arch, same_device

State = Literal["slower", "faster", "changed", "same", "new", "vanished", "unknown"]
STATES: tuple[State, ...] = ("slower", "faster", "changed", "new", "vanished", "unknown", "same")

FAIL_ON = 0.03
_SIGMAS = 3.0
_LINKED, _PARSED = 10_000, 20_000
COLUMNS = (
    *("problem", "state", "basis", "calls_a", "calls_b", "a_us", "b_us", "ratio", "noise", "pick_a", "pick_b"),
    "delta_us",
)
CHANGED = f"state in {STATES[:5]}"
"""SQL condition for operators (with sizes) that differ between the two runs."""


class _Sum(NamedTuple):
    """Totals of all operators that changed in the same way, for example of all that became ``slower``.

    * ``problems``: number of operators.
    * ``compared``: number with times in both runs.
    * ``known``: number with a ``delta_us`` (additional time in the second run, µs).
    """

    problems: int
    compared: int
    known: int
    delta_us: float


@dataclass(frozen=True)
class Diff:
    """The comparison of runs A and B: one row per operator with its sizes, the most costly change first.

    The rows are in the table ``compared`` of the database ``con``. The method ``table`` returns them.

    * ``ratio``: (time of one call in B) / (time of one call in A).
    * ``noise``: relative standard error of the ratio, missing if unknown.
    * ``delta_us``: cost of the change per run of B, µs. Negative if the change saves time. Missing if no log counts the
      calls. Also missing for an operator of one run only, because an operator that vanished is no saving.
    """

    a: str
    b: str
    fail_on: float
    con: duckdb.DuckDBPyConnection
    devices: tuple[str, str] | None = None
    """The two devices, if it is known that the runs were made on different ones."""
    floor_us: float = 0.0
    """Changes up to this many µs per call are ignored: the operator is then reported as unchanged."""
    builds: tuple[str, ...] = ()
    """Libraries whose builds differ between the two runs, so that the same kernel number may mean another kernel."""
    formats: tuple[Mapping[str, tuple[int, int]], Mapping[str, tuple[int, int]]] = ({}, {})
    """The file formats of run A and of run B, each with how many lines are calls and how many are measurements."""
    processes: tuple[int, int] = (0, 0)
    """The number of processes in run A and in run B. 0 means that no log names its process."""
    processes_of: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})
    """The number of processes in run A and in run B whose logs have calls of a kind, such as ``gemm``."""
    steps: tuple[float, float] = (0.0, 0.0)
    """The numbers of steps to which the calls of run A and of run B belong. 0 for a run whose calls a log counts."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Texts of operators in run B that run A describes in another text, each with the text of run A."""
    damaged: tuple[str, str] = ("", "")
    """The number of damaged lines of each run, as text. Empty for a run without damaged lines."""

    @property
    def lacks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Two lists of file formats: formats that run A lacks (only B has them), and formats that run B lacks."""
        one, two = self.formats
        return tuple(x for x in two if x not in one), tuple(x for x in one if x not in two)

    @cached_property
    def calls(self) -> list[tuple[str, int | None, int | None]]:
        """For each kind of operator, how often each of the two runs calls it. None if no log counts the calls."""
        return self.con.execute(_CALLS).fetchall()

    def is_equal_per(self, kind: str, a: float, b: float) -> bool:
        """Tell whether a process (or a step) of B makes the same calls as a process (or a step) of A.

        ``kind`` is a kind of operator, such as ``gemm``. ``a`` and ``b`` are the numbers of processes (or of steps) in
        A and in B.
        """
        ((same,),) = self.con.execute(_PER_PROCESS, {"kind": kind, "a": a, "b": b}).fetchall()
        return bool(same)

    def alone(self, state: Literal["new", "vanished"]) -> tuple[int, float]:
        """Return how many operators occur in only one of the two runs, and their total time per run, µs.

        ``state`` selects the run: ``new`` for the second, ``vanished`` for the first. Operators without a known time
        are left out.
        """
        ((known, us),) = self.con.execute(_ALONE, [state]).fetchall()
        return int(known), float(us)

    @property
    def ok(self) -> bool:
        """True if no operator became slower by more than ``fail_on`` (a fraction).

        False if nothing could be compared.
        """
        return self.compared > 0 and not self.count("slower")

    @property
    def compared(self) -> int:
        """The number of operators (with sizes) that have a time in both runs."""
        return sum(x.compared for x in self._sums.values())

    def count(self, *states: State) -> int:
        return sum(self._sums[state].problems for state in states if state in self._sums)

    def cost(self, *states: State) -> tuple[int, float]:
        """Return how many operators are in the given states, and how much more time they take in the second run, µs.

        The states are, for example, ``slower`` and ``faster``. Only operators with a known difference (``delta_us``)
        are included.
        """
        sums = [self._sums[state] for state in states if state in self._sums]
        return sum(x.known for x in sums), math.fsum(x.delta_us for x in sums)

    @cached_property
    def flips(self) -> tuple[int, int, float | None]:
        """How often the library chose different kernels in the two runs, and how much that matters.

        Three values are returned:

        * The number of operators (with sizes) for which the two runs chose different kernels.
        * The number of operators for which both runs show the choice.
        * The median of |ratio − 1| over the operators with different choices, or None without times.

        The first two numbers show how well two tuning runs of the same job agree.
        """
        ((flipped, picked, apart),) = self.con.execute(_FLIPS).fetchall()
        return int(flipped), int(picked), apart

    @cached_property
    def same_numbers(self) -> int:
        """The number of operators (with sizes) with equal choices that may still be different kernels.

        A number of a kernel holds only for one build of its library and for one architecture. So if the runs differ in
        one of them, equal numbers do not show that the kernels are equal.
        """
        libraries = [x for x in BUILDS if not ids_are_names(x)] if self.devices else list(self.builds)
        ((count,),) = self.con.execute(_SAME_NUMBERS, [libraries]).fetchall()
        return int(count)

    @cached_property
    def several(self) -> int:
        """The number of operators (with sizes) for which a run used more than one kernel.

        The comparison names one kernel per run, so it is incomplete for these operators. Only operators with a known
        kernel in both runs are counted.
        """
        ((count,),) = self.con.execute(_SEVERAL).fetchall()
        return int(count)

    @cached_property
    def _sums(self) -> dict[str, _Sum]:
        return {state: _Sum(*sums) for state, *sums in self.con.execute(_SUMS).fetchall()}

    def table(self, where: str = "true", n: int | None = None) -> pa.Table:
        """Return rows of the comparison with the columns ``COLUMNS``.

        ``where`` is an SQL condition that selects rows. ``n`` is the largest number of rows, and None means all.
        """
        return self.con.sql(_ORDERED.format(where=where), params={"n": n}).to_arrow_table()

    @cached_property
    def rows(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.table().to_pandas()
        return frame


_BY_BASIS = """
    select problem, basis, a.named as in_a, b.named as in_b, a.calls as calls_a, b.calls as calls_b,
           max(a.pick) over of_problem as pick_a, max(b.pick) over of_problem as pick_b, a.time_us as a_us,
           b.time_us as b_us, a.solution as ran_a,
           b.solution as ran_b, a.solutions as solutions_a, b.solutions as solutions_b,
           sqrt(a.noise * a.noise + b.noise * b.noise) as noise
    from a full join b using (problem, basis) window of_problem as (partition by problem)"""
_OF_ANOTHER = f"""
    (b_us is null and ran_a <> pick_a or a_us is null and ran_b <> pick_b) and basis not in ('{TRACE}', '{CONFIRM}')"""
"""SQL that is true if only one run has a time, and the time is of another kernel than its logs name."""
_BY_PROBLEM = f"""
    select problem, coalesce(bool_or(in_a), false) as in_a, coalesce(bool_or(in_b), false) as in_b,
           any_value(calls_a) as calls_a, any_value(calls_b) as calls_b,
           any_value(pick_a) as pick_a, any_value(pick_b) as pick_b,
           coalesce(any_value(solutions_a), 1) as solutions_a, coalesce(any_value(solutions_b), 1) as solutions_b,
           min({{
               'alone': a_us is null or b_us is null, 'of_another': {_OF_ANOTHER}, 'rank': {RANK}, 'basis': basis,
               'a_us': a_us, 'b_us': b_us, 'ran_a': ran_a, 'ran_b': ran_b, 'noise': noise}}
           ) filter (basis is not null and (a_us is not null or b_us is not null)) as t
    from ({_BY_BASIS}) group by problem"""
"""SQL that chooses for each operator (with sizes) the two times that are compared, one from each run.

A run may have several times of an operator, for example one from a trace and one from a benchmark. A time from a trace
is compared only with a time from a trace. If several kinds of times exist in both runs, the kind that is nearest to the
real job is used. If only one run has the operator, the nearest kind of this run is used that times the kernel which the
logs name.
"""
_COMPARED = f"""
    with timed as (
        select * exclude (t), if(in_a and in_b and t.alone, null, t) as t from ({_BY_PROBLEM}) where in_a or in_b),
    rows as (
        select problem, in_a, in_b, calls_a, calls_b, greatest(solutions_a, solutions_b) as solutions,
               t.basis as basis, t.noise as noise,
               if(in_a, pick_a, null) as pick_a, if(in_a, t.a_us, null) as a_us, if(in_a, t.ran_a, null) as ran_a,
               if(in_b, pick_b, null) as pick_b, if(in_b, t.b_us, null) as b_us, if(in_b, t.ran_b, null) as ran_b,
               nullif(b_us / a_us, 'nan') as ratio, exp(greatest($gate, $sigmas * coalesce(noise, 0)) + $tie) as bound
        from timed)
    select problem, case when not in_a then 'new' when not in_b then 'vanished'
               when ratio > bound and abs(b_us - a_us) > $floor then 'slower'
               when ratio < 1 / bound and abs(b_us - a_us) > $floor then 'faster'
               when pick_a <> pick_b or ran_a <> ran_b then 'changed' when ratio is null then 'unknown'
               else 'same' end as state,
           basis, calls_a, calls_b, a_us, b_us, ratio, noise, coalesce(pick_a, ran_a) as pick_a,
           coalesce(pick_b, ran_b) as pick_b,
           if(in_a and in_b, coalesce(calls_b, calls_a) * (b_us - a_us), null) as delta_us,
           if(in_a and in_b, null, coalesce(calls_b, calls_a) * coalesce(b_us, a_us)) as alone_us, solutions
    from rows"""
"""SQL that compares the operators of the two runs.

If no log names the library's choice, the kernel that was timed is taken as the choice.
"""
_SUMS = "select state, count(*), count(ratio), count(delta_us), ifnull(fsum(delta_us), 0) from compared group by all"
_ALONE = "select count(alone_us), ifnull(fsum(alone_us), 0) from compared where state = $1"
_CALLS = """
    select split_part(problem, ' ', 1) as kind, cast(sum(calls_a) as bigint), cast(sum(calls_b) as bigint)
    from compared group by kind order by kind"""
_PER_PROCESS = """
    select bool_and(coalesce(calls_a, 0) * $b = coalesce(calls_b, 0) * $a)
    from compared where split_part(problem, ' ', 1) = $kind and (calls_a > 0 or calls_b > 0)"""
_FLIPS = """
    select count(*) filter (pick_a <> pick_b), count(*), median(abs(ratio - 1)) filter (pick_a <> pick_b)
    from compared where pick_a is not null and pick_b is not null"""
_SAME_NUMBERS = """
    select count(*) from compared
    where pick_a = pick_b and solutions <= 1 and list_contains($1::varchar[], split_part(pick_a, ':', 1))"""
_SEVERAL = "select count(*) from compared where solutions > 1 and pick_a is not null and pick_b is not null"
_ORDERED = f"""
    select {", ".join(COLUMNS)} from compared where {{where}}
    order by list_position({list(STATES)}, state), coalesce(abs(delta_us), alone_us, 0) desc,
             case when ratio > 0 then abs(ln(ratio)) when ratio = 0 then 'inf' else 0 end desc, problem limit $n"""


def diff(a: Tables | RunTimes, b: Tables | RunTimes, fail_on: float = FAIL_ON, floor_us: float = 0.0) -> Diff:
    """Compare run ``a`` with run ``b``, and return which operators became slower or faster.

    An operator is judged by the ratio (time of a call in B) / (time of a call in A):

    * It is slower if the ratio is above 1 + ``fail_on``, and faster if the ratio is below 1 / (1 + ``fail_on``).
    * The change must also exceed ``floor_us`` (µs), and three standard errors of the ratio if these are known.

    Both times are of the same kind, for example both from traces (``timings.RANK``). If both runs have several kinds,
    the kind that is nearest to the real job is used. If only one run has the operator, the nearest kind of this run is
    used.
    """
    one, two = (x if isinstance(x, RunTimes) else times_of(x) for x in (a, b))
    con = shared_database().cursor()
    con.register("a", one.rows)
    con.register("b", two.rows)
    given = {"gate": math.log1p(fail_on), "sigmas": _SIGMAS, "tie": TIE, "floor": floor_us}
    con.execute(f"create temp table compared as {_COMPARED}", given)
    renamed = _match_renamed_operators(con)
    if renamed:
        con.register("renamed", pa.table({"problem": [*renamed], "meant": [*renamed.values()]}))
        meant = (
            "coalesce(meant, problem) as problem, * exclude (problem, meant) from b left join renamed using (problem)"
        )
        con.register("b", con.sql(f"select {meant}").to_arrow_table())
        con.execute(f"create or replace temp table compared as {_COMPARED}", given)
    _leave_open(con)
    for name in "ab":  # The registered tables are as large as the result, so their memory is freed.
        con.unregister(name)
    builds = tuple(x for x in BUILDS if not ids_are_names(x) and same_build(one.machine, two.machine, x) is False)
    return Diff(
        *(one.run, two.run, fail_on, con, _devices(one.machine, two.machine), floor_us, builds),
        formats=(one.formats, two.formats),
        processes=(one.processes, two.processes),
        processes_of=(one.processes_of, two.processes_of),
        steps=(one.steps, two.steps),
        renamed=renamed,
    )


class _Single(NamedTuple):
    """An operator (with sizes) that only one of the two runs has.

    ``basis`` is the kind of file with the operator's time, for example a trace.
    """

    text: str
    problem: Problem
    basis: str | None


def _match_renamed_operators(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Find operators that have different texts in the two runs but are the same. Maps texts in B to texts in A.

    Two texts mean the same in two cases:

    * All values that both of them state are equal.
    * Files of one library list both under the same key. For example, the key of hipBLASLt does not contain the scale
      types.

    Only texts that one of the runs lacks are considered. A text of B is left out if several texts of A are possible.
    """
    of_one = "from compared where state in ('new', 'vanished')"
    rows = con.execute(f"select state, problem, basis {of_one} limit {_LINKED + 1}").fetchall()
    if len(rows) > _LINKED or len({state for state, *_ in rows}) < 2:
        return {}
    mine, theirs = (
        [_Single(text, problem_from_text(text), basis) for state, text, basis in rows if state == side]
        for side in ("vanished", "new")
    )
    out = _only_pairs(mine, theirs, lambda x: x.problem.shape, lambda a, b: find_link_level(a, b) is not None)
    mine, theirs = ([x for x in mine if x.text not in out.values()], [x for x in theirs if x.text not in out])
    for same in (lambda a, b: True, lambda a, b: work_of(a) == work_of(b)):
        out = _only_pairs(mine, theirs, _library_key, same) | out
    return out


def _leave_open(con: duckdb.DuckDBPyConnection) -> None:
    """Mark operators as ``unknown`` that seem to occur in only one run, but may have another name in the other run."""
    states = dict(con.execute("select problem, state from compared").fetchall())
    if len(states) > _PARSED or not {"new", "vanished"} & {*states.values()}:
        return
    held = [(text, state, problem_from_text(text)) for text, state in states.items()]
    near = in_groups(held, lambda x: x[2].shape)
    found = [
        text for text, state, one in held
        # For example, one log may leave out a size that the other log states.
        if state in ("new", "vanished") and any(y != state and find_link_level(one, two) for _, y,
        two in near[one.shape])
    ]  # fmt: skip
    con.execute("update compared set state = 'unknown', alone_us = null where problem in (select unnest(?))", [found])


def _library_key(single: _Single) -> tuple[str, str] | None:
    """Return the kind of an override file (list of kernels for a library) and the operator's name in it.

    Returns None if the operator's time is not from an override file, or if it has no name there.
    """
    key = _KEYS[single.basis](single.problem, {}) if single.basis in _KEYS else None
    return None if key is None or single.basis is None else (single.basis, key)


_KEYS = {
    origin.name: override.key
    for override in OVERRIDE_FORMATS
    for format in FORMATS
    if format.name == override.name
    for origin in format.origins
}
"""A function for each kind of override file: it makes the key by which the library finds a row of the file."""


def _only_pairs(
    mine: Iterable[_Single],
    theirs: Iterable[_Single],
    key: Callable[[_Single], Hashable],
    same: Callable[[Problem, Problem], bool],
) -> dict[str, str]:
    """Match the operators of two runs of a job whose logs write the same operator differently.

    Two operators match if they have the same ``key`` (not None) and ``same`` is True. Returns a mapping from the second
    run's texts to the first run's.
    """
    ours = in_groups(mine, key)
    ours.pop(None, None)
    pairs = [(two.text, one.text) for two in theirs for one in ours.get(key(two), ()) if same(two.problem, one.problem)]
    # An operator that matches more than one in the other run is left out.
    seconds, firsts = (Counter(side) for side in zip(*pairs, strict=True)) if pairs else ({}, {})
    return {text: other for text, other in pairs if seconds[text] == firsts[other] == 1}


def _devices(left: Facts, right: Facts) -> tuple[str, str] | None:
    if same_device(left, right) is not False:
        return None
    one, two = (f"{x.get('device') or arch(x) or '?'}, {x.get('cu_count', '?')} CUs" for x in (left, right))
    return one, two
