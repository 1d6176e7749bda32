"""Collect the records of an input file, and write them as table rows in Parquet files.

Equal records are counted instead of stored twice. Files are written early enough that memory stays bounded.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from logparse.model import Call, Collective, Fact, Measurement, Message, Problem, Record, Reject, SolutionName
from logparse.store.parts import Attempt
from logparse.store.pending import NULL, CallKey, Ints, Pending, problem_rows

_ROWS = 20_000
_CELLS = 500_000  # more than _ROWS, because counts of calls are only numbers
_PROBLEMS = 8_192
_EXCERPT = 300
_WRITTEN = 200_000
_ORDINALS = 200_000
_ONCE, _UNKNOWN = np.array([1]), np.array([NULL])


class _Source(NamedTuple):
    """A place in an input file that states calls of GEMMs or of convolutions (``conv``).

    * ``category``: the category of log lines. Results of measurements have none.
    * ``by_tool``: True for commands that a benchmark tool printed.
    """

    # A file may state the same call in several places, so only one place is counted.
    conv: bool
    category: str | None = None
    by_tool: bool = False


class Collector:
    """Collects the records of one input file and writes them as Parquet files."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._pending = Pending(attempt.name)
        self._distinct: dict[_Source | None, set[int]] = {}  # None: problems that only kernels name
        self._calls_of: Counter[_Source] = Counter()
        self._distinct_before: Counter[_Source | None] = Counter()
        self._facts: set[tuple[str, str]] = set()
        self._ordinals: dict[tuple[str, str], int] = {}
        self._next_ordinal = 0

    def problems(self, *, measured: bool, bench_output: bool) -> int:
        """Return how many different matrix products and convolutions ``logparse top`` will list for this input file.

        A log may contain the same call in several places: in several categories of log lines, in the command of a tool,
        and in the result below the command. So that no call is counted twice, only one of these places is used for
        GEMMs and one for convolutions:

        * It is the category with the most calls.
        * Commands of a tool are used only if the file has no results of measurements (lines ``measured``).
        * In the output of hipblaslt-bench (``bench_output``) bench lines are commands, too.
        * If there is no such category, measurements are used.

        If there are more than 200,000, some may be counted twice.
        """
        total = 0
        for conv in (False, True):
            sources = [x for x in self._distinct if x is not None and x.conv == conv]
            typed = {x: x.by_tool or (x.category == "bench" and bench_output) for x in sources}
            called = [x for x in sources if x.category is not None and not (typed[x] and measured)]
            called.sort(key=lambda x: (typed[x], -self._calls_of[x], x.category))
            for source in [*called, *(x for x in sources if x.category is None)][:1]:
                total += self._distinct_before[source] + len(self._distinct[source])
        return total

    def add(
        self,
        records: Iterable[Record],
        counts: Ints = _ONCE,
        pids: Ints = _UNKNOWN,
        seconds: Ints = _UNKNOWN,
        *,
        offset: int = 0,
        raw: bytes = b"",
        text: str | None = None,
    ) -> None:
        """Collect the records of a line, or of another piece of the input file, to store them later.

        * ``counts[i]`` is how often process ``pids[i]`` wrote the piece in second ``seconds[i]``.
        * ``offset`` is the byte at which the piece was first found.
        * ``raw`` is the piece itself.
        * ``text`` replaces ``raw`` for lines that could not be read. All such lines with the same text are shown as
          one.
        """
        rows = self._pending.rows
        for record in records:
            if isinstance(record, Call):
                self._call(record, counts, pids, seconds)
            elif isinstance(record, Message):
                self._message(record, counts, pids, offset)
            elif isinstance(record, Measurement):
                self._measurement(record)
            elif isinstance(record, Fact):
                self._fact(record)
            elif isinstance(record, Reject):
                line = raw if text is None else text.encode()
                rows["rejects"].append(_reject_row(record, int(counts.sum()), offset, raw, line))
            elif isinstance(record, SolutionName):
                named = {"library": record.solution.library, "solution": record.solution.text}
                rows["solutions"].append(named | {"name": record.name, "kernel_name": record.kernel_name})
            elif isinstance(record, Collective):
                rows["collectives"].append(vars(record))
            else:
                problem = self._problem(record.problem, None) if record.problem else None
                operator = record.operator.text if record.operator else None
                rows["kernels"].append(vars(record) | {"problem": problem, "operator": operator})
        if self._pending.row_count >= _ROWS or self._pending.cell_count >= _CELLS:
            self.flush()

    def add_tables(self, tables: dict[str, pa.Table]) -> None:
        for name, ready in tables.items():
            if name == "convs":  # the table has one row per problem of the file
                source = _Source(conv=True)
                self._distinct.setdefault(source, set())
                self._distinct_before[source] += ready.num_rows
            self._attempt.add(name, ready)

    def flush(self) -> None:
        """Write all records that were collected so far to Parquet files."""
        pending, self._pending = self._pending, Pending(self._attempt.name)
        self._attempt.write(pending)

    def _call(self, call: Call, counts: Ints, pids: Ints, seconds: Ints) -> None:
        source = _Source(call.problem.kind == "conv", call.category, call.by_tool)
        key = CallKey(
            call.problem.kind,
            self._problem(call.problem, source),
            call.solution.text if call.solution else None,
            call.workspace_bytes,
            call.by_tool,
            call.device,
            call.category,
        )
        if call.pid is not None and pids is _UNKNOWN:
            pids = np.array([call.pid])
        if call.count is None:  # the format does not count
            counts = np.full_like(counts, NULL)
        elif call.count != 1:
            counts = counts * call.count
        self._calls_of[source] += 0 if call.count is None else int(counts.sum())
        calls = self._pending.calls
        self._pending.cells.append((calls.setdefault(key, len(calls)), counts, pids, seconds))
        self._pending.cell_count += len(counts)

    def _message(self, message: Message, counts: Ints, pids: Ints, offset: int) -> None:
        for pid in sorted(set(pids.tolist())):
            key = (message.category, None if pid == NULL else pid, message.function, message.text)
            entry = self._pending.messages.setdefault(key, [0, offset])
            entry[0] += message.count * int(counts[pids == pid].sum())
            entry[1] = min(entry[1], offset)

    def _measurement(self, item: Measurement) -> None:
        kind, solution = item.problem.kind, item.solution
        text = self._problem(item.problem, _Source(kind == "conv"))
        key = (text, solution.text)
        ordinal = self._ordinals.get(key, self._next_ordinal)
        self._ordinals[key] = ordinal + 1
        if len(self._ordinals) > _ORDINALS:  # bounds memory; later ordinals begin above all earlier ones
            self._next_ordinal = max(self._ordinals.values())
            self._ordinals.clear()
        row = vars(item) | {"kind": kind, "problem": text, "ordinal": ordinal}
        row |= {"library": solution.library, "solution": solution.text, "algorithm": solution.algorithm}
        row |= {"raw": solution.raw or None, "samples_us": list(item.samples_us) or None}
        self._pending.rows["measurements"].append(row)

    def _fact(self, fact: Fact) -> None:
        key = (fact.name, fact.value)
        if key not in self._facts:
            self._facts.add(key)
            self._pending.rows["facts"].append({"name": fact.name, "value": fact.value})
        if len(self._facts) > _WRITTEN:  # bounds memory; a fact may be written twice
            self._facts.clear()

    def _problem(self, problem: Problem, source: _Source | None) -> str:
        text = problem_text(problem)
        distinct = self._distinct.setdefault(source, set())
        if (digest := hash(text)) not in distinct:
            if len(distinct) >= _WRITTEN:  # bounds memory; a problem may be written twice
                self._distinct_before[source] += len(distinct)
                distinct.clear()
            distinct.add(digest)
            self._pending.problems[text] = problem
            if len(self._pending.problems) >= _PROBLEMS:
                for part in problem_rows([self._pending]):
                    self._attempt.add(part.table, part.columns)
                self._pending.problems.clear()
        return text


def _reject_row(reject: Reject, count: int, offset: int, raw: bytes, line: bytes) -> dict[str, Any]:
    return {
        "offset": offset + reject.offset,
        "length": reject.length or len(raw),
        "count": count,
        "reason": reject.reason,
        "text": raw[reject.offset :][:_EXCERPT].decode("utf-8", "backslashreplace"),
        "line": xxhash.xxh3_64_intdigest(line or str(offset).encode(), seed=reject.offset) - (1 << 63),
    }


def problem_text(problem: Problem) -> str:
    """Return the text of a GEMM or convolution, from a cache if an equal one was asked for before.

    Comparing hashes in the cache is ten times faster than making the text again.
    """
    text: str | None = problem.__dict__.get("text")  # a cached property in most classes of problems
    return text or _text_of_equals(problem)


_text_of_equals = lru_cache(maxsize=8_192)(lambda problem: str(problem.text))


@lru_cache(maxsize=4096)
def clock_second(text: bytes) -> int:
    """Return the seconds since 1970 of a time such as ``2024-05-31 12:00:00``.

    The time is local and is treated as if it were UTC. Returns ``NULL``, a number that means unknown, for any other
    text.
    """
    try:
        moment = datetime.datetime.fromisoformat(text.decode())  # strptime takes 20 times as long
    except ValueError:  # the text is no clock, or a damaged one
        return NULL
    return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp())
