"""Records to Arrow tables: counts what is equal, and keeps memory bounded by writing parts when it grows."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from logparse.model import (
    CONV_FIELDS,
    GEMM_FIELDS,
    Call,
    ConvProblem,
    Fact,
    GemmProblem,
    Kernel,
    Measurement,
    Message,
    Problem,
    Record,
    Reject,
    SolutionName,
)
from logparse.store import SCHEMAS, Attempt

_ROWS = 100_000
_EXCERPT = 300


class Collector:
    """Gathers the records of one source and writes them as parts of an attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._calls: dict[tuple[Any, ...], int | None] = {}
        self._messages: dict[tuple[Any, ...], list[int]] = {}
        self._problems: dict[str, Problem] = {}
        self._written_problems: set[str] = set()
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
        self._facts: set[tuple[str, str]] = set()
        self._ordinals: dict[tuple[str, str], int] = {}
        self.records = 0

    def add(
        self,
        records: Iterable[Record],
        *,
        count: int = 1,
        pid: int | None = None,
        second: int | None = None,
        offset: int = 0,
        raw: bytes = b"",
    ) -> None:
        """Take records of a line (or unit) that stood ``count`` times, first at ``offset``."""
        for record in records:
            self.records += 1
            if isinstance(record, Call):
                self._call(record, count, pid, second)
            elif isinstance(record, Message):
                key = (record.category, pid, record.function, record.text)
                entry = self._messages.setdefault(key, [0, offset])
                entry[0] += record.count * count
            elif isinstance(record, Measurement):
                self._measurement(record)
            elif isinstance(record, Fact):
                if (record.name, record.value) not in self._facts:
                    self._facts.add((record.name, record.value))
                    self._rows["facts"].append({"name": record.name, "value": record.value})
            elif isinstance(record, Reject):
                self._reject(record, count, offset, raw)
            elif isinstance(record, SolutionName):
                self._rows["solutions"].append(
                    {
                        "library": record.solution.library,
                        "solution": record.solution.text,
                        "name": record.name,
                        "kernel_name": record.kernel_name,
                    }
                )
            else:
                self._kernel(record)
        if self.size >= _ROWS:
            self.flush()

    @property
    def size(self) -> int:
        """Rows held in memory."""
        return len(self._calls) + len(self._messages) + sum(map(len, self._rows.values()))

    def add_tables(self, tables: dict[str, pa.Table]) -> None:
        """Take ready columns."""
        for name, table in tables.items():
            self.records += table.num_rows
            self._attempt.add(name, table)

    def flush(self) -> None:
        """Write what is held as parts."""
        self._flush_problems()
        by_category: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for key, count in self._calls.items():
            kind, problem, solution, workspace, by_tool, device, pid, second, category = key
            row = {"kind": kind, "problem": problem, "solution": solution, "workspace_bytes": workspace}
            row |= {"by_tool": by_tool, "device": device, "pid": pid, "count": count}
            row |= {"first_seen": second, "last_seen": second}
            by_category.setdefault(("calls", category), []).append(row)
        for (category, pid, function, text), (count, offset) in self._messages.items():
            row = {"pid": pid, "function": function, "text": text, "count": count, "offset": offset}
            by_category.setdefault(("messages", category), []).append(row)
        for (name, category), rows in by_category.items():
            self._write(name, rows, category)
        for name, rows in self._rows.items():
            self._write(name, rows)
            rows.clear()
        self._calls.clear()
        self._messages.clear()

    def _write(self, name: str, rows: list[dict[str, Any]], category: str | None = None) -> None:
        if rows:
            schema = pa.schema([f for f in SCHEMAS[name] if f.name not in ("attempt", "category")])
            self._attempt.add(name, pa.Table.from_pylist(rows, schema=schema), category)

    def _call(self, call: Call, count: int, pid: int | None, second: int | None) -> None:
        text = self._problem(call.problem)
        solution = call.solution.text if call.solution else None
        key = (
            call.problem.kind,
            text,
            solution,
            call.workspace_bytes,
            call.by_tool,
            call.device,
            pid,
            second,
            call.category,
        )
        if call.count is None:
            self._calls.setdefault(key, None)
        else:
            self._calls[key] = (self._calls.get(key) or 0) + call.count * count

    def _measurement(self, item: Measurement) -> None:
        text = self._problem(item.problem)
        key = (text, item.solution.text)
        ordinal = self._ordinals[key] = self._ordinals.get(key, -1) + 1
        self._rows["measurements"].append(
            {
                "origin": item.origin,
                "kind": item.problem.kind,
                "problem": text,
                "library": item.solution.library,
                "solution": item.solution.text,
                "raw": item.solution.raw or None,
                "algorithm": item.solution.algorithm,
                "status": item.status,
                "time_us": item.time_us,
                "min_us": item.min_us,
                "max_us": item.max_us,
                "std_us": item.std_us,
                "samples_us": list(item.samples_us) or None,
                "workspace_bytes": item.workspace_bytes,
                "error": item.error,
                "key_text": item.key_text,
                "ordinal": ordinal,
            }
        )

    def _reject(self, reject: Reject, count: int, offset: int, raw: bytes) -> None:
        self._rows["rejects"].append(
            {
                "offset": offset + reject.offset,
                "length": reject.length or len(raw),
                "count": count,
                "reason": reject.reason,
                "text": raw[reject.offset :][:_EXCERPT].decode("utf-8", "backslashreplace"),
            }
        )

    def _kernel(self, kernel: Kernel) -> None:
        problem = self._problem(kernel.problem) if kernel.problem else None
        row: dict[str, Any] = {"device": kernel.device, "op": kernel.op, "problem": problem, "kernel": kernel.kernel}
        row |= {"calls": kernel.calls, "total_us": kernel.total_us, "min_us": kernel.min_us, "max_us": kernel.max_us}
        self._rows["kernels"].append(row)

    def _problem(self, problem: Problem) -> str:
        text = problem_text(problem)
        if text not in self._written_problems and text not in self._problems:
            self._problems[text] = problem
        return text

    def _flush_problems(self) -> None:
        gemms = [gemm_row(p) for p in self._problems.values() if isinstance(p, GemmProblem)]
        convs = [conv_row(p) for p in self._problems.values() if isinstance(p, ConvProblem)]
        self._rows["gemms"] += gemms
        self._rows["convs"] += convs
        self._written_problems |= self._problems.keys()
        self._problems.clear()
        if len(self._written_problems) > 4 * _ROWS:  # bounded: a problem written twice does no harm
            self._written_problems.clear()


@lru_cache(maxsize=65_536)
def problem_text(problem: Problem) -> str:
    """``problem.text``, made once per distinct problem."""
    return problem.text


def gemm_row(problem: GemmProblem) -> dict[str, Any]:
    """The row of table ``gemms``: the normal form's fields."""
    normal = problem.normal
    row: dict[str, Any] = {name: getattr(normal, name) for name in GEMM_FIELDS}
    members = ",".join(member.text for member in normal.members) or None
    head = {"problem": problem.text, "kind": problem.kind, "shape": problem.shape}
    return head | row | {"members": members, "epilogue": normal.epilogue, "flops": normal.flops}


def conv_row(problem: ConvProblem) -> dict[str, Any]:
    """The row of table ``convs``."""
    row: dict[str, Any] = {name: getattr(problem, name) for name in CONV_FIELDS}
    return {"problem": problem.text, "shape": problem.shape, "layer": problem.layer, "flops": problem.flops} | row


@lru_cache(maxsize=4096)
def clock_second(text: bytes) -> int | None:
    """Seconds since 1970 of ``YYYY-MM-DD hh:mm:ss`` (local time, kept without a zone); None when it is no time."""
    try:
        moment = datetime.datetime.strptime(text.decode(), "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp())
