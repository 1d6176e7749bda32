"""Compare the ranks of a job: how long each computes, how long communication takes, and which rank the others wait for.

A collective's kernel begins when its own rank is ready, and ends when the last rank is done. So the kernel's time is a
wait plus a transfer. The rank that comes last waits for nobody. So for each collective call, the shortest time over the
ranks is the transfer, and the rest of each rank's time is a wait. Clocks of ranks are not compared. Instead, calls are
matched by their group of ranks, and by their order in traces that began at the same step. A group whose ranks made
different numbers of calls is left out.

The computed waiting time may be too short in two cases:

* A call overlaps with computation. The time that is not hidden is then assigned to the transfer first.
* A rank left no trace (``missing``). That rank may have been the last to come.

The profiler makes ranks wait for each other, because each rank starts the profiler and writes its trace at another
moment. If the time of a step without the profiler is known, exposed communication is limited to that time minus the
computation (``correct_exposed_time``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from analyzers.evidence.tables import Tables, cached_per_run
from analyzers.evidence.units import units_by_source


@dataclass(frozen=True)
class Rank:
    """How one rank (process) of a job spends its time, in µs per step.

    * ``unit_us``: wall time of a step.
    * ``exposed_us``: communication while nothing computes.
    * ``waiting_us``: the part of ``exposed_us`` spent waiting for another rank.
    """

    rank: int
    # The wall time is the time without the profiler if that is known.
    unit_us: float
    compute_us: float
    exposed_us: float
    waiting_us: float

    @property
    def host_us(self) -> float:
        """Time per step in which the GPU runs nothing because it waits for its own host, µs."""
        return max(self.unit_us - self.compute_us - self.exposed_us, 0.0)


@dataclass(frozen=True)
class Ranks:
    """All ranks of a job, with their times.

    * ``matched``: fraction of the communication time (0 to 1) that could be compared between all traced ranks.
    * ``missing``: how many ranks have no trace, if known.
    """

    ranks: tuple[Rank, ...]
    matched: float
    missing: int = 0

    @property
    def slowest(self) -> Rank:
        """The rank for which the others wait. It is the rank that itself waits least."""
        return min(self.ranks, key=lambda x: (x.waiting_us, -x.compute_us))

    @property
    def waiting_us(self) -> float:
        """Time in which a rank waits for other ranks, µs per step, as the mean over the ranks."""
        return sum(x.waiting_us for x in self.ranks) / len(self.ranks)


def correct_exposed_time(alone_us: float, waiting_us: float, room_us: float) -> tuple[float, float]:
    """Correct the time in which a rank only communicates, because the profiler makes this time too long.

    Returns this time and its waits for other ranks, µs.

    * ``room_us``: the longest possible time, µs.
    """
    # The longest possible time is (time of the step without the profiler) − (time of computing). If it is exceeded,
    # waits are shortened first, then the rest.
    shown = min(alone_us, max(room_us, 0.0))
    return shown, shown - min(alone_us - min(waiting_us, alone_us), shown)


@cached_per_run
def ranks(tables: Tables) -> Ranks | None:
    """Return how each rank of the job spends its time. None if fewer than two ranks have comparable traces."""
    facts = tables.facts[tables.facts["run"] == tables.run]
    own = tables.collectives[tables.collectives["run"] == tables.run]
    of = facts[facts["name"] == "rank"].drop_duplicates("source_id").set_index("source_id")["value"]
    rows = own.assign(rank=own["source_id"].map(of))[own["source_id"].isin(of.index)]
    if rows["rank"].nunique() < 2:
        return None
    first = facts[facts["name"] == "first_unit"].drop_duplicates("source_id").set_index("source_id")["value"]
    window = rows["source_id"].map(first).astype(object).fillna("")
    rows = rows.assign(window=window).sort_values("start_us")
    order = rows.groupby(["source_id", "ranks"]).cumcount()
    matched = pd.concat(list(_match_collectives(rows.assign(order=order))) or [rows.iloc[:0].assign(wait=0.0)])
    total = float(rows["us"].sum())
    found = tuple(sorted(_ranks(facts, of, matched), key=lambda x: x.rank))
    if len(found) < 2:
        return None
    stated = pd.to_numeric(facts.loc[facts["name"] == "ranks", "value"], errors="coerce").max()
    listed = rows["ranks"].astype(str).str.fullmatch(r"\[[\d, ]+\]")
    members = {x for text in rows.loc[listed, "ranks"].unique() for x in re.findall(r"\d+", text)}
    missing = max(len(members), 0 if pd.isna(stated) else int(stated)) - len(found)
    return Ranks(found, float(matched["us"].sum()) / total if total else 0.0, max(missing, 0))


def _match_collectives(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the communication calls that all traced ranks of a group made. Other calls cannot be compared.

    The new column ``wait`` is the time that a call waited for other ranks while nothing computed, µs.
    """
    for _, each in rows.groupby(["window", "ranks"]):
        counts = each.groupby("source_id").size()
        if len(counts) < 2 or counts.nunique() > 1:
            continue
        transfer = each.groupby("order")["us"].transform("min")
        yield each.assign(wait=(each["alone_us"] - transfer).clip(lower=0.0))


def _ranks(facts: pd.DataFrame, of: pd.Series, matched: pd.DataFrame) -> Iterator[Rank]:
    def value(name: str) -> pd.Series:
        held = facts[facts["name"] == name].drop_duplicates("source_id").set_index("source_id")["value"]
        return pd.to_numeric(held, errors="coerce")

    steps, window, compute, alone = map(
        value, ("profiler_steps", "gpu_window_us", "gpu_compute_us", "gpu_communication_alone_us")
    )
    counted = sorted(units_by_source(facts).items(), key=lambda x: not x[1].alone)
    timed = {str(source): x.mean_us for source, x in counted if x.mean_us is not None}
    for rank in sorted(set(of), key=str):
        sources = [x for x in of.index[of == rank] if x in compute.index and x in steps.index]
        count = float(steps.reindex(sources).sum())
        if not count or not str(rank).isdigit():
            continue
        unprofiled = next((us for source, us in timed.items() if of.get(source) == rank), None)
        unit_us = unprofiled or float(window.reindex(sources).sum()) / count
        computes = float(compute.reindex(sources).sum()) / count
        talks = float(alone.reindex(sources).fillna(0.0).sum()) / count
        waits = float(matched.loc[matched["source_id"].isin(sources), "wait"].sum()) / count
        yield Rank(int(rank), unit_us, computes, *correct_exposed_time(talks, waits, unit_us - computes))
