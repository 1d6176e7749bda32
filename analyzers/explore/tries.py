"""The measurements of one GEMM or convolution as plain Python objects.

A report has hundreds of such lists with a few measurements each. With a DataFrame for each, it would take ten times as
long.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from logparse.lazy import duckdb, pd

Row: TypeAlias = "pd.Series | Mapping[Hashable, Any]"
"""A row of the table ``points``, which has one row per GEMM or convolution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One measurement of a kernel: a row of the SQL view ``measurements``. None means an unknown value."""

    problem: str | None = None
    source_id: str | None = None
    origin: str | None = None
    solution: str | None = None
    raw: str | None = None
    algorithm: str | None = None
    status: str | None = None
    time_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    samples_us: Sequence[float] | None = None
    workspace_bytes: int | None = None
    error: str | None = None
    key_text: str | None = None

    @property
    def timed(self) -> bool:
        """True if the measurement has a valid time.

        Files of MIOpen's search results (find-dbs) also have zero and negative times, which are not valid.
        """
        return self.time_us is not None and self.time_us > 0


COLUMNS = tuple(x.name for x in fields(Try))


def of_query(result: duckdb.DuckDBPyConnection) -> list[Try]:
    """Convert the rows of an SQL result to measurements. The result's columns must be among ``COLUMNS``."""
    names = [name for name, *_ in result.description or ()]
    return [
        Try(**{x: None if isinstance(v, float) and math.isnan(v) else v for x, v in zip(names, row, strict=True)})
        for row in result.fetchall()
    ]


def of_frame(frame: pd.DataFrame) -> list[Try]:
    """Convert the rows of a DataFrame to measurements. A missing column gives None."""
    known = frame[[x for x in COLUMNS if x in frame.columns]]
    rows = known.astype("object").where(known.notna(), None)
    return [Try(**dict(zip(rows.columns, row, strict=True))) for row in rows.itertuples(index=False, name=None)]


def of_source(tries: Sequence[Try], source_id: object) -> Sequence[Try]:
    """Return the measurements that are from one file, because times of different files cannot be compared.

    If the file has none, all measurements are returned instead of nothing.
    """
    return [x for x in tries if x.source_id == source_id] or tries
