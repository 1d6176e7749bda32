"""Find the changes with which a job ran, as its processes reported them or as its settings show.

A process may also lose a change before it ends, for example if the job sets a setting of PyTorch again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from analyzers.evidence.tables import Tables
from analyzers.evidence.units import units
from logparse.libraries.own.applied_marks import APPLIED, IN_FORCE, LOST, UNKNOWN


def find_changes_made(tables: Tables, kind: str = APPLIED) -> set[str]:
    """Return the names of the changes with which a job ran, as its processes reported them or as its settings show.

    A setting that a process lost (``find_lost_changes``) is left out. ``kind`` selects other reports about a change,
    for example that the change failed.
    """
    names = tables.facts.loc[tables.facts["run"] == tables.run, "name"].astype(str)
    marked = {x.removeprefix(kind) for x in names if x.startswith(kind)}
    if kind != APPLIED:
        return marked
    found = units(tables)
    return (marked | (found.settings if found else frozenset())) - find_lost_changes(tables).keys()


def find_lost_changes(tables: Tables) -> Mapping[str, set[str]]:
    """Return the changes of a job that were not in force any more when one of its processes ended.

    The values name the settings of PyTorch that were set to another value.
    """
    out: dict[str, set[str]] = {}
    for name, found in _at_end(tables):
        if found.get("at_end") == LOST:
            out.setdefault(name, set()).add(str(found.get("undone")))
    return out


def find_unknown_changes(tables: Tables) -> set[str]:
    """Return the changes of which no process of the job says whether they were in force when it ended.

    Reports of an older ``apply.py`` never say it, so they are not counted.
    """
    said: dict[str, set[str]] = {}
    for name, found in _at_end(tables):
        said.setdefault(name, set()).add(str(found.get("at_end", IN_FORCE)))
    return {name for name, words in said.items() if words == {UNKNOWN}}


def _at_end(tables: Tables) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield what each process of the job reported about each change that it applied."""
    rows = tables.facts[tables.facts["run"] == tables.run]
    for name, value in zip(rows["name"].astype(str), rows["value"].astype(str), strict=True):
        if name.startswith(APPLIED):
            yield name.removeprefix(APPLIED), json.loads(value)


def fact_values(tables: Tables, name: str) -> Mapping[str, str]:
    """Return the value of the fact ``name`` (for example the rank) in each file of the run.

    The keys are the ids of the files.
    """
    rows = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == name)]
    return {str(source): str(value) for source, value in zip(rows["source_id"], rows["value"], strict=True)}
