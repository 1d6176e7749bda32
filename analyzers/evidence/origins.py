"""Origins of measurements: who took the times, and for what they may be used.

A time may be evidence when the library's choice is compared with other solutions, and it may be the winner of a tuner's
search. Each format declares this for its origins (``kinds.format.Origin``). ``ingest`` stores it with each row, so that
no reader needs a list of formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

RACE, CONFIRM, ACTION, HOST = "replay", "replay-confirm", "replay-action", "replay-host"
"""Names that state how a replay measured a time.

* ``RACE``: times of several solutions against each other. They are not evidence, because the fastest of many is partly
  fast by chance.
* ``CONFIRM``: paired times of the library's choice and a winner: two rows of one file. Entry i of both rows was
  measured in the same block.
* ``ACTION``: times of a job's calls with and without a proposed change, taken in turn and without a search. They show
  what a change does to a whole job, not which solution is better for one GEMM or convolution.
* ``HOST``: times that the host took to enqueue a call, as for ``ACTION``. Their rows have samples but no time, because
  these are not times of the call.
"""
CHOSEN = "miopen-chosen"
"""Name for rows in which a MIOpen log states the solver that was used."""
PICKED = (CHOSEN, "flashinfer", "transformer-engine-cache")
"""Names for rows that state the solution in use, without a time.

They are from logs and from files that a library reads.
"""
TRACE = "trace"
"""Name for kernel times from the job's own traces."""
PICK = "pick"
"""Name under which a replay records the solution that the library chose by itself on this machine."""
EVIDENCE_BEFORE = frozenset(
    {"aiter", "bench", "driver", "find-db", "miopen-log", "table", "tunableop", "tunableop-verbose", "tuning-file"}
    | {CONFIRM}
)
"""Kinds of measurements whose times may be used to compare solutions.

This is needed only for a store of an old version, which has no column ``evidence``. Add no name here: a new format
states it itself, and ``ingest`` stores it.
"""
WINNERS_BEFORE = frozenset({"aiter", "find-db", "tunableop"})
"""Kinds of measurements whose rows won a tuner's search.

This is needed only for a store of an old version, which has no column ``winner``.
"""
NO_LOGS_BEFORE = frozenset(
    {"replay", "table", "aiter", "tunableop-untuned", "tunableop-results", "hipblaslt-tuning-file"}
    | {"miopen-find-db", "miopen-perf-db"}
)
"""Formats of files that are not logs of the job.

This is needed only for a store of an old version, which has no column ``job_log``.
"""
IS_EVIDENCE = f"coalesce(evidence, origin in {tuple(sorted(EVIDENCE_BEFORE))})"
"""The condition of ``is_evidence`` as SQL, for a row of ``measurements``."""


def is_evidence(measurements: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each measurement whether its time may be used to compare solutions.

    It must be a measured time of a named solution. The column ``evidence`` states it. If the column is missing or the
    cell is empty, the kind of measurement (``origin``) decides.
    """
    return _stated(measurements, "evidence", measurements["origin"].isin(EVIDENCE_BEFORE))


def is_winner(measurements: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each measurement whether its solution won a tuner's search, so that its time is the best of many.

    The column ``winner`` states it. If the column is missing or the cell is empty, the kind of measurement (``origin``)
    decides.
    """
    return _stated(measurements, "winner", measurements["origin"].isin(WINNERS_BEFORE))


def is_job_log(sources: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each file whether it is a log of the job, so that it describes the job's machine.

    The column ``job_log`` states it. If the column is missing or the cell is empty, the file's format decides.
    """
    return _stated(sources, "job_log", ~sources["format"].isin(NO_LOGS_BEFORE))


def _stated(rows: pd.DataFrame, column: str, otherwise: pd.Series[bool]) -> pd.Series[bool]:
    if column not in rows:
        return otherwise
    stated = rows[column]
    return otherwise if stated.isna().all() else stated.where(stated.notna(), otherwise).astype(bool)
