"""Whose calls a time may stand for, where the files of one run are of several devices.

A log that states no device may be of any of them.  Its calls have no time that is known to be theirs: to weigh one
device's times with them would claim a saving that nothing measured.  In a run of one device every log is of that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import TypeAlias

from analyzers.analyzer import Tables, once
from analyzers.evidence.joins import facts_by_source
from analyzers.evidence.target import Facts, arch, same_device

Device: TypeAlias = str
"""The arch and the CU count of a file's facts as one text, empty where it states neither."""


def device_of_file(facts: Facts) -> Device:
    """The device that a file states."""
    return " ".join(x for x in (arch(facts), facts.get("cu_count")) if x)


def apart(facts: Mapping[str, Facts], own: Iterable[str]) -> set[tuple[Device, Device]]:
    """Pairs of devices, that of a log and that of a time: the time is not known to be of the log's calls.

    ``facts`` are those of every source, ``own`` the sources of the run.  Empty where the run is of one device.
    """
    stated = {device_of_file(x): x for x in facts.values()}
    here = {device_of_file(x): x for x in (facts.get(source, {}) for source in own)}
    if all(same_device(one, other) is not False for one, other in combinations(here.values(), 2)):
        return set()
    return {
        (log, time)
        for log, mine in {"": {}, **here}.items()
        for time, other in stated.items()
        if same_device(mine, other) is False or (arch(mine) is None and arch(other) is not None)
    }


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
