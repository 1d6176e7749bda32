"""What a replay measured of other formulations: padded, fused, another layout, against the library's own choice.

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
from analyzers.times.confirmations import Pairs, blocks_of, judge
from analyzers.times.joins import closest, facts_of, is_default, timed
from analyzers.times.origins import CONFIRM, RACE
from logparse.model import Evidence
from logparse.target import same_device

CLEAR = 1.25
"""Smallest ratio at which a formulation that was only raced is reported: noise and selection bias stay below."""


@dataclass(frozen=True)
class WhatIf:
    """One formulation of one problem in one source, times in µs; ``pick`` is the default that it is compared with.

    ``low_us`` and ``high_us`` bound what one call saves (95 %); they are missing where the pair was only raced.
    """

    problem: str
    solution: str
    pick: str
    source_id: str
    time_us: float
    default_us: float
    low_us: float | None = None
    high_us: float | None = None

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


def what_ifs(tables: Tables, settings: Settings, pattern: str) -> dict[str, list[WhatIf]]:
    """By problem: the formulations whose whole text matches ``pattern``, the confirmed first, then the fastest.

    Sources of another device than the target's are left out.  Of several sources the slowest time counts.
    """
    rows = tables.measurements
    rows = timed(rows[rows["origin"].isin((RACE, CONFIRM)).to_numpy(dtype=bool)])
    wanted = rows["solution"].str.fullmatch(pattern).to_numpy(dtype=bool)
    if not wanted.any():
        return {}
    facts = facts_of(tables)
    keys = ["source_id", "origin", "problem"]
    columns = [*keys, "solution", "time_us", "samples_us"]
    default = rows.loc[is_default(rows, tables.facts), columns].sort_values("time_us").drop_duplicates(keys)
    pairs = rows.loc[wanted, columns].merge(default, on=keys, suffixes=("", "_default"))
    found: dict[tuple[str, str], WhatIf] = {}
    for row in pairs.to_dict("records"):
        if same_device(facts.get(str(row["source_id"]), {}), settings.target) is False:
            continue
        confirmation = facts.get(str(row["source_id"]), {}).get("confirmation", "{}")
        what = _what_if({str(key): value for key, value in row.items()}, blocks_of(json.loads(confirmation)))
        old = found.get((what.problem, what.solution))
        if old is None or _rank(what) < _rank(old):
            found[what.problem, what.solution] = what
    out: dict[str, list[WhatIf]] = {}
    for what in sorted(found.values(), key=lambda x: (x.problem, not x.confirmed, x.time_us, x.solution)):
        out.setdefault(what.problem, []).append(what)
    return out


def _rank(what: WhatIf) -> tuple[bool, float, str]:
    return (not what.confirmed, -what.time_us / what.default_us, what.source_id)


def _what_if(row: Mapping[str, object], blocks: tuple[int, ...]) -> WhatIf:
    time, default = float(str(row["time_us"])), float(str(row["time_us_default"]))
    low = high = None
    mine, theirs = (() if _missing(x) else tuple(map(float, x)) for x in _samples(row))
    if row["origin"] == CONFIRM and len(mine) == len(theirs) and len(mine):
        ratio = judge(Pairs(theirs, mine, blocks)).speedup
        time, low, high = default / ratio.value, default * (1 - 1 / ratio.low), default * (1 - 1 / ratio.high)
    return WhatIf(
        problem=str(row["problem"]),
        solution=str(row["solution"]),
        pick=str(row["solution_default"]),
        source_id=str(row["source_id"]),
        time_us=time,
        default_us=default,
        low_us=low,
        high_us=high,
    )


def _samples(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row["samples_us"], row["samples_us_default"]


def _missing(value: object) -> bool:
    return value is None or isinstance(value, float) or value is pd.NA


def meant(tables: Tables, problems: pd.Series, measured: Mapping[str, list[WhatIf]]) -> dict[str, list[WhatIf]]:
    """What was measured of each of ``problems``: of itself, or of the one measured problem that it can only mean."""
    links = closest(tables, problems, pd.Series(list(measured), dtype="object"))
    links = links[links["choices"] == 1]
    return {str(x): measured[str(y)] for x, y in zip(links["problem"], links["other"], strict=True)}


def evidence(what: WhatIf, facts: Mapping[str, Mapping[str, str]]) -> Evidence:
    """The evidence of a finding that proposes this formulation, as ``suboptimal-pick`` gives it for a pick."""
    known = facts.get(what.source_id, {})
    return Evidence(
        certainty="measured",
        now_us=what.default_us,
        pick=what.pick,
        best=what.solution,
        best_us=what.time_us,
        source_id=what.source_id,
        origin=CONFIRM if what.confirmed else RACE,
        measured=what.problem,
        arch=known.get("arch"),
        cu_count=known.get("cu_count"),
        details={"basis": "default", "pick_us": what.default_us, "confidence": 0.9 if what.confirmed else 0.4},
    )
