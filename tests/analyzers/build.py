"""Make small made-up tables as input for tests of the analyzers, with the columns of logparse's SQL views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from analyzers.evidence.tables import Tables
from logparse.links import find_link_level
from logparse.model import ConvProblem, GemmProblem, Problem, problem_from_text

COLUMNS: Mapping[str, str] = {
    "sources": "source_id run path format bytes lines splits call_lines message_lines measurement_lines fact_lines "
    "reject_lines foreign_lines blank_lines pid pid_from ingested_at",
    "calls": "source_id run category kind problem pid first_seen last_seen solution count by_tool workspace_bytes",
    "workload": "run pid kind problem calls calls_from",
    "messages": "source_id run category function text count pid",
    "gemm_problems": "problem shape flops",
    "conv_problems": "problem shape direction layer flops",
    "links": "problem other level fan",
    "measurements": "source_id run origin kind problem library solution raw algorithm status time_us min_us max_us "
    "std_us samples_us workspace_bytes error key_text ordinal",
    "solutions": "library build solution name kernel_name algorithm",
    "kernels": "source_id run device op operator problem kernel calls total_us min_us max_us unit",
    "collectives": "source_id run device ranks kernel start_us us alone_us",
    "facts": "source_id run name value",
}
NUMBERS = frozenset({"time_us", "min_us", "max_us", "std_us", "count", "calls", "total_us", "flops", "pid"})
MI300X: Mapping[str, str] = {"device": "AMD Instinct MI300X", "cu_count": "304"}


def frame(table: str, rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    found = list(rows)
    return _frame(table, found) if found else _empty(table).copy()


@cache
def _empty(table: str) -> pd.DataFrame:
    return _frame(table, [])


def _frame(table: str, rows: list[Mapping[str, object]]) -> pd.DataFrame:
    columns = COLUMNS[table].split()
    out = pd.DataFrame(rows, columns=columns)
    for name in NUMBERS.intersection(columns):
        out[name] = pd.to_numeric(out[name])
        if name in ("pid", "count", "calls"):
            out[name] = out[name].astype("Int64")  # as DuckDB returns integers that may be missing
    return out


def tables(run: str = "r", **given: Iterable[Mapping[str, object]]) -> Tables:
    """Make the input of an analyzer from the given rows, for example ``tables(calls=[…], facts=[…])``.

    The tables of matrix products, convolutions and links are filled with whatever the given rows mention.
    """
    frames = {name: frame(name, given.get(name, ())) for name in COLUMNS}
    if "sources" not in given:
        ids = sorted({row["source_id"] for rows in given.values() for row in rows if row.get("source_id")})  # type: ignore[type-var]
        frames["sources"] = frame("sources", [{"source_id": x, "run": run, "path": f"{x}"} for x in ids])
    texts = sorted({str(row["problem"]) for rows in given.values() for row in rows if row.get("problem")})
    problems = [problem_from_text(text) for text in texts]
    convs = [p for p in problems if isinstance(p, ConvProblem)]
    gemms = [p for p in problems if isinstance(p, GemmProblem)]
    frames["conv_problems"] = frame(
        "conv_problems",
        [{"problem": p.text, "direction": p.direction, "layer": p.layer, "flops": p.flops} for p in convs],
    )
    frames["gemm_problems"] = frame("gemm_problems", [{"problem": p.text, "flops": p.flops} for p in gemms])
    pairs = [(a.text, b.text, find_link_level(a, b)) for a in problems for b in problems]
    frames["links"] = frame("links", [{"problem": a, "other": b, "level": x, "fan": 1} for a, b, x in pairs if x])
    return Tables(run=run, **frames)


def measurement(problem: str, solution: str, time_us: float | None, **more: object) -> dict[str, object]:
    kind = "conv" if problem.startswith("conv") else "gemm"
    row = {
        "source_id": "m",
        "run": "r",
        "origin": "find-db" if kind == "conv" else "tunableop-verbose",
        "kind": kind,
        "problem": problem,
        "library": solution.partition(":")[0] if ":" in solution else "torch",
        "solution": solution,
        "status": "ok" if time_us else "no_time",
        "time_us": time_us,
        "ordinal": 0,
    }
    return row | more


def call(problem: str, solution: str | None = None, count: int = 1, **more: object) -> dict[str, object]:
    kind = "conv" if problem.startswith("conv") else "gemm"
    row = {"source_id": "log", "run": "r", "category": "bench", "kind": kind, "problem": problem, "pid": 1}
    return row | {"solution": solution, "count": count, "by_tool": False} | more


def work(problem: str, calls: int | None, **more: object) -> dict[str, object]:
    kind = "conv" if problem.startswith("conv") else "gemm"
    row = {"run": "r", "pid": 1, "kind": kind, "problem": problem, "calls": calls, "calls_from": "bench"}
    return row | more


def message(category: str, function: str = "f", text: str = "") -> dict[str, object]:
    return {"source_id": "log", "run": "r", "category": category, "function": function, "text": text, "count": 1}


def facts(source: str, **values: str) -> list[dict[str, object]]:
    return [{"source_id": source, "run": "r", "name": name, "value": value} for name, value in values.items()]


def trace_rows(
    *times: tuple[Problem, float], calls: int = 4, source: str = "trace", device: Mapping[str, str] = MI300X
) -> dict[str, Any]:
    """Return the rows of a trace for ``tables``: matrix products or convolutions that were each called ``calls`` times.

    ``times`` has the time of one call in µs.
    """
    row = {"source_id": source, "run": "r", "op": "aten::mm", "kernel": "Cijk_", "calls": calls}
    return {
        "kernels": [row | {"problem": p.text, "total_us": us * calls, "min_us": us, "max_us": us} for p, us in times],
        "calls": [call(p.text, count=calls, source_id=source, category="profiler") for p, _ in times],
        "workload": [work(p.text, calls, calls_from="profiler") for p, _ in times],
        "facts": facts(source, **device),
    }
