"""Expected times for the problems in the run's files and traces.

If only one solution of a problem was timed, its time counts as the problem's own time. It comes from a trace's kernels,
or is a file's only time of the problem.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.evidence.comparable import Expected, best_times, device_name, lone_times
from analyzers.evidence.joins import facts_of, not_elsewhere, run_facts
from analyzers.evidence.origins import TRACE
from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.tables import Settings, Tables, cached_per_run
from analyzers.job.gpu_time import traced_calls
from logparse.target import Facts, arch


@cached_per_run
def times(tables: Tables, settings: Settings) -> pd.DataFrame:
    """Return the time of one call of each problem for which only one solution was timed.

    Columns ``device, problem, source_id, origin, now_us``. A trace's time has priority over a file's. Among several
    times the least counts. Sources of an unknown device are left out.
    """
    traced = traced_calls(tables.kernels, tables.calls).assign(origin=TRACE)
    alone = lone_times(tables).rename(columns={"time_us": "now_us"})
    columns = ["source_id", "origin", "problem", "now_us"]
    rows = pd.concat([x[columns] for x in (traced, alone) if len(x)] or [traced[columns]], ignore_index=True)
    rows = not_elsewhere(rows, tables, settings)
    known = picks_vs_best(tables, settings)
    rows = rows[~rows["problem"].isin(set(known.loc[known["tried"] > 1, "problem"])).to_numpy(dtype=bool)]
    facts, here = facts_of(tables), {**run_facts(tables), **settings.target}
    device = {str(x): device_name(_completed(facts.get(str(x), {}), here)) for x in rows["source_id"].unique()}
    rows = rows.assign(device=rows["source_id"].map(device), later=rows["origin"] != TRACE)
    rows = rows[rows["device"].notna()].sort_values(["device", "problem", "later", "now_us", "source_id", "origin"])
    return rows.drop_duplicates(["device", "problem"])[["device", *columns]].reset_index(drop=True)


def _completed(facts: Facts, here: Facts) -> Facts:
    """Return the facts of a source, with the run's CU count added.

    Nothing is added if the source tells its CU count or its device, or if it is of another arch.
    """
    if "cu_count" in facts or "device" in facts or arch(facts) not in (None, arch(here)):
        return facts
    return {**{name: here[name] for name in ("arch", "cu_count", "device") if name in here}, **facts}


@cached_per_run
def expectations(tables: Tables, settings: Settings) -> dict[str, tuple[pd.DataFrame, Expected]]:
    """Return the rows of ``times`` per device, with their expected times."""
    rows = times(tables, settings)
    parts = {str(name): part.reset_index(drop=True) for name, part in rows.groupby("device", sort=True)}
    return {name: (part, best_times(tables, name).expect(part["problem"])) for name, part in parts.items()}


def guesses(tables: Tables, settings: Settings) -> dict[str, tuple[float, float]]:
    """Return two times (µs) per problem: the time of one call, and its expected time.

    The expected time may come from timed problems at any distance. So use the result only to order work. If a problem
    ran on several devices, the device with the larger difference of the two times counts.
    """
    out: dict[str, tuple[float, float]] = {}
    for rows, found in expectations(tables, settings).values():
        for text, now, guess in zip(rows["problem"], rows["now_us"].astype(float), found.guess_us, strict=True):
            if np.isfinite(guess) and (text not in out or now - guess > out[text][0] - out[text][1]):
                out[str(text)] = (float(now), float(guess))
    return out


def expected_problems(tables: Tables, settings: Settings) -> frozenset[str]:
    """Return the problems whose expected time is known."""
    found = expectations(tables, settings).values()
    return frozenset(str(text) for rows, known in found for text in rows.loc[np.isfinite(known.expected_us), "problem"])
