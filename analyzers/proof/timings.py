"""What one call of each problem took in a run, by each kind of evidence; times of two kinds are never compared.

A trace contains what the job's calls took, a measured file candidates: of these the job's pick counts where a log
names it, else (in a replay) the default, else the fastest, which is what a tuner or a find-db makes the library use.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from analyzers.analyzer import Tables
from analyzers.evidence.joins import calls_by_problem, is_default, timed
from analyzers.evidence.origins import CONFIRM, EVIDENCE, TRACE
from analyzers.evidence.picks import picks

_NEAREST = (TRACE, CONFIRM, "driver", "bench", "tunableop-verbose", "miopen-log", "find-db", "tunableop", "tuning-file")
BASES = (*_NEAREST, *sorted(EVIDENCE - {*_NEAREST}))
"""Kinds of evidence, what is nearest to the job first."""

COLUMNS = ("problem", "basis", "solution", "time_us", "noise")


def timings(tables: Tables) -> pd.DataFrame:
    """One row per problem and kind of evidence of the run, with ``COLUMNS``.

    ``noise`` is the relative standard error of the time, missing where the evidence does not contain it.
    """
    frames = [x for x in (_traced(tables), _measured(tables)) if len(x)]
    out = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))
    return out.astype({"time_us": "float64", "noise": "float64"})


def main_pick(tables: Tables) -> pd.Series:
    """Problem → the solution that was picked most often according to its logs."""
    rows = picks(tables).groupby(["problem", "pick"])["count"].sum().reset_index()
    rows = rows.sort_values(["problem", "count", "pick"], ascending=[True, False, True]).drop_duplicates("problem")
    return pd.Series(rows["pick"].to_numpy(), index=rows["problem"].to_numpy(), dtype="object")


def kernels_of(tables: Tables) -> dict[str, str]:
    """Problem → the kernels that its calls launched in the run's traces, as one text."""
    names = _launched(_own(tables.kernels, tables.run).dropna(subset=["problem"]))
    return {str(problem): str(text) for problem, text in names.items()}


def _launched(kernels: pd.DataFrame) -> pd.Series:
    """Problem (its text, or what the caller has in its place) → its kernels as one text."""
    return kernels.groupby("problem")["kernel"].agg(lambda names: " + ".join(sorted(set(names))))


def _own(frame: pd.DataFrame, run: str) -> pd.DataFrame:
    return frame[frame["run"] == run] if "run" in frame else frame


def _traced(tables: Tables) -> pd.DataFrame:
    rows = _own(tables.kernels, tables.run).dropna(subset=["problem"])
    if not len(rows):
        return pd.DataFrame(columns=list(COLUMNS))
    per = rows.groupby("problem").agg(total=("total_us", "sum"), most=("calls", "max"))
    calls = calls_by_problem(tables.workload).reindex(per.index).astype("float64")
    # The workload's count is of another log where a process has one with more calls: then it is no divisor.
    own = tables.workload.groupby("problem")["calls_from"].first().reindex(per.index) == "profiler"
    count = calls.where(own & calls.notna(), per["most"].astype("float64"))
    return pd.DataFrame(
        {
            "problem": per.index.to_numpy(),
            "basis": TRACE,
            "solution": _launched(rows).reindex(per.index).to_numpy(),
            "time_us": (per["total"] / count).to_numpy(),
            "noise": math.nan,
        }
    )


def _measured(tables: Tables) -> pd.DataFrame:
    rows = timed(_own(tables.measurements, tables.run))
    rows = rows[rows["origin"].isin(EVIDENCE)]
    rows = rows.assign(noise=_noise(rows))
    pick = rows["problem"].map(main_pick(tables))
    default = (rows["origin"] == CONFIRM) & is_default(rows, tables.facts)
    rank = np.where(rows["solution"] == pick, 0, np.where(default, 1, 2))
    rows = first_of(rows.assign(rank=rank), ["problem", "origin"], ["rank", "time_us", "solution"])
    return rows.rename(columns={"origin": "basis"})[list(COLUMNS)]


def first_of(rows: pd.DataFrame, keys: list[str], order: list[str]) -> pd.DataFrame:
    """The first row in ``order`` of each ``keys``.  Only rows that share theirs are sorted: a find-db's hundreds of
    thousands of problems have one each.
    """
    several = rows.duplicated(keys, keep=False)
    if not several.any():
        return rows
    return pd.concat([rows[~several], rows[several].sort_values([*keys, *order]).drop_duplicates(keys)])


def _noise(rows: pd.DataFrame) -> np.ndarray:
    """Relative standard error of each time: of its samples where there are any, else the deviation in the file."""
    out: np.ndarray = rows["std_us"].to_numpy(dtype="float64", na_value=np.nan) / rows["time_us"].to_numpy(
        dtype="float64"
    )
    samples = rows["samples_us"].to_numpy()
    for i in np.flatnonzero(rows["samples_us"].notna()):  # a find-db has hundreds of thousands of rows without
        if len(samples[i]) > 1:
            values = np.asarray(samples[i], dtype="float64")
            out[i] = 1.4826 * np.median(np.abs(values / np.median(values) - 1)) / math.sqrt(len(values))
    return out
