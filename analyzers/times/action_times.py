"""What replays timed for actions: samples of each problem's default and of the solutions that actions lead to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from analyzers.analyzer import Settings, Tables
from analyzers.times.joins import facts_of, not_elsewhere, timed
from analyzers.times.origins import ACTION

Samples: TypeAlias = Mapping[tuple[str, str], tuple[str, tuple[float, ...]]]
"""By problem text and solution text: the source, and its samples in µs."""
HOST_FACT = "own_kernel_host_us"
"""Of a source that times a user's own kernels: JSON, the fields of a ``HostCost`` by solution text."""


@dataclass(frozen=True)
class HostCost:
    """What an override of PyTorch's operators costs the host, µs more than without it: in a call that the user's own
    kernel computes, and in any other call of these operators.

    Each is that of a call after other work (of an own one with the core's caches emptied); ``least_…`` that of a call
    right after an equal one.
    """

    own_us: float
    other_us: float
    least_own_us: float = 0.0
    least_other_us: float = 0.0


HostCosts: TypeAlias = Mapping[tuple[str, str], HostCost]
"""By problem text and solution text."""


def host_costs(tables: Tables, samples: Samples) -> HostCosts:
    """The host costs of the user's own kernels among the samples, from the sources of these."""
    rows = tables.facts[tables.facts["name"] == HOST_FACT]
    stated = {str(source): json.loads(text) for source, text in zip(rows["source_id"], rows["value"], strict=True)}
    return {
        (problem, solution): _host_cost(**stated[source][solution])
        for (problem, solution), (source, _) in samples.items()
        if solution in stated.get(source, ())
    }


def _host_cost(own_us: float, other_us: float, **least: float) -> HostCost:
    """Earlier replays timed calls right after equal ones alone."""
    return HostCost(own_us, other_us, **({"least_own_us": own_us, "least_other_us": other_us} | least))


def samples_of(tables: Tables, settings: Settings) -> Samples:
    """What replays timed for actions, of the target's device and the environment that timed most."""
    rows = timed(tables.measurements[(tables.measurements["origin"] == ACTION).to_numpy(dtype=bool)])
    rows = not_elsewhere(rows, tables, settings)
    if not len(rows):
        return {}
    facts = facts_of(tables)
    environment = rows["source_id"].map(lambda x: facts.get(str(x), {}).get("environment", ""))
    rows = rows.assign(environment=environment)
    most = rows["environment"].value_counts().sort_index().idxmax()
    rows = rows[rows["environment"] == most].sort_values("source_id")
    columns = (rows[name] for name in ("problem", "solution", "source_id", "samples_us"))
    return {
        (str(problem), str(solution)): (str(source), tuple(map(float, taken)))
        for problem, solution, source, taken in zip(*columns, strict=True)
        if taken is not None and not isinstance(taken, float) and len(taken)
    }
