"""Collect the best measured times of problems, and use them to estimate the times of other problems.

A problem is a GEMM or a convolution with all its sizes and types. A family is a set of problems that differ only in
their sizes (``families.py``). The best time of a problem is the time of a solution that won against other solutions:

| origin of the rows | the best time of a problem |
|---|---|
| files with the winners of a tuner's search, for example find-dbs (``kinds.format.Origin.winners``) | the fastest row |
| other files, for example replays and bench output | the fastest of two or more solutions |

Best times come from the user's store and from the shipped table (``expected_times``). If both have a time of a problem,
the store's time is used. Machines and library builds differ, so the shipped times of other problems are multiplied by a
factor: the median of (time in the store) / (time that the shipped times predict). There is one factor per device and
kind of problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from analyzers.evidence import expected_times
from analyzers.evidence.expected import NEIGHBOURS, Calibration, Comparable, Floats, Ints
from analyzers.evidence.families import sized
from analyzers.evidence.joins import facts_of, timed
from analyzers.evidence.origins import RACE, is_evidence, is_winner
from analyzers.evidence.tables import Tables, cached_per_run
from logparse.devices import device_of
from logparse.model import TRIED
from logparse.target import Facts, arch

COLUMNS = ("device", "problem", "time_us", "source")
"""Columns of a table of best times of GEMMs and convolutions.

``device`` is arch and number of CUs (``gfx942 304``). ``source`` is the file with the time, or the name of the shipped
table.
"""
MOST = 4000
"""Largest number of measured problems (GEMMs or convolutions) kept per family.

More problems would cost time, but would hardly bring a nearer neighbour to a new problem.
"""
ENOUGH_SHARED = 8
"""Smallest number of GEMMs and convolutions in the store from which a factor for the shipped times is estimated."""


def device_name(facts: Facts) -> str | None:
    """Return the arch and the number of CUs of a device as one text, for example ``gfx942 304``.

    Returns None if either is unknown.
    """
    known = device_of(facts)
    name, cus = arch(facts), facts.get("cu_count")
    if known is not None:
        name, cus = name or known.arch, cus or str(known.cu_count)
    return f"{name} {cus}" if name and cus else None


class Neighbour(NamedTuple):
    """A measured problem (GEMM or convolution) that was used to estimate the time of a similar problem.

    * ``time_us``: its own best time, µs.
    * ``scaled_us``: that time converted to the size of the estimated problem, µs.
    * ``source``: the file with the time.
    """

    problem: str
    time_us: float
    scaled_us: float
    source: str


@dataclass(frozen=True, eq=False)
class Family:
    """The measured problems (GEMMs or convolutions) of one device that differ only in their sizes.

    Entry i of ``problems`` and ``sources`` belongs to row i of ``measured``.
    """

    measured: Comparable
    problems: Sequence[str]
    sources: Sequence[str]

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {text: i for i, text in enumerate(self.problems)}

    def rows_of(self, problems: Sequence[str]) -> Ints:
        """Return the row number of each given GEMM or convolution in ``measured``, or −1 if it was not measured."""
        return np.array([self._row_of.get(x, -1) for x in problems], dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Expected:
    """The times (µs) that n GEMMs or convolutions should take if they run as fast as they can. NaN means unknown.

    ``expected.Estimates`` describes the columns.
    """

    expected_us: Floats
    high_us: Floats
    guess_us: Floats
    base_us: Floats
    rows: Ints
    """For each GEMM or convolution, the row numbers of the 8 most similar measured ones in its family."""
    family: Ints
    """For each GEMM or convolution, the index of its family in ``families``. −1 if nothing in its family was measured.
    """
    families: Sequence[Family]

    def neighbours(self, i: int) -> list[Neighbour]:
        """Return the measured GEMMs or convolutions from which the time of number ``i`` is estimated.

        The most similar is first.
        """
        if self.family[i] < 0:
            return []
        family, rows = self.families[self.family[i]], self.rows[i][self.rows[i] >= 0]
        scaled = family.measured.scaled_us(rows, float(self.base_us[i]))
        return [
            Neighbour(family.problems[j], float(family.measured.time_us[j]), float(us), family.sources[j])
            for j, us in zip(rows.tolist(), scaled, strict=True)
        ]

    def calibration(self, i: int) -> Calibration | None:
        """Return how large the errors of estimates are in the family of problem ``i``. Return None if that is unknown.

        A problem is a GEMM or a convolution. Its family are the problems that differ from it only in sizes.
        """
        return self.families[self.family[i]].measured.calibration if self.family[i] >= 0 else None


class BestTimes:
    """The best measured times of one device.

    * ``own``: best times from the user's store, with ``COLUMNS``. If a problem has several, the shortest is used.
    * ``shipped``: best times that are shipped with ``logparse``. They are used for problems that ``own`` lacks.

    The problems of a kind (``gemm``, ``conv``) are parsed only when they are needed. A shipped table has tens of
    thousands of them, and many jobs have problems of one kind only.
    """

    def __init__(self, device: str, own: pd.DataFrame, shipped: pd.DataFrame | None = None) -> None:
        self._device, self._own, self._shipped = device, own, own.iloc[:0] if shipped is None else shipped
        self._known: dict[str, Mapping[str, Family]] = {}

    def families(self, kind: str) -> Mapping[str, Family]:
        """Return the measured problems of a kind (``gemm`` or ``conv``), grouped into families by name.

        The problems of a family differ only in their sizes.
        """
        if kind not in self._known:
            rows = joined(self._device, _of_kind(self._own, kind), _of_kind(self._shipped, kind))
            rows = rows.sort_values(["problem", "time_us", "source"]).drop_duplicates("problem")
            self._known[kind] = dict(_families(self._device, rows))
        return self._known[kind]

    def expect(self, problems: Sequence[str] | pd.Series, *, others: bool = False) -> Expected:
        """Estimate the times of problems (GEMMs or convolutions) from the best times of similar problems.

        ``problems`` are texts such as ``gemm trans=N,N mnk=1024,1024,1024 …``. With ``others``, a problem's own
        measurement is not used for its estimate.
        """
        count, texts = len(problems), pa.array(problems, pa.large_string())
        expected, high, guess, base = (np.full(count, np.nan) for _ in range(4))
        rows, family = np.full((count, NEIGHBOURS), -1, dtype=np.intp), np.full(count, -1, dtype=np.intp)
        families: list[Family] = []
        for kind in sized(texts):
            known_families = self.families(texts[int(kind.rows[0])].as_py().split(" ", 1)[0])
            base_us = kind.base_us(self._device)
            for name, places in kind.by_family():
                known = known_families.get(name)
                if known is None:
                    continue
                here = kind.rows[places]
                own = known.rows_of(texts.take(pa.array(here)).to_pylist()) if others else None
                found = known.measured.estimates(kind.at[places], base_us[places], own)
                expected[here], high[here], guess[here] = found.expected_us, found.high_us, found.guess_us
                base[here], rows[here], family[here] = base_us[places], found.neighbours, len(families)
                families.append(known)
        return Expected(expected, high, guess, base, rows, family, families)


def _of_kind(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    return rows[rows["problem"].astype("str").str.startswith(f"{kind} ").to_numpy(dtype=bool)]


def _families(device: str, rows: pd.DataFrame) -> Iterator[tuple[str, Family]]:
    times = rows["time_us"].to_numpy(dtype="float64")
    for kind in sized(rows["problem"].tolist()):
        base_us = kind.base_us(device)
        for name, places in kind.by_family():
            chosen = places[np.unique(np.linspace(0, len(places) - 1, min(MOST, len(places))).astype(np.intp))]
            mine = rows.iloc[kind.rows[chosen]]
            measured = Comparable(kind.at[chosen], base_us[chosen], times[kind.rows[chosen]])
            yield name, Family(measured, mine["problem"].tolist(), mine["source"].tolist())


def best_rows(measurements: pd.DataFrame, facts: Mapping[str, Facts]) -> pd.DataFrame:
    """Return the best time of each problem (GEMM or convolution) in each file, as a table with ``COLUMNS``.

    ``measurements`` are rows of the SQL view with that name. A problem is left out if only one of its solutions was
    timed, unless that solution won a tuner's search. Files from an unknown device are left out.
    """
    rows = measurements[(is_evidence(measurements) | (measurements["origin"] == RACE)).to_numpy(dtype=bool)]
    rows = timed(rows)
    rows = rows[["source_id", "origin", "problem", "solution", "time_us"]].assign(winner=is_winner(rows))
    by_problem = rows.groupby(["source_id", "origin", "problem"], observed=True)
    out = by_problem.agg(time_us=("time_us", "min"), solutions=("solution", "nunique"), winner=("winner", "any"))
    out = out.reset_index()
    return placed(out[out["winner"] | (out["solutions"] > 1)], facts)


def placed(rows: pd.DataFrame, facts: Mapping[str, Facts]) -> pd.DataFrame:
    """Add the device of each file to best times (``source_id, problem, time_us``), and return a table with ``COLUMNS``.

    Rows of files from an unknown device are left out.
    """
    device = rows["source_id"].map({x: device_name(facts.get(str(x), {})) for x in rows["source_id"].unique()})
    rows = rows.assign(device=device, source=rows["source_id"])
    return rows.loc[device.notna(), list(COLUMNS)]


@cached_per_run
def best_times(tables: Tables, device: str) -> BestTimes:
    """Return the best times of a device (``gfx942 304``), from the store and from the shipped table."""
    rows = own_rows(tables)
    return BestTimes(device, rows[rows["device"] == device], expected_times.shipped(device))


@cached_per_run
def own_rows(tables: Tables) -> pd.DataFrame:
    """Return the best time of each GEMM and convolution on each device in the user's store.

    The result is a table with ``COLUMNS``.
    """
    own = [best_rows(tables.measurements, facts_of(tables))]
    if tables.find_dbs is not None:
        own.append(placed(tables.find_dbs().to_pandas(), facts_of(tables)))
    rows = pd.concat([x for x in own if len(x)] or own[:1], ignore_index=True)
    rows = rows.sort_values(["device", "problem", "time_us", "source"])  # Both tables may contain the same find-db.
    return rows.drop_duplicates(["device", "problem"]).reset_index(drop=True)


def joined(device: str, own: pd.DataFrame, shipped: pd.DataFrame) -> pd.DataFrame:
    """Combine best times from the user's store with times that are shipped for other GEMMs and convolutions.

    The shipped times are multiplied by their ``factor``, which adapts them to this machine. The column ``source`` of
    such a row states it, for example ``shipped MIOpen 3.5.1 × 1.07``. All rows are of one device and one kind of
    problem.
    """
    rest = shipped[~shipped["problem"].isin(own["problem"]).to_numpy(dtype=bool)]
    if not len(rest):
        return own
    known = factor(device, own, shipped)
    if known is not None:
        source = rest["source"].astype("str") + f" × {known:.3g}"
        rest = rest.assign(time_us=rest["time_us"].to_numpy(dtype="float64") * known, source=source)
    return pd.concat([own, rest], ignore_index=True) if len(own) else rest


def factor(device: str, own: pd.DataFrame, shipped: pd.DataFrame) -> float | None:
    """Return the factor that adapts the shipped best times to the user's machine and libraries.

    It is the median of (best time in the store) / (time that the shipped times predict). Returns None if the shipped
    times predict fewer than ``ENOUGH_SHARED`` of the GEMMs and convolutions in the store.
    """
    if len(own) < ENOUGH_SHARED:
        return None
    ratio = own["time_us"].to_numpy(dtype="float64")
    ratio = ratio / BestTimes(device, shipped).expect(own["problem"]).expected_us
    ratio = ratio[np.isfinite(ratio)]
    return float(np.median(ratio)) if len(ratio) >= ENOUGH_SHARED else None


def lone_times(tables: Tables) -> pd.DataFrame:
    """Return the times of GEMMs and convolutions for which a file tried only one solution.

    So nothing shows if this solution is the best. Columns ``source_id, origin, problem, time_us``. The rows of a
    tuner's file are left out, because their solutions won against other solutions.
    """
    rows = tables.measurements
    chosen = (is_evidence(rows) | (rows["origin"] == RACE)) & ~is_winner(rows)
    rows = rows[chosen.to_numpy(dtype=bool)]
    tried = rows[rows["status"].isin(TRIED)].groupby(["source_id", "origin", "problem"], observed=True)["solution"]
    alone = tried.transform("nunique") == 1
    rows = timed(rows.loc[alone.index[alone]])
    out: pd.DataFrame = rows.groupby(["source_id", "origin", "problem"], observed=True)["time_us"].min().reset_index()
    return out
