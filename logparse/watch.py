"""``logparse status --watch``: progress of a store's ingests and replays, from any machine that can read the store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from logparse.errors import StoreError
from logparse.location import explained
from logparse.store import Store
from logparse.store.announcements import REPLAY, Count, Rows, running
from logparse.text import printable

QUIET_S = 600.0
"""Seconds without a commit after which a run may have been killed (a large file or a slow problem takes long too)."""


class Watch:
    """The running ingests and replays of a store.  Each look reads only the row files that are new since the last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, tuple[Rows, Count]] = {}

    def look(self) -> tuple[list[Count], list[Count]]:
        """The counts of what runs, oldest first, and of what ended since the last look.  Raises StoreError."""
        with explained(self._store.url, StoreError):
            now = running(self._store)
            for name, entry in now.items():
                self._held.setdefault(name, (Rows(self._store, entry.started), Count(entry)))
            for name, (rows, count) in self._held.items():
                count.entry = now.get(name, count.entry)
                with contextlib.suppress(FileNotFoundError):  # `forget` removed one; the next look reads on
                    count.take(rows.new())
        ended = [self._held.pop(name)[1] for name in list(self._held) if name not in now]
        return [self._held[name][1] for name in now], ended


def watch(store: Store, echo: Callable[[str], None], interval_s: float = 2.0) -> None:
    """Print a line for each change (commits, a run that stopped committing, a run that ended) until nothing runs, or
    until Ctrl-C.  Raises StoreError.
    """
    looking, printed = Watch(store), dict[int, tuple[object, ...]]()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            counts, ended = looking.look()
            now = time.time()
            for count in counts:
                state = (count.files, count.lines, count.problems, _quiet(count, now))
                if printed.get(id(count)) != state:
                    printed[id(count)] = state
                    echo(line(count, now))
            for count in ended:
                printed.pop(id(count), None)
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
        cells.append(f"no commit for {_duration(now - count.last)}: stopped? (pid {entry.pid} on {entry.host})")
    else:
        spent = max(now - entry.started, 1e-3)
        problems, megabytes = count.problems / spent * 60, count.bytes / spent / 1e6
        rate = f"{problems:,.1f} problems/min" if entry.kind == REPLAY else f"{megabytes:,.1f} MB/s"
        cells += [rate] if count.problems or count.bytes else []
        cells += [] if left is None else [f"{_duration(left)} left"]
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


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:,.1f} h"
