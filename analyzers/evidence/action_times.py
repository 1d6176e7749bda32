"""Times from replays of a proposed change: each call with the library's own choice and with the changed solution.

An action is a change that logparse proposes for a job, for example an environment variable or an override file.
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
"""Measured times of solutions: a dictionary from (GEMM or convolution, solution) to (file, times).

The file is an id, and the times are in µs. The keys are texts.
"""


def samples_of(tables: Tables, settings: Settings, origin: str = ACTION) -> Samples:
    """Return the times that replays measured for proposed changes of the job (actions).

    Each is the time of one GEMM or convolution with one solution. ``origin`` is ``ACTION`` for the times of calls, or
    ``HOST`` for the times that the host took to enqueue calls. All times are from the target's device and from one
    environment (machine and library versions), so they can be compared.
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
    """Keep only the measurements from one environment: the machine and library versions of a replay.

    It is the environment with the most rows. Environments that treat TF32 as the job does (both use it for matrix
    products, or neither does) are preferred if there are any.
    """
    if not len(rows):
        return rows
    facts, found = facts_of(tables), units(tables)
    short = str(int(found is not None and "tf32" in found.settings))
    of = rows["source_id"].map(lambda x: facts.get(str(x), {}))
    environments, alike = of.map(lambda x: x.get("environment", "")), of.map(lambda x: x.get("replay_tf32") == short)
    among = environments[alike] if alike.any() else environments
    return rows[environments == among.value_counts().sort_index().idxmax()]
