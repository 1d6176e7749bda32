"""Whose calls a time may stand for, where the files of one run are of several devices.

A log that states no device may be of any of them.  Its calls have no time that is known to be theirs: to weigh one
device's times with them would claim a saving that nothing measured.  In a run of one device every log is of that one.
"""

from __future__ import annotations

from analyzers.analyzer import Tables, once
from analyzers.times.joins import facts_by_source
from logparse.target import apart, device_of_file


class Unplaced:
    """Which times are not known to be of a run's calls: none of them where the run is of one device."""

    def __init__(self, tables: Tables) -> None:
        facts = facts_by_source(tables.facts)
        own = tables.sources.loc[tables.sources["run"] == tables.run, "source_id"].astype(str)
        self._device = {source: device_of_file(x) for source, x in facts.items()}
        self._apart = apart(facts, own)
        rows = tables.calls[["problem", "source_id"]].drop_duplicates() if self._apart else tables.calls[:0]
        self._callers = rows.groupby("problem")["source_id"].agg(list).to_dict() if len(rows) else {}

    def __bool__(self) -> bool:
        return bool(self._apart)

    def __call__(self, problem: str, source: str, log: str | None = None) -> bool:
        """Whether the time of a source is not known to be of the calls that a log (None: any) has of a problem."""
        callers = self._callers.get(problem, ()) if log is None else (log,)
        device = self._device.get(source, "")
        return bool(callers) and all((self._device.get(x, ""), device) in self._apart for x in callers)


@once
def unplaced(tables: Tables) -> Unplaced:
    """Which times are not known to be of the run's calls."""
    return Unplaced(tables)
