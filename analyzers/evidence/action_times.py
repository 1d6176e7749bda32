"""Samples that replays took for actions: times of each problem with its default and with the actions' solutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from analyzers.evidence.joins import facts_of, not_elsewhere
from analyzers.evidence.origins import ACTION
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import units
from logparse.lazy import pd

Samples: TypeAlias = Mapping[tuple[str, str], tuple[str, tuple[float, ...]]]
"""(Problem text, solution text) → the source and its samples, µs."""


def samples_of(tables: Tables, settings: Settings, origin: str = ACTION) -> Samples:
    """Return the samples that replays took for actions.

    ``origin``: ``ACTION`` for times of calls, ``HOST`` for times that the host took to enqueue calls. The samples come
    from the target's device and from one environment (see ``of_one_environment``).
    """
    rows = tables.measurements[(tables.measurements["origin"] == origin).to_numpy(dtype=bool)]
    rows = rows[rows["samples_us"].notna()]
    rows = of_one_environment(not_elsewhere(rows, tables, settings), tables).sort_values("source_id")
    columns = (rows[name] for name in ("problem", "solution", "source_id", "samples_us"))
    return {
        (str(problem), str(solution)): (str(source), tuple(map(float, taken)))
        for problem, solution, source, taken in zip(*columns, strict=True)
        if len(taken)
    }


def of_one_environment(rows: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Return the rows of the environment (machine and libraries of a replay) that has the most rows.

    If some environments treat TF32 as the job does (both use it for products, or neither does), only these environments
    are considered.
    """
    if not len(rows):
        return rows
    facts, found = facts_of(tables), units(tables)
    short = str(int(found is not None and "tf32" in found.settings))
    of = rows["source_id"].map(lambda x: facts.get(str(x), {}))
    environments, alike = of.map(lambda x: x.get("environment", "")), of.map(lambda x: x.get("replay_tf32") == short)
    among = environments[alike] if alike.any() else environments
    return rows[environments == among.value_counts().sort_index().idxmax()]
