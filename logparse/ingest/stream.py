"""Read the records in the distinct lines of a log, and store them with the number of times that each line occurred."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from logparse.ingest.lines import LONGEST_BYTES, LineReader, Read
from logparse.ingest.process_of_file import Process
from logparse.libraries.kinds.format import UNITS, FileFormat, Format, LineFormat, Outcome, Unit
from logparse.model import Call, Record, Reject
from logparse.store.collector import Collector, clock_second
from logparse.store.parts import Attempt
from logparse.store.pending import NULL
from logparse.store.storable import describe, fault, storable

_THREAD_PREFIX = "[cublasLt]"  # the third bracket of such a line is a thread, not a process
_REMEMBERED = 8192  # maximum number of outcomes that are kept
_LONG = 16_384  # minimum bytes of a line whose outcome is not cached
# This cache belongs to the process and not to a file, because a job's ranks write the same lines.
_outcomes: dict[tuple[str, str], Outcome] = {}


class StreamRead:
    """Reads a log block by block, and collects its records. ``finish`` writes the records to the store."""

    def __init__(
        self,
        attempt: Attempt,
        formats: Sequence[Format],
        threads: int = 1,
        reader: LineReader | None = None,
        *,
        head: bytes = b"",
    ) -> None:
        self.attempt = attempt
        self.tally = Tally()
        self.reader = reader or LineReader([f for f in formats if not isinstance(f, FileFormat)], threads, head=head)
        self.bytes = 0
        self._collector = Collector(attempt)
        self._device: dict[str, str] = {}  # what the log has told of its GPU, by the names of ``DESCRIBE``

    def feed(self, block: bytes, offset: int) -> None:
        """Read a block of whole lines, which is at position ``offset`` of the log."""
        self.reader.feed(block, offset)
        self.bytes += len(block)
        if self.reader.full:
            self._absorb(self.reader.take(all=False))

    def reject_long(self, first: bytes, offset: int, length: int) -> None:
        """Note that a line was not read because it is too long.

        ``first`` holds the first bytes of the line, and ``length`` is its size in bytes.
        """
        self.bytes += length
        why = f"the line has {length:,} bytes, but lines of more than {LONGEST_BYTES:,} bytes are not read"
        self.reject(Reject(why, length=length), offset, first)

    def reject(self, reject: Reject, offset: int, raw: bytes = b"") -> None:
        """Note that a part of the file could not be read. It is counted as one rejected line."""
        self.tally.add(Outcome("reject", (reject,)))
        self._collector.add((reject,), offset=offset, raw=raw)

    def read_file(self, file: int, start: int, end: int) -> Iterator[int]:
        """Read the lines in bytes ``start`` to ``end`` of a file descriptor.

        Every now and then it yields how many bytes were read since the last time. Raises OSError if the file cannot be
        read.
        """
        for count in self.reader.read_file(file, start, end):
            self.bytes += count
            if self.reader.full:
                self._absorb(self.reader.take(all=False))
            yield count

    def finish(self, end_of_stream: bool = True) -> None:
        """Write the records that are still in memory to the store.

        If the log ends here, incomplete records of several lines are stored, too.
        """
        self._absorb(self.reader.take())
        if end_of_stream:
            last = [Reject(why) if (why := fault(x, self._device)) else x for x in self.reader.close()]
            self.tally.saw(last)
            self._collector.add(last)
        self._collector.flush()
        self.tally.count_problems(self._collector)

    def _absorb(self, read: Read) -> None:
        tally, collector = self.tally, self._collector
        tally.lines += read.lines
        tally.splits += read.splits
        tally.units["foreign"] += read.foreign
        tally.units["blank"] += read.blank
        for claimed in read.claimed:
            describe(self._device, claimed.outcome.records)
            outcome = storable(claimed.outcome, self._device)
            tally.add(outcome, claimed.format, outcome.lines)
            collector.add(outcome.records, offset=claimed.offset, raw=claimed.raw)
            collector.add_tables(dict(outcome.tables))
        self._absorb_distinct(read)

    def _absorb_distinct(self, read: Read) -> None:
        seconds = np.array([clock_second(clock) for clock, _ in read.places], np.int64)
        pids = np.array([int(bracket or NULL) for _, bracket in read.places], np.int64)
        nobody, seen = np.full_like(pids, NULL), np.zeros(len(pids), np.bool_)
        for entry in read.distinct:
            times = entry.count
            outcome = self._outcome(entry.format, entry.text, times)
            if entry.counted:
                outcome = replace(outcome, records=[_of_the_job(record) for record in outcome.records])
            self.tally.add(outcome, entry.format.name, entry.lines, times=times)
            threads = entry.text.startswith(_THREAD_PREFIX)
            if not threads:
                seen[entry.numbers] = True
            of = (nobody if threads else pids)[entry.numbers]
            named = entry.format.process(entry.text) if entry.format.process is not None else None
            of = of if named is None else np.full_like(of, named)
            at = seconds[entry.numbers]
            self._collector.add(
                outcome.records, entry.counts, of, at, offset=entry.offset, raw=entry.raw, text=entry.text
            )
        self.tally.saw_processes(set(pids[seen].tolist()))

    def _outcome(self, format: LineFormat, text: str, times: int) -> Outcome:
        """Return the records in a line, as read by the line's format.

        ``times`` is how often the line occurs.
        """
        outcome = _outcomes.get((format.name, text))
        if outcome is None:
            outcome = storable(format.read(text))
            # The result is kept in memory, because the line may occur again later or in another file. A line that
            # occurred several times is always kept, and any other line only while there is room.
            if len(text) < _LONG and (times > 1 or len(_outcomes) < _REMEMBERED):
                if len(_outcomes) >= _REMEMBERED:
                    _outcomes.clear()
                _outcomes[format.name, text] = outcome
        return outcome


def _of_the_job(record: Record) -> Record:
    """Mark a call as made by the user's job, although its log line looks like a command that a person typed.

    Other kinds of results are returned unchanged.
    """
    # This is right for a table of counts (``uniq -c``), because all its lines come from the job's log.
    return replace(record, by_tool=False) if isinstance(record, Call) and record.by_tool else record


class Tally:
    """The counts of one input file: its lines, its calls, and its different matrix products and convolutions.

    The memory for the counts is limited.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.splits = 0
        self.units: dict[Unit, int] = dict.fromkeys(UNITS, 0)
        self.calls = 0
        self.problems = 0  # distinct problems; above 200,000 some may count twice
        self.bench_output = False
        self._pids: set[int] = set()
        self._formats: set[str] = set()

    def add(self, outcome: Outcome, format: str = "", units: int | None = None, *, times: int = 1) -> None:
        """Add one log line, or several that belong together, to the statistics of this log.

        ``times`` is how often the line occurs. ``units`` is the number to add to its category if its lines are already
        in the total.
        """
        self.units[outcome.unit] += outcome.lines if units is None else units
        # If ``units`` is given, the caller has already added the lines to the total.
        self.lines += outcome.lines if units is None else 0
        if format:
            self._formats.add(format)
        # The number of calls is multiplied by ``times``.
        self.saw(outcome.records, times)

    def saw(self, records: Iterable[Record], times: int = 1) -> None:
        """Add the calls and the processes that a log line mentions to the statistics of this log.

        ``times`` is how often the line occurs. The number of lines is counted elsewhere.
        """
        for record in records:
            if isinstance(record, Call):
                self.calls += (record.count or 0) * times
                if record.pid is not None:
                    self.saw_processes({record.pid})
            self.bench_output |= getattr(record, "origin", None) == "bench"

    def saw_processes(self, pids: set[int]) -> None:
        """Remember the process numbers in the prefixes of log lines, to find out whether all lines have the same one.

        At most two numbers are kept, because more are not needed for that.
        """
        if len(self._pids) < 2:
            self._pids |= set(sorted(pids - {NULL})[:2])

    def count_problems(self, collector: Collector) -> None:
        self.problems = collector.problems(measured=self.units["measurement"] > 0, bench_output=self.bench_output)

    @property
    def formats(self) -> str:
        return "+".join(sorted(self._formats))

    def process(self) -> Process | None:
        """Return the process that wrote the log, from the prefixes of its lines. None if no line states a process.

        If the lines state several processes, the result is a value for an unknown process.
        """
        return Process(next(iter(self._pids)) if len(self._pids) == 1 else None, "prefix") if self._pids else None
