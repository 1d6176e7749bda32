"""Replays the measurements of a store: no GPU.  For tests, demonstrations and the simulation of strategies.

Samples are drawn, with a fixed seed, from those that were stored (a stored median stands for itself).  A solution that
failed then fails now, in the same way.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzers.measure.backend import (
    Backend,
    BackendType,
    Conditions,
    OutOfMemoryError,
    Place,
    UnsupportedError,
)
from logparse.errors import InputError
from logparse.model import Measurement, Problem, Solution

if TYPE_CHECKING:
    import pandas as pd

NAME = "recorded"


class Recording:
    """A backend over measurements in memory, in the order of their recording (the pick first)."""

    cache_bytes = 0

    def __init__(self, measurements: Sequence[Measurement], facts: Mapping[str, str] | None = None) -> None:
        self._facts = dict(facts or {}) | {"replayed": "1"}
        self._by_problem: dict[str, dict[str, Measurement]] = {}
        for row in measurements:
            self._by_problem.setdefault(row.problem.text, {}).setdefault(row.solution.text, row)

    def environment(self) -> Mapping[str, str]:
        """The facts of the recorded environment, marked as replayed."""
        return self._facts

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """The recorded solutions; the library's default first where it was measured, else the first recorded."""
        rows = list(self._by_problem.get(problem.text, {}).values())
        if not rows:
            raise UnsupportedError("not recorded")
        rows.sort(key=lambda row: row.solution.id != "Default")
        return [row.solution for row in rows[:limit]]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> _Replayed:
        """Ready, or the recorded failure again."""
        row = self._by_problem.get(problem.text, {}).get(solution.text)
        if row is None:
            raise UnsupportedError("not recorded")
        if row.status == "unsupported":
            raise UnsupportedError(row.error or "recorded as unsupported")
        if row.status == "out_of_memory":
            raise OutOfMemoryError(row.error or "recorded as out of memory")
        if row.status not in ("ok", "wrong") or (row.status == "ok" and row.time_us is None):
            raise RuntimeError(row.error or f"recorded as {row.status}")
        return _Replayed(row, conditions.seed)

    def refresh(self, seed: int) -> None:
        """Nothing: the draws go on."""

    def release(self) -> None:
        """Nothing is held."""

    def healthy(self) -> bool:
        """Always."""
        return True


class _Replayed:
    def __init__(self, row: Measurement, seed: int) -> None:
        self._row = row
        self._draws = random.Random(f"{seed} {row.problem.text} {row.solution.text}")

    @property
    def workspace_bytes(self) -> int | None:
        return self._row.workspace_bytes

    def error(self) -> float:
        return math.inf if self._row.status == "wrong" else 0.0

    def fault(self) -> str:
        """Faults are part of the recorded status."""
        return ""

    def sample_us(self, count: int) -> float:
        return self._draws.choice(self._row.samples_us or (self._row.time_us or math.nan,))


def _open(place: Place) -> Backend:
    from logparse.store import open_store

    if place.store is None:
        raise InputError("the recorded backend needs a store to replay")
    store = open_store(place.store)
    rows = store.query("select * from measurements where status <> 'no_time' order by source_id, kind")
    # Only what every source agrees on, and what a replay of this replay would not change.
    facts = store.query(
        "select name, any_value(value) as value from facts where name in ('arch', 'cu_count', 'device') "
        "group by name having count(distinct value) = 1"
    )
    return Recording(measurements_of(rows), dict(zip(facts["name"], facts["value"], strict=True)))


def measurements_of(rows: pd.DataFrame) -> list[Measurement]:
    """Measurements from rows of the store's view."""
    from logparse.model import problem_from_text, solution_from_text

    def known(value: Any) -> Any:
        missing = value is None or value is pd_missing or (isinstance(value, float) and math.isnan(value))
        return None if missing else value

    from pandas import NA as pd_missing  # noqa: N811

    # A text comes once per solution, or per problem: reading it each time was nearly all of the time.
    problems = {text: problem_from_text(text) for text in rows["problem"].unique()}
    solutions = {text: solution_from_text(text) for text in rows["solution"].unique()}
    return [
        Measurement(
            problem=problems[row["problem"]],
            solution=solutions[row["solution"]],
            origin=row["origin"],
            status=row["status"],
            time_us=known(row["time_us"]),
            samples_us=() if known(row["samples_us"]) is None else tuple(row["samples_us"]),
            workspace_bytes=known(row["workspace_bytes"]),
            error=known(row["error"]),
        )
        for row in rows.to_dict("records")
    ]


BACKEND = BackendType(NAME, "measurements in a store, replayed without a GPU", _open)
