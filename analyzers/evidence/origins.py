"""Who took the times of measurements, and which of these times picks are compared by.

A format declares its origins (``kinds.format.Origin``), and ``ingest`` stores with the rows which of them are evidence:
no reader has a list of formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

RACE, CONFIRM, ACTION, HOST = "replay", "replay-confirm", "replay-action", "replay-host"
"""Origins of a replay: a race's samples, no evidence, as selection biases its winner's time low; a confirmation's
paired samples of a pick and a winner, two rows of one source, entry by entry of one block; what is run under each
action, sampled in turn and without a search, which is of a whole job and not of one problem's better solution; and of
that what the host took to enqueue a call: samples, and no time, for it is no time of the call.
"""
CHOSEN = "miopen-chosen"
"""Origin of rows in which a MIOpen log names the solver that was taken."""
PICKED = (CHOSEN, "flashinfer", "transformer-engine-cache")
"""Origins of rows that name what is taken, without a time: those of a log, and of files that a library reads."""
TRACE = "trace"
"""Origin of kernel times in the job's own traces."""
PICK = "pick"
"""Fact of both origins of a replay: the solution that was the library's own choice on this machine."""
EVIDENCE_BEFORE = frozenset(
    {"aiter", "bench", "driver", "find-db", "miopen-log", "table", "tunableop", "tunableop-verbose", "tuning-file"}
    | {CONFIRM}
)
"""The origins whose times are evidence in a store of a version that stored no column ``evidence``.  No name is added:
a format states it itself, and ``ingest`` stores it.
"""
NO_LOGS_BEFORE = frozenset(
    {"replay", "table", "aiter", "tunableop-untuned", "tunableop-results", "hipblaslt-tuning-file"}
    | {"miopen-find-db", "miopen-perf-db"}
)
"""The formats that are no logs of the job in a store of a version that stored no column ``job_log``."""
IS_EVIDENCE = f"coalesce(evidence, origin in {tuple(sorted(EVIDENCE_BEFORE))})"
"""SQL of ``is_evidence`` for a row of ``measurements``."""


def is_evidence(measurements: pd.DataFrame) -> pd.Series[bool]:
    """Whether the times of each row are measurements of named solutions, which picks are compared by.

    The row states it (column ``evidence`` of the view ``measurements``); where it does not, its origin decides, as
    before rows did.
    """
    return _stated(measurements, "evidence", measurements["origin"].isin(EVIDENCE_BEFORE))


def is_job_log(sources: pd.DataFrame) -> pd.Series[bool]:
    """Whether the facts of each source are of the job that wrote it (column ``job_log``, else by the format)."""
    return _stated(sources, "job_log", ~sources["format"].isin(NO_LOGS_BEFORE))


def _stated(rows: pd.DataFrame, column: str, otherwise: pd.Series[bool]) -> pd.Series[bool]:
    if column not in rows:
        return otherwise
    stated = rows[column]
    return otherwise if stated.isna().all() else stated.where(stated.notna(), otherwise).astype(bool)
