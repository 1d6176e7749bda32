"""Origins of measurements: who took the times, whether the times are evidence in comparisons of picks, and whether
each time won a tuner's search.

A format declares its origins (``kinds.format.Origin``). ``ingest`` stores what it states with each row, so that no
reader needs a list of formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

RACE, CONFIRM, ACTION, HOST = "replay", "replay-confirm", "replay-action", "replay-host"
"""Origins of a replay.

* ``RACE``: samples of a race. They are not evidence, because selection biases the winner's time low.
* ``CONFIRM``: paired samples of a pick and a winner. They are two rows of one source. Entry i of both rows was measured
  in the same block.
* ``ACTION``: samples of a job's problems under each action, taken in turn and without a search. They show what an
  action does to a whole job, not which solution of one problem is better.
* ``HOST``: samples of the time that the host took to enqueue a call of an action. They have no time, because they are
  not times of the call.
"""
CHOSEN = "miopen-chosen"
"""Origin of rows in which a MIOpen log names the solver that was taken."""
PICKED = (CHOSEN, "flashinfer", "transformer-engine-cache")
"""Origins of rows that name the taken solution without a time.

They come from logs and from files that a library reads.
"""
TRACE = "trace"
"""Origin of kernel times in the job's own traces."""
PICK = "pick"
"""Fact of a replay: the solution that was the library's own choice on this machine."""
EVIDENCE_BEFORE = frozenset(
    {"aiter", "bench", "driver", "find-db", "miopen-log", "table", "tunableop", "tunableop-verbose", "tuning-file"}
    | {CONFIRM}
)
"""Origins that are evidence in a store of an old version, which has no column ``evidence``.

Add no name here: a format states it itself, and ``ingest`` stores it.
"""
WINNERS_BEFORE = frozenset({"aiter", "find-db", "tunableop"})
"""Origins whose rows won a tuner's search, in a store of an old version, which has no column ``winner``."""
NO_LOGS_BEFORE = frozenset(
    {"replay", "table", "aiter", "tunableop-untuned", "tunableop-results", "hipblaslt-tuning-file"}
    | {"miopen-find-db", "miopen-perf-db"}
)
"""Formats that are not logs of the job. Used for a store of an old version, which has no column ``job_log``."""
IS_EVIDENCE = f"coalesce(evidence, origin in {tuple(sorted(EVIDENCE_BEFORE))})"
"""SQL of ``is_evidence`` for a row of ``measurements``."""


def is_evidence(measurements: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each row whether its time is evidence: a measured time of a named solution.

    Picks are compared by such times. The column ``evidence`` of the view ``measurements`` states it. If the column is
    missing or the cell is empty, the row's origin decides.
    """
    return _stated(measurements, "evidence", measurements["origin"].isin(EVIDENCE_BEFORE))


def is_winner(measurements: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each row whether a tuner wrote it as the winner of its search, so that its time is a best time.

    The column ``winner`` of the view ``measurements`` states it. If the column is missing or the cell is empty, the
    row's origin decides.
    """
    return _stated(measurements, "winner", measurements["origin"].isin(WINNERS_BEFORE))


def is_job_log(sources: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each source whether it is a log of the job, so that its facts describe the job's machine.

    The column ``job_log`` states it. If the column is missing or the cell is empty, the format decides.
    """
    return _stated(sources, "job_log", ~sources["format"].isin(NO_LOGS_BEFORE))


def _stated(rows: pd.DataFrame, column: str, otherwise: pd.Series[bool]) -> pd.Series[bool]:
    if column not in rows:
        return otherwise
    stated = rows[column]
    return otherwise if stated.isna().all() else stated.where(stated.notna(), otherwise).astype(bool)
