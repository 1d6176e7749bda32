"""Read how long calls take with and without a proposed change of the job, measured by a replay.

A replay runs the job's GPU calls again by themselves. A proposed change is, for example, an environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from analyzers.evidence.joins import facts_of, not_elsewhere
from analyzers.evidence.origins import ACTION
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import units
from logparse.lazy import pd

Samples: TypeAlias = Mapping[tuple[str, str], tuple[str, tuple[float, ...]]]
"""Measured times of kernels: a dictionary from (GEMM or convolution, kernel) to (file, times in µs).

The names are texts. The file is the id of the file that holds the times.
"""


def samples_of(tables: Tables, settings: Settings, origin: str = ACTION) -> Samples:
    """Return the measured times of kernels that a change of the job would use, to predict what the change gains.

    The keys are pairs of a GEMM or convolution and a kernel. The values are the file with the times, and the times in
    µs.

    * ``origin``: ``ACTION`` for the times that the calls run, ``HOST`` for the times that the host takes to enqueue
      them.
    * All times come from one kind of GPU and one set of library versions, so that they can be compared.
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
    """Keep only measurements from one machine and one set of library versions, so that their times can be compared."""
    if not len(rows):
        return rows
    facts, found = facts_of(tables), units(tables)
    short = str(int(found is not None and "tf32" in found.settings))
    of = rows["source_id"].map(lambda x: facts.get(str(x), {}))
    environments, alike = of.map(lambda x: x.get("environment", "")), of.map(lambda x: x.get("replay_tf32") == short)
    # The environment with the job's own setting of TF32 is chosen if possible, and then the one with most measurements.
    among = environments[alike] if alike.any() else environments
    return rows[environments == among.value_counts().sort_index().idxmax()]
