"""GEMMs that differ in some of their sizes only, and the fastest time of each in one source.

The library's time as a function of the sizes is what ``flat_cost`` and ``cliff`` analyse.  Both compare a problem with
another of the same source, so device, build and method are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from analyzers.analyzer import Settings, Tables
from analyzers.times.joins import facts_of, timed
from analyzers.times.origins import EVIDENCE, RACE, TRACE
from logparse.model import GemmProblem, problem_from_text
from logparse.target import same_device

Size: TypeAlias = Literal["m", "n", "k"]
SIZES: tuple[Size, ...] = ("m", "n", "k")
ORIGINS = EVIDENCE | {TRACE, RACE}
"""Sources of the times: a trace counts too (it times the job's own calls), and so does a race: what is looked
for here are factors, not percents.
"""


@dataclass(frozen=True)
class Timed:
    """One GEMM of one source and origin: its fastest solution there and the time of that, µs."""

    source_id: str
    origin: str
    problem: GemmProblem
    solution: str
    time_us: float


def fastest(tables: Tables, settings: Settings) -> list[Timed]:
    """The fastest known solution of each plain GEMM per source and origin, in a fixed order.

    Left out: sources of another device than the target's, grouped GEMMs, problems without all sizes and a batch count.
    """
    rows = tables.measurements
    rows = rows[(rows["kind"] == "gemm").to_numpy(dtype=bool) & rows["origin"].isin(ORIGINS).to_numpy(dtype=bool)]
    rows = timed(rows)[["source_id", "origin", "problem", "time_us", "solution"]]
    rows = rows.sort_values(["source_id", "origin", "problem", "time_us", "solution"])
    rows = rows.drop_duplicates(["source_id", "origin", "problem"])
    facts = facts_of(tables)
    away = [x for x in rows["source_id"].unique() if same_device(facts.get(x, {}), settings.target) is False]
    rows = rows[~rows["source_id"].isin(away)]
    problems = {text: problem_from_text(text) for text in rows["problem"].unique()}
    out = []
    for source, origin, text, time_us, solution in rows.itertuples(index=False):
        problem = problems[text]
        if isinstance(problem, GemmProblem) and problem.flops and problem.bytes:
            out.append(Timed(str(source), str(origin), problem.normal, str(solution), float(time_us)))
    return out


def matrices(problem: GemmProblem) -> dict[str, tuple[Size, Size]]:
    """Which sizes are the rows and the columns of the column-major A, B, C and D in memory."""
    a: tuple[Size, Size] = ("m", "k") if problem.trans_a == "N" else ("k", "m")
    b: tuple[Size, Size] = ("k", "n") if problem.trans_b == "N" else ("n", "k")
    return {"a": a, "b": b, "c": ("m", "n"), "d": ("m", "n")}


def without(problem: GemmProblem, *sizes: Size) -> str:
    """The problem's text with these sizes left open, and with them whatever only follows from sizes: leading dimensions
    without a gap and the batch strides of matrices without a gap.
    """
    change: dict[str, Any] = dict.fromkeys(sizes)
    for name, (rows, cols) in matrices(problem).items():
        ld, stride = getattr(problem, f"ld{name}"), getattr(problem, f"stride_{name}")
        if ld == getattr(problem, rows):
            change[f"ld{name}"] = None
        if ld is not None and stride == ld * getattr(problem, cols):
            change[f"stride_{name}"] = None
    return replace(problem, **change).text


def neighbours(times: list[Timed], *sizes: Size) -> Iterator[list[Timed]]:
    """Those of one source and origin that differ in nothing but these sizes; only groups of two or more."""
    found: dict[tuple[str, str, str], list[Timed]] = {}
    for x in times:
        found.setdefault((x.source_id, x.origin, without(x.problem, *sizes)), []).append(x)
    for key in sorted(found):
        if len(found[key]) > 1:
            yield found[key]


def at_best(times: list[Timed], linked: Mapping[str, set[str]]) -> Mapping[str, float]:
    """Problem text → its fastest time in any source, or that of one that may be the same call."""
    own: dict[str, float] = {}
    for x in times:
        own[x.problem.text] = min(x.time_us, own.get(x.problem.text, math.inf))
    return {text: min(own.get(other, us) for other in {text, *linked.get(text, ())}) for text, us in own.items()}


def linked_to(tables: Tables, times: list[Timed]) -> dict[str, set[str]]:
    """Problem text → the texts of others among these that may be the same call."""
    texts = {x.problem.text for x in times}
    links = tables.links[tables.links["problem"].isin(texts) & tables.links["other"].isin(texts)]
    out: dict[str, set[str]] = {}
    for text, other in zip(links["problem"], links["other"], strict=True):
        if text != other:
            out.setdefault(str(text), set()).add(str(other))
    return out
