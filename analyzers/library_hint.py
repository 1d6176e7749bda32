"""The library's own hints as findings, joined to the problems that they are about.

cuBLASLt writes a ``Hint`` when a size is not aligned (``The number of rows in matrix D (50257) is not 8 aligned …``).
It names a matrix and a size, never the call: the problems of the same log that have this size there are meant.  One
problem may have the size in several matrices, and one hint of each: the remedy is the same and is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.times.cells import count_of
from analyzers.times.joins import calls_by_problem
from logparse.model import Evidence, Finding, GemmProblem, problem_from_text

NAME = "library-hint"
_SIZE = re.compile(r"number of (rows|columns) in matrix ([A-D]) \((\d+)\) is not (\d+) aligned")
_OF: Mapping[tuple[str, str, bool], str] = {
    ("A", "rows", False): "m",
    ("A", "columns", False): "k",
    ("A", "rows", True): "k",
    ("A", "columns", True): "m",
    ("B", "rows", False): "k",
    ("B", "columns", False): "n",
    ("B", "rows", True): "n",
    ("B", "columns", True): "k",
}
"""Which size the rows and columns of A and B are, by whether the matrix is transposed; of C and D they are m and n."""


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per problem and size that hints may mean; a hint that fits no problem is one about the run."""
    hints = tables.messages[tables.messages["category"] == "hints"]
    counts = hints.groupby(["source_id", "text"])["count"].sum().reset_index()  # sorted by both
    problems = _problems(tables, set(counts["source_id"]))
    out: list[Finding] = []
    about: dict[tuple[str, GemmProblem, int, int], list[tuple[str, int]]] = {}
    for source, text, count in zip(counts["source_id"], counts["text"], counts["count"], strict=True):
        size, meant = _SIZE.search(text), []
        if size:
            meant = [p for p in problems.get(source, []) if _has(p, size[2], size[1], int(size[3]))]
            for problem in meant:
                about.setdefault((source, problem, int(size[3]), int(size[4])), []).append((text, int(count)))
        if not meant:
            evidence = Evidence(source_id=source, details={"hints": int(count)})
            out.append(Finding(analyzer=NAME, message=f"the library hints: {text!r}", evidence=evidence))
    calls = calls_by_problem(tables.workload)
    for (source, problem, given, step), texts in about.items():
        known, padded = calls.get(problem.text), -(-given // step) * step
        out.append(
            Finding(
                analyzer=NAME,
                message=f"the library hints: {'; '.join(repr(text) for text, _ in texts)}",
                problem=problem,
                calls=count_of(known),
                evidence=Evidence(
                    source_id=source,
                    best=f"torch:pad={step}",  # the remedy; its time is not known
                    details={"hints": sum(count for _, count in texts)},
                ),
                advice=f"Pad {given} to {padded}, a multiple of {step}, and measure both.",
            )
        )
    return out


def _problems(tables: Tables, sources: Set[str]) -> dict[str, list[GemmProblem]]:
    """The GEMMs that the calls of each of these sources name, in the order of their texts."""
    out: dict[str, list[GemmProblem]] = {}
    rows = tables.calls[(tables.calls["kind"] == "gemm") & tables.calls["source_id"].isin(sources)]
    pairs = rows[["source_id", "problem"]].drop_duplicates()
    for source, text in sorted(zip(pairs["source_id"], pairs["problem"], strict=True)):
        problem = problem_from_text(str(text))
        if isinstance(problem, GemmProblem):
            out.setdefault(str(source), []).append(problem)
    return out


def _has(problem: GemmProblem, matrix: str, what: str, size: int) -> bool:
    if matrix in "CD":
        name = "m" if what == "rows" else "n"
    else:
        trans = problem.trans_a if matrix == "A" else problem.trans_b
        if trans is None:
            return False
        name = _OF[matrix, what, trans != "N"]
    return bool(getattr(problem, name) == size)


ANALYZER = Analyzer(name=NAME, about="the library's own hints, joined to the problems that they are about", find=find)
