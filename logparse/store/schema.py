"""The store's tables: the columns of parts, of the row that commits an attempt, and of findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from logparse.formats.format import UNITS, Unit
from logparse.model import CONV_FIELDS, GEMM_FIELDS

SCHEMA_VERSION = 1
_TEXT_FIELDS = re.compile(
    r"(trans_|_type$|_mode$|^mode$|_layout$|_cast$|^scale_[abcd]$|^(activation|beta|bias_source|direction)$)"
)
_BOOL_FIELDS = frozenset({"gradient", "aux", "bias", "scale_alpha_vector", "swizzle_a", "swizzle_b"})


def _problem_fields(names: Sequence[str], bools: frozenset[str]) -> list[tuple[str, pa.DataType]]:
    def kind(name: str) -> pa.DataType:
        return pa.bool_() if name in bools else pa.string() if _TEXT_FIELDS.search(name) else pa.int64()

    return [(name, kind(name)) for name in names]


_ATTEMPT = [("attempt", pa.string())]
SCHEMAS: Mapping[str, pa.Schema] = {
    "calls": pa.schema(
        [
            *_ATTEMPT,
            *((name, pa.string()) for name in ("kind", "problem", "solution")),
            ("pid", pa.int64()),
            ("device", pa.int32()),
            ("first_seen", pa.timestamp("s")),
            ("last_seen", pa.timestamp("s")),
            ("count", pa.int64()),
            ("workspace_bytes", pa.int64()),
            ("by_tool", pa.bool_()),
            ("category", pa.string()),
        ]
    ),
    "messages": pa.schema(
        [
            *_ATTEMPT,
            ("pid", pa.int64()),
            ("function", pa.string()),
            ("text", pa.string()),
            ("count", pa.int64()),
            ("offset", pa.int64()),
            ("category", pa.string()),
        ]
    ),
    "measurements": pa.schema(
        [
            *_ATTEMPT,
            *(
                (x, pa.string())
                for x in ("origin", "kind", "problem", "library", "solution", "raw", "algorithm", "status")
            ),
            *((x, pa.float64()) for x in ("time_us", "min_us", "max_us", "std_us")),
            ("samples_us", pa.list_(pa.float64())),
            ("workspace_bytes", pa.int64()),
            ("error", pa.string()),
            ("key_text", pa.string()),
            ("ordinal", pa.int32()),
        ]
    ),
    "solutions": pa.schema([*_ATTEMPT, *((x, pa.string()) for x in ("library", "solution", "name", "kernel_name"))]),
    "kernels": pa.schema(
        [
            *_ATTEMPT,
            ("device", pa.int32()),
            *((x, pa.string()) for x in ("op", "problem", "operator", "kernel")),
            ("calls", pa.int64()),
            *((x, pa.float64()) for x in ("total_us", "min_us", "max_us")),
        ]
    ),
    "facts": pa.schema([*_ATTEMPT, ("name", pa.string()), ("value", pa.string())]),
    "rejects": pa.schema(
        [
            *_ATTEMPT,
            ("offset", pa.int64()),
            ("length", pa.int64()),
            ("count", pa.int64()),
            ("reason", pa.string()),
            ("text", pa.string()),
            ("line", pa.int64()),  # a hash of the text: equal lines share it across ranges of the file
        ]
    ),
    "gemms": pa.schema(
        [
            *_ATTEMPT,
            *((x, pa.string()) for x in ("problem", "kind", "shape")),
            *_problem_fields(GEMM_FIELDS, _BOOL_FIELDS),
            ("members", pa.string()),
            ("epilogue", pa.string()),
            ("flops", pa.int64()),
        ]
    ),
    "convs": pa.schema(
        [
            *_ATTEMPT,
            ("problem", pa.string()),
            *_problem_fields(CONV_FIELDS, frozenset()),
            ("flops", pa.int64()),
        ]
    ),
}
"""The part files' columns.  ``calls`` and ``messages`` are partitioned by ``category`` (a folder each)."""

PARTITIONED = frozenset({"calls", "messages"})


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One row of ``sources/``: what one attempt read of a source (bytes ``start`` to ``end`` of the raw file)."""

    attempt: str
    source_id: str
    run: str
    path: str
    format: str  # names joined by +; in rows of earlier versions some have _, which is read as -
    content_hash: str  # of raw bytes 0 to ``end``
    start: int
    end: int
    bytes: int  # decompressed bytes read by this attempt
    lines: int
    splits: int = 0
    units: Mapping[Unit, int] = field(default_factory=dict)
    pid: int | None = None
    pid_from: str | None = None
    tail: bool = False  # the commit holds only a last line that has no line end yet
    whole: bool = False  # of a whole-file format: if the file grows, all of it is read again
    replaces: tuple[str, ...] = ()
    ended: str | None = None  # how the input ended, if not normally
    bench_output: bool = False  # output of hipblaslt-bench: a tool made its bench lines
    committed_at: float = 0.0
    seconds: float = 0.0


FOREIGN = "foreign"
"""Format of a file in which no line is of a known one."""

COMMIT_SCHEMA = pa.schema(
    [
        *((x, pa.string()) for x in ("attempt", "source_id", "run", "path", "format", "content_hash")),
        *((x, pa.int64()) for x in ("start", "end", "bytes", "lines", "splits")),
        *((f"{unit}_lines", pa.int64()) for unit in UNITS),
        ("pid", pa.int64()),
        ("pid_from", pa.string()),
        ("tail", pa.bool_()),
        ("whole", pa.bool_()),
        ("replaces", pa.list_(pa.string())),
        ("ended", pa.string()),
        ("bench_output", pa.bool_()),
        ("committed_at", pa.float64()),
        ("seconds", pa.float64()),
    ],
    metadata={"logparse_schema": str(SCHEMA_VERSION)},
)

VIEWS: Mapping[str, str] = {
    "sources": "one row per ingested file",
    "calls": "source × category × problem × solution (× second where there is a clock)",
    "workload": "run × process × problem, from the one category with the most calls",
    "messages": "source × category × distinct text",
    "gemm_problems": "distinct GEMM",
    "conv_problems": "distinct convolution",
    "links": "pair of problems that may be the same call",
    "measurements": "source × problem × solution × ordinal",
    "solutions": "solution of a library build",
    "kernels": "source × operator × kernel (traces)",
    "facts": "source × name",
    "rejects": "distinct bad line",
    "findings": "finding of the last recommend",
}

FINDINGS_SCHEMA = pa.schema(
    [
        *((x, pa.string()) for x in ("run", "analyzer", "kind", "problem", "message")),
        *((x, pa.float64()) for x in ("saving_us", "saving_low_us", "saving_high_us", "saving_share", "per_call_us")),
        ("calls", pa.int64()),
        ("advice", pa.string()),
        ("solution", pa.string()),  # the proposed one; null where only a search can find it
        ("confidence", pa.string()),
        ("action", pa.string()),
    ]
)


def live(rows: Iterable[Commit]) -> list[Commit]:
    held = list(rows)
    gone = {attempt for row in held for attempt in row.replaces}
    return sorted((row for row in held if row.attempt not in gone), key=lambda row: (row.committed_at, row.attempt))


def commit_row(row: Commit) -> dict[str, Any]:
    out = {**vars(row)}
    units = out.pop("units")
    return out | {f"{unit}_lines": units.get(unit, 0) for unit in UNITS} | {"replaces": list(row.replaces)}


_COMMIT_FIELDS = frozenset(f.name for f in fields(Commit))


def commit_from_row(row: dict[str, Any]) -> Commit:
    units: dict[Unit, int] = {unit: row[f"{unit}_lines"] for unit in UNITS}
    values = {k: v for k, v in row.items() if k in _COMMIT_FIELDS}
    values |= {"units": units, "replaces": tuple(row["replaces"] or ()), "format": row["format"].replace("_", "-")}
    return Commit(**values)
