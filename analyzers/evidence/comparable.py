"""Collect the best measured times of GEMMs and convolutions, and estimate from them the times of others.

"Problem" in this module means a GEMM or a convolution with all its sizes and types. A family is a set of problems that
differ only in their sizes (``families.py``). A time is used as the best time of a problem only if several solutions
(kernels) competed:

| origin of the rows | the best time of a problem |
|---|---|
| files with the winners of a tuner's search, for example find-dbs (``kinds.format.Origin.winners``) | the fastest row |
| other files, for example replays and bench output | the fastest of two or more solutions |

Best times come from the user's store and from the shipped table (``expected_times``). If both have a time of a problem,
the store's time is used. Machines, devices of one arch and CU count (MI350X, MI355X) and libraries differ. So the
shipped times of other problems are multiplied by a factor, the median of (time here) / (time that the shipped times
predict). The first of these rows that is known decides the factor:

| times here | of problems of |
|---|---|
| best times in the store | the same family |
| best times in the store | the same kind (products or convolutions) |
| times of the run's calls with only one timed solution | the same family |
| times of the run's calls with only one timed solution | the same kind |

Calls with only one timed solution need not run their best. So a factor from them is at least 1, and it can hide that
all calls of a job are slow. Without a factor, the bounds of estimates from shipped times are multiplied by
``ELSEWHERE``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from analyzers.evidence import expected_times
from analyzers.evidence.expected import NEIGHBOURS, Bools, Calibration, Comparable, Floats, Ints, Rows
from analyzers.evidence.families import parse_sizes
from analyzers.evidence.joins import facts_of, keep_timed
from analyzers.evidence.origins import RACE, is_evidence, is_winner
from analyzers.evidence.tables import Tables, cached_per_run
from logparse.devices import device_of
from logparse.model import TRIED
from logparse.target import Facts, arch

COLUMNS = ("device", "problem", "time_us", "source")
"""Columns of a table with the best time of each GEMM and convolution.

``device`` is the GPU's architecture and number of compute units, for example ``gfx942 304``. ``source`` is the file
with the time, or the name of the table that is shipped with logparse.
"""
MOST = 4000
"""Largest number of measured GEMMs or convolutions that are kept of one family (they differ only in their sizes).

With more of them an estimate would take longer, but would hardly become better.
"""
ENOUGH_SHARED = 8
"""How many times of this machine are needed to correct the times that are shipped with logparse.

The correction is one factor, the median of (time here) / (time that the shipped times predict). With fewer times the
median would not be reliable.
"""
ELSEWHERE = 1.25
"""Factor by which an upper bound from shipped times is multiplied if no time of this machine can correct it.

Shipped times were measured with other libraries. Two machines with the same kind of GPU differed by less than this
factor: hipBLASLt on an MI350X took 1.18 times as long (median of 66 products) as the best kernels of aiter.
"""


def device_name(facts: Facts) -> str | None:
    """Return a GPU's architecture and number of compute units as one text, for example ``gfx942 304``.

    Returns None if either is unknown.
    """
    known = device_of(facts)  # A ROCm trace and MIOpenDriver name their device, but neither its arch nor its CUs.
    name, cus = arch(facts), facts.get("cu_count")
    if known is not None:
        name, cus = name or known.arch, cus or str(known.cu_count)
    return f"{name} {cus}" if name and cus else None


class Neighbour(NamedTuple):
    """A measured GEMM or convolution from whose time the time of a similar one is estimated.

    * ``time_us``: its best measured time, µs.
    * ``scaled_us``: this time converted to the other's size, µs.
    * ``source``: the file.
    """

    problem: str
    time_us: float
    scaled_us: float
    source: str


@dataclass(frozen=True, eq=False)
class Family:
    """Measured GEMMs or convolutions of one GPU that differ only in their sizes.

    * ``measured``: sizes and times.
    * ``problems``, ``sources``: each one's text and file.
    * ``unscaled``: True for a time that is shipped with logparse and not corrected for this machine.
    """

    measured: Comparable
    problems: Sequence[str]
    sources: Sequence[str]
    unscaled: Bools

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {text: i for i, text in enumerate(self.problems)}

    def rows_of(self, problems: Sequence[str]) -> Ints:
        """Return the row number in ``measured`` of each GEMM or convolution. −1 means that it was not measured."""
        return np.array([self._row_of.get(x, -1) for x in problems], dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Expected:
    """Estimated times (µs) of n GEMMs or convolutions with the fastest kernel. NaN means unknown.

    The class ``expected.Estimates`` describes the columns.
    """

    expected_us: Floats
    high_us: Floats
    guess_us: Floats
    base_us: Floats
    rows: Rows
    """For each GEMM or convolution, the row numbers of the 8 measured ones that are most similar to it."""
    family: Ints
    """For each GEMM or convolution, the index of its family in ``families``.

    A family is a set of measured GEMMs or convolutions that differ only in their sizes. −1 means that nothing similar
    was measured.
    """
    families: Sequence[Family]

    def neighbours(self, i: int) -> list[Neighbour]:
        """Return the measured GEMMs or convolutions from which the time of number ``i`` was estimated.

        The most similar one is first.
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
        """Return how wrong an estimated time for GEMM or convolution number ``i`` usually is. None if unknown."""
        # The errors come from a test: known times of other sizes were estimated as if they were unknown.
        return self.families[self.family[i]].measured.calibration if self.family[i] >= 0 else None


class BestTimes:
    """The best measured times of GEMMs and convolutions on one kind of GPU.

    * ``own``: best times from the user's store, with ``COLUMNS``. If a problem has several, the shortest is used.
    * ``shipped``: best times that are shipped with ``logparse``. They are used for problems that ``own`` lacks.
    * ``alone``: times of calls with only one timed solution (``problem, time_us``). They only decide the factor of
      shipped times.

    GEMMs and convolutions are parsed separately, each when they are first needed. A shipped table has tens of thousands
    of them, and many jobs have only GEMMs or only convolutions.
    """

    def __init__(
        self,
        device: str,
        own: pd.DataFrame,
        shipped: pd.DataFrame | None = None,
        alone: pd.DataFrame | None = None,
    ) -> None:
        self._device, self._own, self._shipped = device, own, own.iloc[:0] if shipped is None else shipped
        self._alone = None if alone is None else alone.assign(source="")
        self._parsed: dict[str, tuple[_Parts, _Parts]] = {}
        self._known: dict[str, Mapping[str, Family]] = {}

    def beside(self, alone: pd.DataFrame) -> BestTimes:
        """Return a copy of this object that also corrects the times that come with logparse to fit the user's machine.

        ``alone``: times of calls for which the user measured only one kernel.
        """
        # The shipped times were measured on other machines, so they may be too long or too short for the user's
        # machine.
        out = BestTimes(self._device, self._own, self._shipped, alone)
        out._parsed = self._parsed
        return out

    def families(self, kind: str) -> Mapping[str, Family]:
        """Return all measured GEMMs, or all measured convolutions, in groups that differ only in their sizes.

        ``kind`` is ``gemm`` or ``conv``. The keys are the names of the groups.
        """
        if kind not in self._known:
            if kind not in self._parsed:
                is_shipped = self._shipped is expected_times.shipped(self._device)
                shipped = (
                    _shipped_parts(self._device, kind) if is_shipped else _parts(self._device, self._shipped, kind)
                )
                self._parsed[kind] = _parts(self._device, self._own, kind), shipped
            own, shipped = self._parsed[kind]
            alone = {} if self._alone is None or not shipped else _parts(self._device, self._alone, kind)
            known = _factors(own, shipped), _factors(alone, shipped, 1.0, " (from the run's own times)")
            self._known[kind] = _Families(own, shipped, known)
        return self._known[kind]

    def expect(self, problems: Sequence[str] | pd.Series, *, others: bool = False) -> Expected:
        """Estimate how long GEMMs or convolutions should take, from the best times of similar ones.

        * ``problems``: texts such as ``gemm trans=N,N mnk=1024,1024,1024 …``.
        * ``others``: True to estimate only from others, even if the same GEMM or convolution was measured.
        """
        count, texts = len(problems), pa.array(problems, pa.large_string())
        expected, high, guess, base = (np.full(count, np.nan) for _ in range(4))
        rows, family = np.full((count, NEIGHBOURS), -1, dtype=np.int32), np.full(count, -1, dtype=np.intp)
        families: list[Family] = []
        for kind in parse_sizes(texts):
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
                if known.unscaled.any():
                    elsewhere = (known.unscaled[found.neighbours] & (found.neighbours >= 0)).any(axis=1)
                    high[here[elsewhere]] *= ELSEWHERE
                base[here], rows[here], family[here] = base_us[places], found.neighbours, len(families)
                families.append(known)
        return Expected(expected, high, guess, base, rows, family, families)


@dataclass(frozen=True, eq=False)
class _Part:
    """The columns of a table of measured GEMMs or convolutions that differ only in their sizes, sorted by text.

    ``calibration`` is shipped with the times. None means that it must be computed.
    """

    at: Floats
    base_us: Floats
    time_us: Floats
    problems: Sequence[str]
    sources: Sequence[str]
    calibration: Calibration | None = None

    @cached_property
    def measured(self) -> Comparable:
        rows = _pick_evenly(len(self.problems))
        out = Comparable(self.at[rows], self.base_us[rows], self.time_us[rows])
        return out if self.calibration is None else out.calibrated(self.calibration)


_Parts: TypeAlias = Mapping[str, _Part]


@cache
def _shipped_parts(device: str, kind: str) -> _Parts:
    """Return the times that are shipped with logparse for a device. They are parsed only once per process."""
    rows, known = expected_times.shipped(device), expected_times.calibrations(device)
    if rows is None:
        return {}
    # The shipped rows are sorted, and no problem occurs twice.
    parts = _parts_of(device, _of_kind(rows, kind))
    return {name: replace(part, calibration=known.get(name)) for name, part in parts}


def calibrations(device: str, rows: pd.DataFrame) -> dict[str, Calibration]:
    """Return how wrong estimates from a table of measured times are, for each family with enough times.

    ``rows`` has the columns ``problem, time_us, source``.
    """
    families = (_parts(device, rows, kind) for kind in ("gemm", "conv"))
    known = {name: part.measured.calibration for parts in families for name, part in parts.items()}
    return {name: calibration for name, calibration in known.items() if calibration is not None}


def _parts(device: str, rows: pd.DataFrame, kind: str) -> _Parts:
    rows = _of_kind(rows, kind).sort_values(["problem", "time_us", "source"]).drop_duplicates("problem")
    return dict(_parts_of(device, rows))


def _of_kind(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    return rows[rows["problem"].astype("str").str.startswith(f"{kind} ").to_numpy(dtype=bool)]


def _parts_of(device: str, rows: pd.DataFrame) -> Iterator[tuple[str, _Part]]:
    # Rows of a table of texts, taken for each family, would need as long as parsing the texts.
    times = rows["time_us"].to_numpy(dtype="float64")
    problems, sources = (rows[name].to_numpy(dtype=object) for name in ("problem", "source"))
    for kind in parse_sizes(pa.array(rows["problem"], pa.large_string())):
        base_us = kind.base_us(device)
        for name, places in kind.by_family():
            mine = kind.rows[places]
            words = problems[mine].tolist(), sources[mine].tolist()
            yield name, _Part(kind.at[places], base_us[places], times[mine], *words)


def _pick_evenly(count: int) -> Ints:
    """Return at most ``MOST`` of the numbers 0 to ``count`` − 1, at equal distances.

    They select the measurements that are kept if there are too many.
    """
    return np.unique(np.linspace(0, count - 1, min(MOST, count)).astype(np.intp))


def _factors(here: _Parts, shipped: _Parts, least: float = 0.0, words: str = "") -> dict[str, tuple[float, str]]:
    """Return the factors by which shipped times are multiplied to suit this machine, one for each family.

    A family is a set of GEMMs or convolutions that differ only in sizes. Its factor is the median of (time here) /
    (time that the shipped times predict), but at least ``least``. A family with fewer than ``ENOUGH_SHARED`` such
    ratios has none. The entry with an empty name is the factor of all families together. Each factor comes with
    ``words``, which explain it.
    """
    ratios = {}
    for name, part in here.items():
        if name in shipped:
            expected = shipped[name].measured.estimates(part.at, part.base_us).expected_us
            ratios[name] = (part.time_us / expected)[np.isfinite(expected)]
    ratios[""] = np.concatenate([*ratios.values(), np.empty(0)])
    enough = {name: x for name, x in ratios.items() if len(x) >= ENOUGH_SHARED}
    return {name: (max(least, float(np.median(x))), words) for name, x in enough.items()}


class _Families(Mapping[str, Family]):
    """All families of GEMMs, or all of convolutions. Each is made when it is first asked for, because few are needed.

    * ``own``: measured times.
    * ``shipped``: times that come with logparse.
    * ``factors``: factors of the shipped times, by the name of the family. The first table with a factor decides.
    """

    def __init__(self, own: _Parts, shipped: _Parts, factors: Sequence[Mapping[str, tuple[float, str]]]) -> None:
        self._own, self._shipped, self._factors = own, shipped, factors
        self._names = sorted(own.keys() | shipped.keys())
        self._made: dict[str, Family] = {}

    def __getitem__(self, name: str) -> Family:
        if name not in self._made:
            own, shipped = self._own.get(name), self._shipped.get(name)
            if own is None and shipped is None:
                raise KeyError(name)
            self._made[name] = _family(own, shipped, _factor_of(name, self._factors))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _factor_of(name: str, known: Sequence[Mapping[str, tuple[float, str]]]) -> tuple[float, str] | None:
    return next((x[key] for x in known for key in (name, "") if key in x), None)


def _family(own: _Part | None, shipped: _Part | None, factor: tuple[float, str] | None) -> Family:
    """Join the measured times and the shipped times of GEMMs or convolutions that differ only in their sizes.

    A shipped time comes with logparse. It is used only where no time was measured, and is multiplied by ``factor``.
    """
    parts = [(own, np.ones(len(own.problems), dtype=bool))] if own is not None else []
    if shipped is not None:
        mine = set() if own is None else set(own.problems)
        parts.append((shipped, np.array([x not in mine for x in shipped.problems], dtype=bool)))
    scale, words = factor or (1.0, "")
    # The source of a shipped time states the factor, for example ``shipped MIOpen 3.5.1 × 1.07``.
    stated = f" × {scale:.3g}{words}" if factor else ""
    problems, sources = [], []
    for part, kept in parts:
        problems += [x for x, good in zip(part.problems, kept, strict=True) if good]
        more = stated if part is shipped else ""
        sources += [f"{x}{more}" for x, good in zip(part.sources, kept, strict=True) if good]
    at, base_us = (np.concatenate([getattr(part, x)[kept] for part, kept in parts]) for x in ("at", "base_us"))
    time_us = np.concatenate([part.time_us[kept] * (scale if part is shipped else 1.0) for part, kept in parts])
    elsewhere = np.concatenate([np.full(kept.sum(), part is shipped and factor is None) for part, kept in parts])
    order = sorted(range(len(problems)), key=problems.__getitem__) if len(parts) > 1 else range(len(problems))
    rows = np.array(order, dtype=np.intp)[_pick_evenly(len(problems))]
    return Family(
        Comparable(at[rows], base_us[rows], time_us[rows])
        if own is not None or shipped is None
        else shipped.measured.scaled(scale),
        [problems[i] for i in rows.tolist()],
        [sources[i] for i in rows.tolist()],
        elsewhere[rows],
    )


def best_rows(measurements: pd.DataFrame, facts: Mapping[str, Facts]) -> pd.DataFrame:
    """Return the best time of each GEMM and convolution in each file, as a table with ``COLUMNS``.

    ``measurements``: rows of the SQL view of that name. Files from an unknown device are left out.
    """
    rows = measurements[(is_evidence(measurements) | (measurements["origin"] == RACE)).to_numpy(dtype=bool)]
    rows = keep_timed(rows)
    rows = rows[["source_id", "origin", "problem", "solution", "time_us"]].assign(winner=is_winner(rows))
    by_problem = rows.groupby(["source_id", "origin", "problem"], observed=True)
    out = by_problem.agg(time_us=("time_us", "min"), solutions=("solution", "nunique"), winner=("winner", "any"))
    out = out.reset_index()
    # If a file timed only one kernel, it is unknown whether that is the best. A winner of a tuner's search is kept.
    return placed(out[out["winner"] | (out["solutions"] > 1)], facts)


def placed(rows: pd.DataFrame, facts: Mapping[str, Facts]) -> pd.DataFrame:
    """Add to each time the GPU on which it was measured, and return a table with ``COLUMNS``.

    ``rows`` has the columns ``source_id, problem, time_us``. Rows of files whose GPU is unknown are left out.
    """
    device = rows["source_id"].map({x: device_name(facts.get(str(x), {})) for x in rows["source_id"].unique()})
    rows = rows.assign(device=device, source=rows["source_id"])
    return rows.loc[device.notna(), list(COLUMNS)]


@cached_per_run
def best_times(tables: Tables, device: str) -> BestTimes:
    """Return the best times that are known for a GPU (``gfx942 304``), from the user's files and the shipped table."""
    rows = own_rows(tables)
    return BestTimes(device, rows[rows["device"] == device], expected_times.shipped(device))


@cached_per_run
def own_rows(tables: Tables) -> pd.DataFrame:
    """Return the best time of each GEMM and convolution on each GPU, from the user's own files only.

    The result is a table with ``COLUMNS``.
    """
    own = [best_rows(tables.measurements, facts_of(tables))]
    if tables.find_dbs is not None:
        own.append(placed(tables.find_dbs().to_pandas(), facts_of(tables)))
    rows = pd.concat([x for x in own if len(x)] or own[:1], ignore_index=True)
    rows = rows.sort_values(["device", "problem", "time_us", "source"])  # Both tables may contain the same find-db.
    return rows.drop_duplicates(["device", "problem"]).reset_index(drop=True)


def lone_times(tables: Tables) -> pd.DataFrame:
    """Return the times of GEMMs and convolutions for which only one kernel was tried, so that it may not be the best.

    The columns are ``source_id, origin, problem, time_us``.
    """
    rows = tables.measurements
    # Rows of a tuner's file are left out, because their kernels already won against others.
    chosen = (is_evidence(rows) | (rows["origin"] == RACE)) & ~is_winner(rows)
    rows = rows[chosen.to_numpy(dtype=bool)]
    tried = rows[rows["status"].isin(TRIED)].groupby(["source_id", "origin", "problem"], observed=True)["solution"]
    alone = tried.transform("nunique") == 1
    rows = keep_timed(rows.loc[alone.index[alone]])
    out: pd.DataFrame = rows.groupby(["source_id", "origin", "problem"], observed=True)["time_us"].min().reset_index()
    return out
