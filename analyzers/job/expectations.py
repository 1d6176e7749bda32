"""Estimate how long a job's GEMMs and convolutions should take, from the best times of similar ones.

If only one kernel was timed for a call, nothing else shows whether this kernel is fast.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.evidence.comparable import Expected, best_times, device_name, lone_times
from analyzers.evidence.joins import facts_of, not_elsewhere, run_facts
from analyzers.evidence.origins import TRACE
from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.tables import Settings, Tables, cached_per_run
from analyzers.job.gpu_time import traced_calls_of_run
from logparse.target import Facts, arch


@cached_per_run
def times(tables: Tables, settings: Settings) -> pd.DataFrame:
    """Return the time of a call (µs) for each GEMM or convolution for which only one kernel was timed.

    Columns: ``device, problem, source_id, origin, now_us``. Files from an unknown device are left out.
    """
    traced = traced_calls_of_run(tables).assign(origin=TRACE)
    alone = lone_times(tables).rename(columns={"time_us": "now_us"})
    columns = ["source_id", "origin", "problem", "now_us"]
    rows = pd.concat([x[columns] for x in (traced, alone) if len(x)] or [traced[columns]], ignore_index=True)
    rows = not_elsewhere(rows, tables, settings)
    known = picks_vs_best(tables, settings)
    rows = rows[~rows["problem"].isin(set(known.loc[known["tried"] > 1, "problem"])).to_numpy(dtype=bool)]
    facts, here = facts_of(tables), {**run_facts(tables), **settings.target}
    device = {str(x): device_name(_add_job_gpu(facts.get(str(x), {}), here)) for x in rows["source_id"].unique()}
    rows = rows.assign(device=rows["source_id"].map(device), later=rows["origin"] != TRACE)
    # Times from traces are preferred. If there are several times, the shortest is used.
    rows = rows[rows["device"].notna()].sort_values(["device", "problem", "later", "now_us", "source_id", "origin"])
    return rows.drop_duplicates(["device", "problem"])[["device", *columns]].reset_index(drop=True)


def _add_job_gpu(facts: Facts, here: Facts) -> Facts:
    """Add the job's own GPU (arch, CU count and device) to the facts of a file that does not name its GPU."""
    # Nothing is added if the file states its CU count or its device, or if it is from another arch.
    if "cu_count" in facts or "device" in facts or arch(facts) not in (None, arch(here)):
        return facts
    return {**{name: here[name] for name in ("arch", "cu_count", "device") if name in here}, **facts}


@cached_per_run
def expectations(tables: Tables, settings: Settings) -> dict[str, tuple[pd.DataFrame, Expected]]:
    """Return how long GEMMs and convolutions should take if only one kernel was timed for them.

    The result has two parts for each device: rows as in ``times``, and the expected times in the same order. Expected
    times come from the best times of similar GEMMs and convolutions. If the user's files have too few of them, the
    times that logparse ships are used, multiplied by a factor that the rows determine.
    """
    rows = times(tables, settings)
    out = {}
    for device, group in rows.groupby("device", sort=True):
        part = group.reset_index(drop=True)
        alone = part[["problem", "now_us"]].rename(columns={"now_us": "time_us"})
        out[str(device)] = part, best_times(tables, str(device)).beside(alone).expect(part["problem"])
    return out


def estimate_times(tables: Tables, settings: Settings) -> dict[str, tuple[float, float]]:
    """Return two times (µs) for each GEMM or convolution: how long a call takes, and how long it should take.

    The second is a rough guess. Use it only to order work.
    """
    out: dict[str, tuple[float, float]] = {}
    for rows, found in expectations(tables, settings).values():
        for text, now, guess in zip(rows["problem"], rows["now_us"].astype(float), found.guess_us, strict=True):
            # The guess may come from very different sizes. If a GEMM or convolution ran on several devices, the device
            # with the larger difference of the two times is used.
            if np.isfinite(guess) and (text not in out or now - guess > out[text][0] - out[text][1]):
                out[str(text)] = (float(now), float(guess))
    return out


def expected_problems(tables: Tables, settings: Settings) -> frozenset[str]:
    """Return the texts of all GEMMs and convolutions for which it can be estimated how long they should take."""
    found = expectations(tables, settings).values()
    return frozenset(str(text) for rows, known in found for text in rows.loc[np.isfinite(known.expected_us), "problem"])


def as_expected(tables: Tables, settings: Settings) -> tuple[int, int]:
    """Check the GEMMs and convolutions with only one timed kernel: how many are as fast as similar ones?

    Returns two numbers: how many take no longer than the bound that is estimated from similar ones, and how many were
    checked.
    """
    found = expectations(tables, settings).values()
    fine = sum(int((rows["now_us"].to_numpy(dtype="float64") <= known.high_us).sum()) for rows, known in found)
    return fine, sum(len(rows) for rows, _ in found)
