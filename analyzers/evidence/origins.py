"""Names for the tools that measure kernels (column ``origin``), and what their times may be used for.

Each file format (``kinds.format.Origin``) states whether its times may be compared, and whether a kernel won a search.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from logparse.libraries.found import find_modules_with

if TYPE_CHECKING:
    import pandas as pd

RACE, CONFIRM, ACTION, HOST = "replay", "replay-confirm", "replay-action", "replay-host"
"""The four ways in which a replay measures times (values of the column ``origin``).

* ``RACE``: times of several kernels against each other. They are not used to compare kernels, because the fastest of
  many is partly fast by chance.
* ``CONFIRM``: paired times of the library's choice and the fastest kernel, in two rows of one file. Entry i of both
  rows was measured in the same block.
* ``ACTION``: times of a job's calls with and without a proposed change, taken in turn and without a search. They show
  what a change does to a whole job, not which kernel is better for one GEMM or convolution.
* ``HOST``: times that the host took to enqueue a call, with and without the change. These rows have samples but no
  time, because they do not show how long the call runs.
"""
CHOSEN = "miopen-chosen"
"""Value of the column ``origin`` for a line of a MIOpen log that names the kernel in use."""
TRACE = "trace"
"""Value of ``origin`` for kernel times from traces of the job itself."""
PICK = "pick"
"""Name of a fact that a replay stores: the kernel that the library chose by itself on this machine."""
EVIDENCE_BEFORE = frozenset(
    {"aiter", "bench", "driver", "find-db", "miopen-log", "table", "tunableop", "tunableop-verbose", "tuning-file"}
    | {CONFIRM}
)
"""Kinds of measurements whose times may be used to compare kernels. Needed only for data of an old version.

Data of a newer version state it in the column ``evidence``. So add no name here for a new format.
"""
WINNERS_BEFORE = frozenset({"aiter", "find-db", "tunableop"})
"""Kinds of measurements whose kernels won a tuner's search. The list is needed only for data of an old version.

Data of a newer version state it in the column ``winner``.
"""
NO_LOGS_BEFORE = frozenset(
    {"replay", "table", "aiter", "tunableop-untuned", "tunableop-results", "hipblaslt-tuning-file"}
    | {"miopen-find-db", "miopen-perf-db"}
)
"""Formats of files that are not logs of the job. Needed only for data of an old version.

Data of a newer version state it in the column ``job_log``.
"""
IS_EVIDENCE = f"coalesce(evidence, origin in {tuple(sorted(EVIDENCE_BEFORE))})"
"""SQL condition: true if the time in a row of ``measurements`` may be used to compare kernels (``is_evidence``)."""


@cache
def list_picked() -> tuple[str, ...]:
    """Return the values of the column ``origin`` for rows without a time, which only name the kernel in use.

    Such rows come from logs and from files that a library reads. A module that makes them offers the value as
    ``PICKED``.
    """
    return tuple(str(import_module(module).PICKED) for module in find_modules_with("PICKED"))


def is_evidence(measurements: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each measurement whether its time may be used to compare kernels.

    The time must be measured, and the kernel must be named.
    """
    # If the column ``evidence`` is missing or empty, the kind of measurement (``origin``) decides.
    return _fill_unstated(measurements, "evidence", measurements["origin"].isin(EVIDENCE_BEFORE))


def is_winner(measurements: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each measurement whether its kernel is the fastest of many in a tuner's search.

    The column ``winner`` has the answer. If the column is missing or empty, the answer depends on the kind of
    measurement (``origin``).
    """
    return _fill_unstated(measurements, "winner", measurements["origin"].isin(WINNERS_BEFORE))


def is_job_log(sources: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each file whether the job itself wrote it, so that it describes the job's machine.

    The column ``job_log`` has the answer. If the column is missing or empty, the answer depends on the file's format.
    """
    return _fill_unstated(sources, "job_log", ~sources["format"].isin(NO_LOGS_BEFORE))


def _fill_unstated(rows: pd.DataFrame, column: str, otherwise: pd.Series[bool]) -> pd.Series[bool]:
    if column not in rows:
        return otherwise
    stated = rows[column]
    return otherwise if stated.isna().all() else stated.where(stated.notna(), otherwise).astype(bool)
