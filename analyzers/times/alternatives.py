"""Alternative formulations that a replay measured, padded or in another layout, against the library's own choice.

A formulation is no override: no file can make a library take it, the program must be changed.  Its time is only ever
compared with the default's of the same source.  A race takes few samples of many solutions, so selection biases its
winner's time low; what was confirmed is a pair of solutions in a fresh process, and only that gives a saving with an
interval (``docs/measurement.md``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analyzers.analyzer import Settings, Tables
from analyzers.times.confirmations import Pairs, blocks_of, judge, samples_in
from analyzers.times.joins import closest, facts_of, is_default, not_elsewhere, timed
from analyzers.times.origins import CONFIRM, RACE
from logparse.model import Evidence

CLEAR = 1.25
"""Smallest ratio at which a formulation that was only raced is reported: noise and selection bias stay below."""


@dataclass(frozen=True)
class Alternative:
    """One formulation of one problem in one source, times in µs; ``pick`` is the default that it is compared with.

    ``low_us`` bounds what one call saves (95 %); it is missing where the pair was only raced.
    """

    problem: str
    solution: str
    pick: str
    source_id: str
    time_us: float
    default_us: float
    low_us: float | None = None

    @property
    def confirmed(self) -> bool:
        return self.low_us is not None

    @property
    def saving_us(self) -> float:
        return self.default_us - self.time_us

    def faster(self, floor: float) -> bool:
        """Whether it is surely faster by more than ``floor`` of the default, or (raced only) clearly so."""
        if self.low_us is None:
            return self.default_us > CLEAR * self.time_us
        return self.low_us > floor * self.default_us


def alternatives(tables: Tables, settings: Settings, pattern: str) -> dict[str, list[Alternative]]:
    """By problem: the formulations whose whole text matches ``pattern``, the confirmed first, then the fastest.

    Sources of another device than the target's, or else the run's, are left out.  Of several sources the slowest time
    counts.
    """
    rows = tables.measurements
    rows = not_elsewhere(timed(rows[rows["origin"].isin((RACE, CONFIRM)).to_numpy(dtype=bool)]), tables, settings)
    wanted = rows["solution"].str.fullmatch(pattern).to_numpy(dtype=bool)
    if not wanted.any():
        return {}
    facts = facts_of(tables)
    keys = ["source_id", "origin", "problem"]
    columns = [*keys, "solution", "time_us", "samples_us"]
    default = rows.loc[is_default(rows, tables.facts), columns].sort_values("time_us").drop_duplicates(keys)
    pairs = rows.loc[wanted, columns].merge(default, on=keys, suffixes=("", "_default"))
    made = [_alternative(row, facts.get(str(row["source_id"]), {})) for row in pairs.to_dict("records")]
    found: dict[tuple[str, str], Alternative] = {}
    for one in sorted(made, key=lambda x: (not x.confirmed, -x.time_us / x.default_us, x.source_id)):
        found.setdefault((one.problem, one.solution), one)
    out: dict[str, list[Alternative]] = {}
    for one in sorted(found.values(), key=lambda x: (x.problem, not x.confirmed, x.time_us, x.solution)):
        out.setdefault(one.problem, []).append(one)
    return out


def _alternative(row: Mapping[Any, Any], facts: Mapping[str, str]) -> Alternative:
    time, default, low = float(row["time_us"]), float(row["time_us_default"]), None
    mine, theirs = samples_in(row["samples_us"]), samples_in(row["samples_us_default"])
    if row["origin"] == CONFIRM and len(mine) == len(theirs) and mine:
        ratio = judge(Pairs(theirs, mine, blocks_of(json.loads(facts.get("confirmation", "{}"))))).speedup
        time, low = default / ratio.value, default * (1 - 1 / ratio.low)
    return Alternative(
        problem=str(row["problem"]),
        solution=str(row["solution"]),
        pick=str(row["solution_default"]),
        source_id=str(row["source_id"]),
        time_us=time,
        default_us=default,
        low_us=low,
    )


def meant(
    tables: Tables, problems: pd.Series, measured: Mapping[str, list[Alternative]]
) -> dict[str, list[Alternative]]:
    """What was measured of each of ``problems``: of itself, or of the one measured problem that it can only mean."""
    links = closest(tables, problems, pd.Series(list(measured), dtype="object"))
    links = links[links["choices"] == 1]
    return {str(x): measured[str(y)] for x, y in zip(links["problem"], links["other"], strict=True)}


def evidence(one: Alternative, facts: Mapping[str, Mapping[str, str]]) -> Evidence:
    """The evidence of a finding that proposes this formulation, as ``suboptimal-pick`` gives it for a pick."""
    known = facts.get(one.source_id, {})
    return Evidence(
        certainty="measured",
        now_us=one.default_us,
        pick=one.pick,
        best=one.solution,
        best_us=one.time_us,
        source_id=one.source_id,
        origin=CONFIRM if one.confirmed else RACE,
        measured=one.problem,
        arch=known.get("arch"),
        cu_count=known.get("cu_count"),
        details={"basis": "default", "pick_us": one.default_us, "confidence": 0.9 if one.confirmed else 0.4},
    )
