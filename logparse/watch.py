"""``logparse status --watch``: progress of a store's ingests and replays, from any machine that can read the store."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from logparse.errors import StoreError
from logparse.location import explained
from logparse.model import problem_from_text
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
                    count.take(rows.new(), self._store)
        ended = [self._held.pop(name)[1] for name in list(self._held) if name not in now]
        return [self._held[name][1] for name in now], ended


def watch(store: Store, echo: Callable[[str], None], interval_s: float = 2.0) -> None:
    """Show what runs until nothing does, or until Ctrl-C.  Raises StoreError.

    A terminal shows a table that changes; any other output gets a line for each change.
    """
    looking = Watch(store)
    with contextlib.suppress(KeyboardInterrupt), _shown(echo) as show:
        while True:
            counts, ended = looking.look()
            show(counts, ended, time.time())
            if not counts:
                break
            time.sleep(interval_s)


Show = Callable[[Sequence[Count], Sequence[Count], float], None]


@contextlib.contextmanager
def _shown(echo: Callable[[str], None]) -> Iterator[Show]:
    console = Console(highlight=False, markup=False)
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        yield Lines(echo).show
        return
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=True) as live:

        def show(counts: Sequence[Count], ended: Sequence[Count], now: float) -> None:
            for count in ended:
                console.print(Text(ended_line(count)))
            live.update(table(counts, now) if counts else Text("nothing runs"), refresh=True)

        yield show


class Lines:
    """Prints a line per change: new commits, a run that stopped committing, a run that ended."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._said: dict[int, tuple[object, ...]] = {}

    def show(self, counts: Sequence[Count], ended: Sequence[Count], now: float) -> None:
        """Print what changed since the last look; called after each look."""
        for count in counts:
            state = (count.files, count.lines, count.problems, count.confirmed, _quiet(count, now))
            if self._said.get(id(count)) != state:
                self._said[id(count)] = state
                self._echo(line(count, now))
        for count in ended:
            self._said.pop(id(count), None)
            self._echo(ended_line(count))
        if not counts:
            self._echo("nothing runs")


def line(count: Count, now: float) -> str:
    """One run as a line: ``ingest job-7: 120 of 200 files, 1.2 of 3.4 GB, 5,300,000 lines, 210 MB/s, 12 s left``."""
    cells = [cell for name, cell in row(count, now).items() if cell and name not in ("kind", "run")]
    return printable(f"{count.entry.kind} {count.entry.run}: {', '.join(cells)}")


def ended_line(count: Count) -> str:
    """The last numbers of a run that ended (the store does not record why it ended)."""
    cells = [cell for name, cell in row(count, count.last).items() if cell and name in ("done", "found")]
    return printable(f"{count.entry.kind} {count.entry.run}: ended: {', '.join(cells)}")


def table(counts: Sequence[Count], now: float) -> Table:
    """All runs, for a terminal."""
    rows = [row(count, now) for count in counts]
    names = [name for name in rows[0] if any(cells[name] for cells in rows)]
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        out.add_column(name, overflow="fold")
    for cells in rows:
        out.add_row(*(Text(printable(cells[name])) for name in names))
    return out


def row(count: Count, now: float) -> Mapping[str, str]:
    """The cells of a run's row or line; ``now`` is in seconds since 1970."""
    entry, spent, left = count.entry, max(now - count.entry.started, 1e-3), count.left_s(now)
    quiet = _quiet(count, now)
    if entry.kind == REPLAY:
        done = f"{_of(count.problems, entry.problems)} problems"
        rate = f"{count.problems / spent * 60:,.1f} problems/min" if count.problems else ""
    else:
        sizes = _sizes(count.bytes, entry.bytes)
        done = f"{_of(count.files, entry.files)} files, {sizes}, {count.lines:,} lines"
        rate = f"{count.bytes / spent / 1e6:,.1f} MB/s" if count.bytes else ""
    return {
        "kind": entry.kind,
        "run": entry.run,
        "done": done,
        "found": _found(count),
        "rate": "" if quiet else rate,
        "left": "" if quiet or left is None else f"{_duration(left)} left",
        "remark": f"no commit for {_duration(now - count.last)}: stopped? (pid {entry.pid} on {entry.host})"
        if quiet
        else "",
    }


def _quiet(count: Count, now: float) -> bool:
    return now - count.last > QUIET_S


def _found(count: Count) -> str:
    best = count.best
    if best is None:
        return f"{count.confirmed:,} confirmed" if count.entry.kind == REPLAY else ""
    try:
        problem = problem_from_text(best.problem).label
    except (ValueError, IndexError, TypeError, KeyError):
        problem = best.problem
    return f"{count.confirmed:,} confirmed, best ×{best.speedup:.2f}: {best.winner} for {problem}"


def _of(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def _sizes(done: int, total: int | None) -> str:
    unit, name = next((x for x in ((1e9, "GB"), (1e6, "MB")) if (total or done) >= x[0]), (1e3, "kB"))
    return f"{done / unit:,.1f} {name}" if total is None else f"{done / unit:,.1f} of {total / unit:,.1f} {name}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:,.1f} h"
