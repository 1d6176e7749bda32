"""Which of the calls that have a row's key its solution can run.

A key does not contain all of a call: hipBLASLt's has no epilogue, and one of its indices is a kernel with or without an
auxiliary matrix, so it never runs both.  No file states which; the calls that the store saw run by it do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from analyzers.analyzer import Tables
from analyzers.overrides.lint import by_name
from analyzers.overrides.look_up import Answer
from analyzers.overrides.override_format import OverrideFile, OverrideFormat
from logparse.model import problem_from_text


@dataclass(frozen=True)
class Kernels:
    """``seen``: by key and solution, the kinds of kernels (``OverrideFormat.kernels``) of the calls that ran it.

    It is empty where the format has no kinds.
    """

    format: OverrideFormat
    seen: Mapping[tuple[str, str], frozenset[str]]

    @classmethod
    def of(cls, file: OverrideFile, *runs: Tables) -> Kernels:
        """By the measurements of the runs' stores and the picks of their logs."""
        format = by_name(file.format)
        seen: dict[tuple[str, str], frozenset[str]] = {}
        if format.kernels is not None:
            named = {row.solution.text for row in file.rows if row.solution is not None and row.live}
            for text, solution in {pair for tables in runs for pair in _ran(tables, named)}:
                problem = problem_from_text(text)
                key, kind = format.key(problem, file.reading.key_facts), format.kernels(problem)
                if key is not None and key in file.reading.by_key and kind is not None:
                    seen[key, solution] = seen.get((key, solution), frozenset()) | {kind}
        return cls(format, seen)

    def judged(self, call: str, answer: Answer) -> Answer:
        """The answer of a look-up: no hit where the row's solution cannot run the call.

        It is unknown where the solution would have to be of another kind than the plain one, and nothing shows that.
        """
        row = answer.row
        if self.format.kernels is None or row is None or row.solution is None:
            return answer
        kind = self.format.kernels(problem_from_text(call))
        known = self.seen.get((row.key, row.solution.text), frozenset())
        if kind is None or kind in known or not (known or kind):
            return answer
        place, plain = f"line {row.line}: {row.solution.text}", "plain results"
        if known:
            ran, needed = " and ".join(sorted(x or plain for x in known)), kind or plain
            why = f"{place} has kernels for {ran}, by the calls that ran it, and this one needs {needed}"
            return Answer(answer.key, None, "miss", f"{why}: the library takes its own choice")
        why = f"{place} serves it if its kernels are for {kind}, which no file states"
        return Answer(answer.key, None, "unknown", why, (row.line,))


def _ran(tables: Tables, named: set[str]) -> Iterator[tuple[str, str]]:
    """Problem and solution of what ran, of these solutions."""
    timed = tables.measurements[tables.measurements["status"] == "ok"]
    for frame in (timed, tables.calls):
        rows: pd.DataFrame = frame[frame["solution"].isin(named)][["problem", "solution"]].drop_duplicates()
        yield from zip(rows["problem"].astype("str"), rows["solution"].astype("str"), strict=True)
