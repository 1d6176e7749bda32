"""Read the times that a replay measured for a change of the job: each call as it is, and with the change.

A replay runs the job's GPU calls again by themselves. A change is, for example, an environment variable or an override
file that makes a library use another kernel.
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
    """Return the times that replays measured for changes of this job, for each GEMM or convolution and each kernel.

    ``origin`` selects the times: ``ACTION`` for how long calls run, ``HOST`` for how long the host takes to enqueue
    them. Only times from one kind of GPU and one set of library versions are returned, so that they can be compared.
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
    """Keep only measurements that were made in one environment (a machine with one set of library versions).

    If the job computes matrix products in TF32, environments that do so are preferred. Otherwise environments without
    TF32 are preferred. If several remain, the one with the most rows is used.
    """
    if not len(rows):
        return rows
    facts, found = facts_of(tables), units(tables)
    short = str(int(found is not None and "tf32" in found.settings))
    of = rows["source_id"].map(lambda x: facts.get(str(x), {}))
    environments, alike = of.map(lambda x: x.get("environment", "")), of.map(lambda x: x.get("replay_tf32") == short)
    among = environments[alike] if alike.any() else environments
    return rows[environments == among.value_counts().sort_index().idxmax()]
