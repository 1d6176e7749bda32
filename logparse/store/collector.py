"""Records to Arrow tables: counts equal records, and bounds memory by writing parts."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from logparse.formats.format import Outcome
from logparse.model import (
    Call,
    Fact,
    Kernel,
    Measurement,
    Member,
    Message,
    Problem,
    Record,
    Reject,
    SolutionName,
)
from logparse.store.held import LIMIT, NULL, CallKey, Held, Ints, write, write_problems
from logparse.store.parts import Attempt

_ROWS = 20_000
_CELLS = 500_000  # more than _ROWS: counts of calls are numbers only
_PROBLEMS = 8_192
_EXCERPT = 300
_WRITTEN = 200_000
_ORDINALS = 200_000


class Collector:
    """Gathers the records of one source and writes them as parts of an attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._held = Held(attempt.name)
        self._written_problems: set[int] = set()
        self._facts: set[tuple[str, str]] = set()
        self._ordinals: dict[tuple[str, str], int] = {}
        self._next_ordinal = 0
        self.problems = 0
        """Number of distinct problems; above 200,000 some may count twice."""

    def add(
        self,
        records: Iterable[Record],
        *,
        count: int = 1,
        pid: int | None = None,
        offset: int = 0,
        raw: bytes = b"",
        text: str | None = None,
    ) -> None:
        """Take records of a line (or unit) that came ``count`` times, first at ``offset``.

        Rejects of lines with the same ``text`` (default: ``raw``) are one row of the view.
        """
        for record in records:
            if isinstance(record, Call):
                of = record.pid if pid is None else pid
                self._call(record, np.array([count]), np.array([NULL if of is None else of]), np.array([NULL]))
            elif isinstance(record, Message):
                key = (record.category, pid, record.function, record.text)
                entry = self._held.messages.setdefault(key, [0, offset])
                entry[0] += record.count * count
                entry[1] = min(entry[1], offset)
            elif isinstance(record, Measurement):
                self._measurement(record)
            elif isinstance(record, Fact):
                self._fact(record)
            elif isinstance(record, Reject):
                self._reject(record, count, offset, raw, raw if text is None else text.encode())
            elif isinstance(record, SolutionName):
                self._held.rows["solutions"].append(
                    {
                        "library": record.solution.library,
                        "solution": record.solution.text,
                        "name": record.name,
                        "kernel_name": record.kernel_name,
                    }
                )
            else:
                self._kernel(record)
        self._flush_if_full()

    def add_counted(
        self, records: Iterable[Record], counts: Ints, pids: Ints, seconds: Ints, *, offset: int, raw: bytes, text: str
    ) -> None:
        """Take records of line ``text``, which process ``pids[i]`` wrote ``counts[i]`` times at ``seconds[i]``."""
        for record in records:
            if isinstance(record, Call):
                self._call(record, counts, pids, seconds)
            elif isinstance(record, Message):
                for pid in sorted(set(pids.tolist())):
                    times = int(counts[pids == pid].sum())
                    self.add((record,), count=times, pid=None if pid == NULL else pid, offset=offset)
            else:
                self.add((record,), count=int(counts.sum()), offset=offset, raw=raw, text=text)
        self._flush_if_full()

    def add_tables(self, tables: dict[str, pa.Table]) -> None:
        """Take finished tables."""
        for name, ready in tables.items():
            self.problems += ready.num_rows if name == "convs" else 0  # each problem of the file once
            self._attempt.add(name, ready)

    def _flush_if_full(self) -> None:
        if self._held.rows_held >= _ROWS or self._held.cell_count >= _CELLS:
            self.flush()

    def flush(self) -> None:
        """Write what is held as parts, or leave it to the joint parts that the attempt belongs to."""
        self._remember_problems()
        held, self._held = self._held, Held(self._attempt.name)
        if self._attempt.joint is not None:
            self._attempt.joint.hold(held)
        else:
            write([held], self._attempt)

    def _call(self, call: Call, counts: Ints, pids: Ints, seconds: Ints) -> None:
        key = CallKey(
            call.problem.kind,
            self._problem(call.problem),
            call.solution.text if call.solution else None,
            call.workspace_bytes,
            call.by_tool,
            call.device,
            call.category,
        )
        if call.count is None:  # the format does not count
            counts = np.full_like(counts, NULL)
        elif call.count != 1:
            counts = counts * call.count
        self._held.cells.append((self._held.calls.setdefault(key, len(self._held.calls)), counts, pids, seconds))
        self._held.cell_count += len(counts)

    def _measurement(self, item: Measurement) -> None:
        text = self._problem(item.problem)
        key = (text, item.solution.text)
        ordinal = self._ordinals.get(key, self._next_ordinal)
        self._ordinals[key] = ordinal + 1
        if len(self._ordinals) > _ORDINALS:  # bounds memory; later ordinals begin above all earlier ones
            self._next_ordinal = max(self._ordinals.values())
            self._ordinals.clear()
        self._held.rows["measurements"].append(
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

    def _fact(self, fact: Fact) -> None:
        key = (fact.name, fact.value)
        if key not in self._facts:
            self._facts.add(key)
            self._held.rows["facts"].append({"name": fact.name, "value": fact.value})
        if len(self._facts) > _WRITTEN:  # bounds memory; a fact may be written twice
            self._facts.clear()

    def _reject(self, reject: Reject, count: int, offset: int, raw: bytes, line: bytes) -> None:
        same = line or str(offset).encode()
        self._held.rows["rejects"].append(
            {
                "offset": offset + reject.offset,
                "length": reject.length or len(raw),
                "count": count,
                "reason": reject.reason,
                "text": raw[reject.offset :][:_EXCERPT].decode("utf-8", "backslashreplace"),
                "line": xxhash.xxh3_64_intdigest(same, seed=reject.offset) - (1 << 63),
            }
        )

    def _kernel(self, kernel: Kernel) -> None:
        problem = self._problem(kernel.problem) if kernel.problem else None
        row: dict[str, Any] = {"device": kernel.device, "op": kernel.op, "problem": problem, "kernel": kernel.kernel}
        row |= {"calls": kernel.calls, "total_us": kernel.total_us, "min_us": kernel.min_us, "max_us": kernel.max_us}
        row["operator"] = kernel.operator.text if kernel.operator else None
        self._held.rows["kernels"].append(row)

    def _problem(self, problem: Problem) -> str:
        text = problem_text(problem)
        if text not in self._held.problems and xxhash.xxh3_64_intdigest(text.encode()) not in self._written_problems:
            self._held.problems[text] = problem
            self.problems += 1
            if len(self._held.problems) >= _PROBLEMS:
                self.flush_problems()
        return text

    def flush_problems(self) -> None:
        """Write the problems that no part holds yet."""
        self._remember_problems()
        write_problems([self._held], self._attempt)
        self._held.problems.clear()

    def _remember_problems(self) -> None:
        self._written_problems |= {xxhash.xxh3_64_intdigest(text.encode()) for text in self._held.problems}
        if len(self._written_problems) > _WRITTEN:  # bounds memory; a problem may be written twice
            self._written_problems.clear()


def problem_text(problem: Problem) -> str:
    """``problem.text``, computed once for equal problems (hashing one is ten times faster than making its text)."""
    text: str | None = problem.__dict__.get("text")  # a cached property in most classes of problems
    return text or _text_of_equals(problem)


@lru_cache(maxsize=8_192)
def _text_of_equals(problem: Problem) -> str:
    return problem.text


def storable(outcome: Outcome) -> Outcome:
    """The outcome, or a reject where a number in it needs more than 64 bits (in torn or damaged lines)."""
    if outcome.unit == "reject" or all(map(_fits, outcome.records)):
        return outcome
    return Outcome("reject", (Reject("a number beyond 64 bits"),), outcome.lines, outcome.at)


def _fits(noun: Record | Problem | Member) -> bool:
    """Whether all numbers of a noun and of the problem or members in it need no more than 64 bits."""
    mine = vars(noun)
    numbers = [value for value in mine.values() if isinstance(value, int)]
    if numbers and not -LIMIT < min(numbers) <= max(numbers) < LIMIT:
        return False
    problem = mine.get("problem")
    return (problem is None or _fits(problem)) and all(map(_fits, mine.get("members", ())))


@lru_cache(maxsize=4096)
def clock_second(text: bytes) -> int:
    """Seconds since 1970 of ``YYYY-MM-DD hh:mm:ss`` (local time, kept without a zone); NULL for any other text."""
    try:
        moment = datetime.datetime.fromisoformat(text.decode())  # strptime takes 20 times as long
    except ValueError:  # no clock, or a damaged one
        return NULL
    return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp())
