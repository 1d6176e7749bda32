"""Columns and types of the store's tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from logparse.libraries.kinds.format import UNITS, Unit
from logparse.libraries.torch_profiler import timeline
from logparse.model import CONV_FIELDS, GEMM_FIELDS
from logparse.model.problems import GEMM_FLAGS

SCHEMA_VERSION = 1
_TEXTS = re.compile(
    r"(trans_|_type$|_mode$|^mode$|_layout$|_cast$|^scale_[abcd]$|^(activation|beta|bias_source|direction)$)"
)


def _columns(text: str) -> pa.Schema:
    """Make an Arrow schema from a text such as ``int: pid offset text: name``.

    A word with a colon is a type. The words after it are the names of columns with this type.
    """
    fields, type = [], pa.string()
    for word in text.split():
        if word.endswith(":"):
            type = _TYPES[word[:-1]]
        else:
            fields.append((word, type))
    return pa.schema(fields)


_TYPES = {
    "text": pa.string(),
    "flag": pa.bool_(),
    "texts": pa.list_(pa.string()),
    "reals": pa.list_(pa.float64()),
    "int": pa.int64(),
    "int32": pa.int32(),
    "real": pa.float64(),
    "second": pa.timestamp("s"),
}


def _of_problem(names: Sequence[str], flags: frozenset[str] = frozenset()) -> str:
    kinds = ("flag" if name in flags else "text" if _TEXTS.search(name) else "int" for name in names)
    return " ".join(f"{kind}: {name}" for name, kind in zip(names, kinds, strict=True))


SCHEMAS: Mapping[str, pa.Schema] = {
    "calls": _columns(
        "text: attempt kind problem solution int: pid int32: device second: first_seen last_seen int: count "
        "workspace_bytes flag: by_tool text: category"
    ),
    "messages": _columns("text: attempt int: pid text: function text int: count offset text: category"),
    "measurements": _columns(
        "text: attempt origin kind problem library solution raw algorithm status real: time_us min_us max_us std_us "
        "reals: samples_us int: workspace_bytes text: error key_text int32: ordinal"
    ),
    "solutions": _columns("text: attempt library solution name kernel_name"),
    "kernels": _columns(
        "text: attempt int32: device text: op problem operator kernel int: calls real: total_us min_us max_us "
        "text: unit"
    ),
    "collectives": _columns("text: attempt int32: device text: ranks kernel real: start_us us alone_us"),
    "facts": _columns("text: attempt name value"),
    "rejects": _columns("text: attempt int: offset length count text: reason text int: line"),
    "gemms": _columns(
        f"text: attempt problem kind shape {_of_problem(GEMM_FIELDS, GEMM_FLAGS)} text: members epilogue int: flops"
    ),
    "convs": _columns(f"text: attempt problem {_of_problem(CONV_FIELDS)} int: flops"),
    "timelines": pa.schema([("attempt", pa.string()), *timeline.SCHEMA]),
}
"""Columns of each table of the store.

``calls`` and ``messages`` have a folder for each category of log lines (the column ``category``). ``line`` of a reject
(a line that could not be read) is a hash of the line's text, so equal lines have the same value.
"""

PARTITIONED = frozenset({"calls", "messages"})


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The entry which says that an input file, or bytes ``start`` to ``end`` of it, was read and stored.

    ``attempt`` is the name of the reading. The files in ``sources/`` hold these entries.
    """

    # Without this entry, readers of the store ignore the rows of this reading.
    attempt: str = ""
    source_id: str = ""
    run: str
    path: str
    format: str = ""  # names joined by +; in rows of earlier versions some have _, which is read as -
    content_hash: str = ""  # hash of raw bytes 0 to ``end``
    start: int = 0
    end: int = 0
    bytes: int = 0  # decompressed bytes read by this attempt
    lines: int = 0
    splits: int = 0
    units: Mapping[Unit, int] = field(default_factory=dict)
    pid: int | None = None
    pid_from: str | None = None
    tail: bool = False  # the commit holds only a last line that has no line end yet
    whole: bool = False  # True for a whole-file format: if the file grows, all of it is read again
    replaces: tuple[str, ...] = ()
    ended: str | None = None  # how the input ended, if not normally
    bench_output: bool = False  # output of hipblaslt-bench: a tool made its bench lines
    committed_at: float = 0.0
    seconds: float = 0.0
    parts: tuple[str, ...] | None = None  # texts of ``digests.Part`` that hold its rows; None: not recorded
    readable: bool | None = None  # True: all its problems read back when written; None: earlier version
    evidence: tuple[str, ...] | None = None  # origins whose times are evidence; None: earlier version
    winners: tuple[str, ...] | None = None  # origins whose rows won a tuner's search; None: earlier version
    job_log: bool | None = None  # True: its facts are about the job that wrote it; None: earlier version
    identity: str | None = None  # equal in copies of one file (see ``copies``); None: earlier version, or no such text


RECORDED = "parts"
"""Name of the column with the Parquet files of a reading. Records of earlier versions do not have this column."""

FOREIGN = "foreign"
"""Name of the format of a file in which no line has a known format."""

COMMIT_SCHEMA = _columns(
    "text: attempt source_id run path format content_hash int: start end bytes lines splits "
    f"{' '.join(f'{unit}_lines' for unit in UNITS)} pid text: pid_from flag: tail whole texts: replaces text: ended "
    f"flag: bench_output real: committed_at seconds texts: {RECORDED} flag: readable texts: evidence winners flag: "
    "job_log text: identity"
).with_metadata({"logparse_schema": str(SCHEMA_VERSION)})

VIEWS: Mapping[str, str] = {
    "sources": "one row per ingested file",
    "calls": (
        "counted calls: one row per input file, category of log lines, matrix product or convolution, solution "
        "(kernel) and, if the log states times, second"
    ),
    "workload": "run × process × problem, from the one category with the most calls",
    "messages": "source × category × distinct text",
    "gemm_problems": "distinct GEMM",
    "conv_problems": "distinct convolution",
    "links": "one row per pair of differently described matrix products or convolutions that may be the same call",
    "measurements": "source × problem × solution × ordinal",
    "solutions": "solution of a library build",
    "kernels": "source × operator × kernel (traces)",
    "collectives": "source × call of a collective (traces)",
    "facts": "source × name",
    "rejects": "distinct bad line",
    "findings": "finding of the last recommend for a run",
}

FINDINGS_SCHEMA = _columns(
    "text: run analyzer kind problem message real: saving_us saving_low_us saving_high_us saving_share per_call_us "
    "int: calls text: advice solution confidence action comparable"
)
"""Columns of the view ``findings``.

``solution`` is the proposed kernel, or null if only a search can find one. ``comparable`` names the measured calls from
which a time is estimated, with their times, separated by ``; ``.
"""


def live_commits(rows: Iterable[Commit]) -> list[Commit]:
    """Return the valid entries for input files that were read. An entry is not valid if a later one replaces it.

    The result is in the order in which the entries were made.
    """
    commits = list(rows)
    gone = {attempt for row in commits for attempt in row.replaces}
    return sorted((row for row in commits if row.attempt not in gone), key=lambda row: (row.committed_at, row.attempt))


def commit_row(row: Commit) -> dict[str, Any]:
    out = {**vars(row)}
    units = out.pop("units")
    out |= {name: None if out[name] is None else list(out[name]) for name in ("replaces", *_LISTS)}
    return out | {f"{unit}_lines": units.get(unit, 0) for unit in UNITS}


_LISTS = (RECORDED, "evidence", "winners")
"""Columns with lists. They are null in records of earlier versions."""
_COMMIT_FIELDS = frozenset(f.name for f in fields(Commit))


def commit_from_row(row: dict[str, Any]) -> Commit:
    units: dict[Unit, int] = {unit: row[f"{unit}_lines"] for unit in UNITS}
    values = {k: v for k, v in row.items() if k in _COMMIT_FIELDS}
    values |= {"units": units, "replaces": tuple(row["replaces"] or ()), "format": row["format"].replace("_", "-")}
    for name in _LISTS:
        values[name] = None if row[name] is None else tuple(row[name])
    return Commit(**values)
