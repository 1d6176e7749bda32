"""Times that replays took for actions: samples of each problem's default and of the solutions that actions lead to."""

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
    """Return the samples that replays took for actions, or of the host (``origin``).

    The samples are of the target's device and of the environment that timed most.
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
    """Return the rows of one environment: the environment with the most rows.

    An environment that runs products in TF32 if the job does, and not if the job does not, comes first.
    """
    if not len(rows):
        return rows
    facts, found = facts_of(tables), units(tables)
    short = str(int(found is not None and "tf32" in found.settings))
    of = rows["source_id"].map(lambda x: facts.get(str(x), {}))
    environments, alike = of.map(lambda x: x.get("environment", "")), of.map(lambda x: x.get("replay_tf32") == short)
    among = environments[alike] if alike.any() else environments
    return rows[environments == among.value_counts().sort_index().idxmax()]
