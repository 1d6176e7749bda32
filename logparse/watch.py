"""``logparse status --watch``: progress of a store's ingests and replays, from any machine that can read the store."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from logparse.errors import StoreError
from logparse.location import explained
from logparse.store import Store
from logparse.store.announcements import Running, running
from logparse.store.schema import Commit
from logparse.text import duration, printable

REPLAY = "replay"
"""The format of a replay's commits and the kind of its announcement; all other commits are an ingest's."""
QUIET_S = 600.0
"""Seconds without a commit after which a run may have been killed (a large file or a slow problem takes long too)."""


@dataclass(frozen=True)
class Count:
    """What an announced ingest or replay has committed; ``last``: the time of its last commit, else of its start."""

    entry: Running
    last: float
    files: int = 0
    bytes: int = 0
    lines: int = 0
    problems: int = 0

    @property
    def share(self) -> float | None:
        """The share of the work that is done, 0 to 1; None where its amount is unknown."""
        for done, total in ((self.problems, self.entry.problems), (self.bytes, self.entry.bytes)):
            if total:
                return min(1.0, done / total)
        return None

    def left_s(self, now: float) -> float | None:
        """Seconds left at the mean rate so far; None before the first commit."""
        share, spent = self.share, now - self.entry.started
        return None if not share or spent <= 0 else spent / share * (1 - share)


def counted(entry: Running, commits: Sequence[Commit]) -> Count:
    """The part of the commits that is of this run: those of its kind since its start (a file that grew stays with its
    first run).
    """
    replays = entry.kind == REPLAY
    mine = [
        row
        for row in commits
        if row.committed_at >= entry.started and (row.format == REPLAY) == replays
        if row.run == entry.run or (row.path != "-" and bool(row.start or row.replaces))
    ]
    last = max([entry.started, *(row.committed_at for row in mine)])
    if replays:  # of a problem, its race and its winner's confirmation are committed
        return Count(entry, last, problems=len({row.path.rpartition("/")[2] for row in mine}))
    files, read = {row.source_id for row in mine}, sum(row.end - row.start for row in mine)
    return Count(entry, last, len(files), read, sum(row.lines for row in mine))


class Watch:
    """The running ingests and replays of a store, from its announcements and commits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, Running] = {}

    def look(self) -> tuple[list[Count], list[Count]]:
        """The counts of what runs, oldest first, and of what ended since the last look.  Raises StoreError."""
        with explained(self._store.url, StoreError):
            now = running(self._store)
            known = self._held | now
            since = min((entry.started for entry in known.values()), default=math.inf)
            commits = self._store.commits(since) if known else []
        ended = [counted(entry, commits) for name, entry in self._held.items() if name not in now]
        self._held = now
        return [counted(entry, commits) for entry in now.values()], ended


def watch(store: Store, echo: Callable[[str], None], interval_s: float = 2.0) -> None:
    """Print a line for each change (commits, a run that stopped committing, a run that ended) until nothing runs, or
    until Ctrl-C.  Raises StoreError.
    """
    looking, printed = Watch(store), set[tuple[Count, bool]]()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            counts, ended = looking.look()
            now = time.time()
            states = {(count, _quiet(count, now)) for count in counts}
            for count in counts:
                if (count, _quiet(count, now)) not in printed:
                    echo(line(count, now))
            printed = states
            for count in ended:
                echo(ended_line(count))
            if not counts:
                echo("nothing runs")
                break
            time.sleep(interval_s)


def line(count: Count, now: float) -> str:
    """One run as a line: ``ingest job-7: 120 of 200 files, 1.2 of 3.4 GB, 5,300,000 lines, 210 MB/s, 12 s left``.

    ``now`` is in seconds since 1970.
    """
    entry, left = count.entry, count.left_s(now)
    cells = [*_done(count)]
    if _quiet(count, now):
        cells.append(f"no commit for {duration((now - count.last) * 1e6)}: stopped? (pid {entry.pid} on {entry.host})")
    else:
        spent = max(now - entry.started, 1e-3)
        problems, megabytes = count.problems / spent * 60, count.bytes / spent / 1e6
        rate = f"{problems:,.1f} problems/min" if entry.kind == REPLAY else f"{megabytes:,.1f} MB/s"
        cells += [rate] if count.problems or count.bytes else []
        cells += [] if left is None else [f"{duration(left * 1e6)} left"]
    return printable(f"{entry.kind} {entry.run}: {', '.join(cells)}")


def ended_line(count: Count) -> str:
    """The last numbers of a run that ended (the store does not record why it ended)."""
    return printable(f"{count.entry.kind} {count.entry.run}: ended: {', '.join(_done(count))}")


def _done(count: Count) -> Iterator[str]:
    entry = count.entry
    if entry.kind == REPLAY:
        yield f"{_of(count.problems, entry.problems)} problems"
    else:
        yield f"{_of(count.files, entry.files)} files, {_sizes(count.bytes, entry.bytes)}, {count.lines:,} lines"


def _quiet(count: Count, now: float) -> bool:
    return now - count.last > QUIET_S


def _of(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def _sizes(done: int, total: int | None) -> str:
    unit, name = next((x for x in ((1e9, "GB"), (1e6, "MB")) if (total or done) >= x[0]), (1e3, "kB"))
    return f"{done / unit:,.1f} {name}" if total is None else f"{done / unit:,.1f} of {total / unit:,.1f} {name}"
