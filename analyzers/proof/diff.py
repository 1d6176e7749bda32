"""Two runs against each other: what got slower or faster beyond noise, what is new or gone, which picks changed; and
what an upgrade means for the overrides that were written before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analyzers.analyzer import Tables
from analyzers.evidence.joins import against_default, calls_by_problem, timed
from analyzers.evidence.stats import TIE
from analyzers.evidence.target import BY_NAME, Facts, arch, same_build, same_device
from analyzers.overrides.lint import by_name, facts_of_run
from analyzers.overrides.override_format import OverrideFile
from analyzers.overrides.reading import Row
from analyzers.proof.timings import BASES, first_of, main_pick, timings
from logparse.links import linked, may_be
from logparse.model import Problem, problem_from_text

State = Literal["slower", "faster", "changed", "same", "new", "vanished", "unknown"]
STATES: tuple[State, ...] = ("slower", "faster", "changed", "new", "vanished", "unknown", "same")
Action = Literal["keep", "re-measure", "drop"]

FAIL_ON = 0.03
_SIGMAS = 3.0
_LINKED = 5000
COLUMNS = (
    *("problem", "state", "basis", "calls_a", "calls_b", "a_us", "b_us", "ratio", "noise", "pick_a", "pick_b"),
    "delta_us",
)


@dataclass(frozen=True)
class Diff:
    """``rows`` has ``COLUMNS``, one row per problem, what costs most first.

    ``ratio`` is B over A of one call, ``noise`` the relative standard error of it (missing: not known), ``delta_us``
    what the change costs per run of B (negative: saves; all of a new problem's time, and of a vanished one's), missing
    where no log counts the calls.
    """

    a: str
    b: str
    fail_on: float
    rows: pd.DataFrame
    devices: tuple[str, str] | None = None
    """The two devices, where the runs are known to be of different ones."""
    floor_us: float = 0.0
    """Changes of one call by at most this many µs count as the same."""

    @property
    def ok(self) -> bool:
        """Whether problems were compared and none got slower by more than ``fail_on``: no time proves nothing."""
        return self.compared > 0 and not (self.rows["state"] == "slower").any()

    @property
    def compared(self) -> int:
        """How many problems have a time in both runs."""
        return int(self.rows["ratio"].notna().sum())

    def count(self, state: State) -> int:
        return int((self.rows["state"] == state).sum())

    @property
    def changes(self) -> pd.DataFrame:
        """The rows of which something is known to have changed."""
        return self.rows[~self.rows["state"].isin(["same", "unknown"])]

    @property
    def delta_us(self) -> float:
        """What all changes beyond noise cost per run of B, as far as calls and times are known."""
        return float(self.costs("slower", "faster").sum())

    def costs(self, *states: State) -> pd.Series:
        """``delta_us`` of the problems in these states, where it is known."""
        return self.rows.loc[self.rows["state"].isin(states), "delta_us"].dropna()


def diff(a: Tables, b: Tables, fail_on: float = FAIL_ON, floor_us: float = 0.0) -> Diff:
    """Compare run ``a`` with run ``b``.

    A problem is slower (faster) when one call takes more than 1 + ``fail_on`` (less than its inverse) of what it took,
    three standard errors more where these are known, and by more than ``floor_us`` (µs).  Times are of one kind of
    evidence (``timings.BASES``), the nearest to the job that both runs have; of a problem of one run, that it has.
    """
    coded_a, coded_b, texts = _coded(a, b)
    left, right, before, after = _run(coded_a), _run(coded_b), timings(coded_a), timings(coded_b)
    names = _renamed(left["problem"].to_numpy(), right["problem"].to_numpy(), texts)
    right, after = (x.assign(problem=names[x["problem"].to_numpy(dtype="int64")]) for x in (right, after))
    rows = _side(left, "a").merge(_side(right, "b"), on="problem", how="outer")
    gone, new = (rows.loc[rows[f"in_{other}"].isna(), "problem"] for other in "ba")
    times = [_times(before, after), _times_alone(before, gone, "a"), _times_alone(after, new, "b")]
    rows = rows.merge(pd.concat([x for x in times if len(x)] or times), on="problem", how="left")
    rows["ratio"] = rows["b_us"] / rows["a_us"]
    rows["state"] = _states(rows, fail_on, floor_us)
    for side in "ab":  # where the logs name no pick, the evidence may
        rows[f"pick_{side}"] = rows[f"pick_{side}"].where(rows[f"pick_{side}"].notna(), rows[f"ran_{side}"])
    calls = rows["calls_b"].astype("Float64").fillna(rows["calls_a"].astype("Float64")).astype("float64")
    rows["delta_us"] = (rows["b_us"] - rows["a_us"]) * calls
    for state, cost in (("new", rows["b_us"]), ("vanished", -rows["a_us"])):
        rows["delta_us"] = rows["delta_us"].where(rows["state"] != state, cost * calls)
    order = rows["state"].map({state: i for i, state in enumerate(STATES)})
    weight = rows["delta_us"].abs().fillna(0.0)
    size = np.nan_to_num(np.abs(np.log(rows["ratio"].to_numpy("float64", na_value=math.nan))))
    rows = rows.assign(order=order, weight=-weight, size=-size).sort_values(["order", "weight", "size", "problem"])
    rows["problem"] = texts.take(rows["problem"].to_numpy())
    return Diff(a.run, b.run, fail_on, rows[list(COLUMNS)].reset_index(drop=True), _devices(a, b), floor_us)


def _devices(a: Tables, b: Tables) -> tuple[str, str] | None:
    left, right = facts_of_run(a), facts_of_run(b)
    if same_device(left, right) is not False:
        return None
    one, two = (f"{x.get('device') or arch(x) or '?'}, {x.get('cu_count', '?')} CUs" for x in (left, right))
    return one, two


def _run(tables: Tables) -> pd.DataFrame:
    """One row per problem that the run called or measured: calls, pick."""
    calls = calls_by_problem(tables.workload)
    own = tables.measurements[tables.measurements["run"] == tables.run]
    own = timed(own[own["kind"] != "family"])
    names = pd.Index(calls.index).union(pd.Index(own["problem"].unique()))
    picked = main_pick(tables).reindex(names)
    return pd.DataFrame(
        {"problem": names.to_numpy(), "calls": calls.reindex(names).to_numpy(), "pick": picked.to_numpy()}
    )


def _side(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    return rows.rename(columns={"calls": f"calls_{name}", "pick": f"pick_{name}"}).assign(**{f"in_{name}": True})


_CODED = ("calls", "workload", "measurements", "kernels")


def _coded(a: Tables, b: Tables) -> tuple[Tables, Tables, pd.Index]:
    """Both runs with a problem's place among all texts, in order, instead of its text of 150 characters, and the texts.

    Rows without a problem are left out.
    """
    frames = [(side, name, getattr(side, name)) for side in (a, b) for name in _CODED]
    held = [(side, name, frame.dropna(subset=["problem"])) for side, name, frame in frames if len(frame)]
    columns = [pa.array(frame["problem"], type=pa.large_string(), from_pandas=True) for _, _, frame in held]
    coded = pa.chunked_array(columns, type=pa.large_string()).dictionary_encode().combine_chunks()
    order = pc.sort_indices(coded.dictionary)
    place = np.empty(len(order), dtype="int64")
    place[order.to_numpy()] = np.arange(len(order))
    starts = np.cumsum([len(x) for x in columns])[:-1]
    places = np.split(place[coded.indices.to_numpy()], starts) if held else []
    made: dict[int, dict[str, Any]] = {id(a): {}, id(b): {}}
    for (side, name, frame), codes in zip(held, places, strict=True):
        made[id(side)][name] = frame.assign(problem=codes)
    texts = pd.Index(coded.dictionary.take(order).to_pandas(), dtype="str")
    return replace(a, **made[id(a)]), replace(b, **made[id(b)]), texts


def _renamed(left: np.ndarray, right: np.ndarray, texts: pd.Index) -> np.ndarray:
    """Text in B → text in A, both by their places: the same where A has it, else the only problem of A that may be
    meant.
    """
    out = np.arange(len(texts))
    in_a, in_b = (np.isin(out, x) for x in (left, right))
    mine, theirs = np.flatnonzero(in_a & ~in_b), np.flatnonzero(in_b & ~in_a)
    if not len(mine) or not len(theirs) or max(len(mine), len(theirs)) > _LINKED:
        return out
    by_shape: dict[str | None, list[tuple[int, Problem]]] = {}
    for place, problem in _problems(mine, texts):
        by_shape.setdefault(problem.shape, []).append((place, problem))
    pairs: list[tuple[int, int]] = []
    for place, problem in _problems(theirs, texts):
        near = by_shape.get(problem.shape, ()) if problem.shape else ()
        pairs += [(place, other) for other, known in near if linked(problem, known)]
    for place, other in pairs:
        if sum(x == place for x, _ in pairs) == 1 and sum(x == other for _, x in pairs) == 1:
            out[place] = other
    return out


def _problems(places: np.ndarray, texts: pd.Index) -> Iterator[tuple[int, Problem]]:
    return ((int(place), problem_from_text(texts[place])) for place in places)


_TIMES = ("problem", "basis", "a_us", "b_us", "noise", "ran_a", "ran_b")


def _times(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """``_TIMES`` of the nearest evidence that both have."""
    both = _nearest(a.merge(b, on=["problem", "basis"], suffixes=("_a", "_b")))
    noise = np.sqrt(both["noise_a"] ** 2 + both["noise_b"] ** 2)
    both = both.assign(noise=noise).rename(columns={"time_us_a": "a_us", "time_us_b": "b_us"})
    return both.rename(columns={"solution_a": "ran_a", "solution_b": "ran_b"})[list(_TIMES)]


def _times_alone(times: pd.DataFrame, problems: pd.Series, side: str) -> pd.DataFrame:
    """``_TIMES`` of problems that only the run ``side`` (``a``, ``b``) has, of its nearest evidence."""
    rows = _nearest(times[times["problem"].isin(problems)])
    return rows.rename(columns={"time_us": f"{side}_us", "solution": f"ran_{side}"}).reindex(columns=list(_TIMES))


def _nearest(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per problem: that of the evidence nearest to the job."""
    rank = rows["basis"].map({basis: i for i, basis in enumerate(BASES)}).fillna(len(BASES))
    return first_of(rows.assign(rank=rank), ["problem"], ["rank", "basis"])


def _states(rows: pd.DataFrame, fail_on: float, floor_us: float) -> pd.Series:
    ratio, noise = rows["ratio"].astype("float64"), rows["noise"].astype("float64").fillna(0.0)
    bound = np.maximum(math.log1p(fail_on), _SIGMAS * noise) + TIE
    large = (rows["b_us"] - rows["a_us"]).abs().astype("float64") > floor_us
    moved = np.log(ratio.where(large))
    changed = _differ(rows["pick_a"], rows["pick_b"]) | _differ(rows["ran_a"], rows["ran_b"])
    chosen = np.select(
        [rows["in_a"].isna(), rows["in_b"].isna(), moved > bound, moved < -bound, changed, ratio.isna()],
        ["new", "vanished", "slower", "faster", "changed", "unknown"],
        "same",
    )
    return pd.Series(chosen, index=rows.index)


def _differ(one: pd.Series, other: pd.Series) -> pd.Series:
    return one.notna() & other.notna() & (one != other)


# ------------------------------------------------------------------------------------------------------ upgrade plan


@dataclass(frozen=True)
class Step:
    """What to do with one row of an old override file, and why."""

    file: str
    line: int
    key: str
    solution: str
    action: Action
    reason: str


def upgrade_plan(files: Sequence[OverrideFile], b: Tables, floor: float = FAIL_ON) -> list[Step]:
    """Keep, measure again or drop each row of files (judged without a target) for the machine of run ``b``.

    A row whose gain was measured in ``b`` itself is decided by that: below ``floor`` it is dropped.  An index is worth
    nothing on another build; a name (MIOpen's solvers) is, its time is not.
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
            action, reason = _action(file, row, facts, served if len(work) else None, ratios, floor)
            reason += "; write it again, the new build ignores this file" if ignored and action == "keep" else ""
            solution = row.solution.text if row.solution else ""
            out.append(Step(file.name, row.line, row.key, solution, action, reason))
    return out


def _may_serve(row: Row, texts: Sequence[str]) -> bool:
    """Whether the row may serve one of these calls, whose logs leave part of the key open."""
    return any(may_be(row.problem, problem_from_text(text)) for text in texts)


def _action(
    file: OverrideFile,
    row: Row,
    facts: Facts,
    served: Mapping[str | None, Sequence[str]] | None,
    ratios: Mapping[tuple[str, str], float],
    floor: float,
) -> tuple[Action, str]:
    format = by_name(file.format)
    if not row.live:
        return "drop", row.verdicts.why
    foreign = format.foreign(row.key, facts)
    if foreign is not None:
        return "re-measure", foreign
    calls = (
        [] if served is None else [x for k, texts in served.items() if k and format.matches(row.key, k) for x in texts]
    )
    if served is not None and not calls and not _may_serve(row, served.get(None, ())):
        return "drop", "the new run does not call it"
    library = row.solution.library if row.solution else ""
    name = row.solution.text if row.solution else ""
    gains = [1 / ratios[x, name] - 1 for x in calls if (x, name) in ratios]
    device, build = same_device(file.facts, facts), same_build(file.facts, facts, library)
    stale = library not in BY_NAME and build is not True
    if gains and not stale:
        best = max(gains)
        gain = f"measured in the new run: {best:+.1%} against the default"
        return ("keep" if best >= floor - TIE else "drop"), gain
    if device is False:
        return "re-measure", "the new run is on another device"
    if stale:
        what = f"another build of {library}" if build is False else f"an unknown build of {library}"
        return "re-measure", f"the new run is of {what}, where the index may be another kernel"
    return "keep", "same build" if library not in BY_NAME else "a name, which means the same in every build"
