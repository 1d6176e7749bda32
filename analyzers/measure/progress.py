"""The display of a replay while it runs: on a terminal the best findings so far, elsewhere a line per outcome."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from analyzers.measure.replay import Busy, Now, Step
from analyzers.measure.results import Result
from logparse.model import Solution
from logparse.text import printable

ROWS = 10


@dataclass(frozen=True)
class Finding:
    """A problem whose pick lost its race.  ``verdict`` is empty until the confirmation has run."""

    label: str
    pick_us: float
    best_us: float
    calls: int | None
    solution: str
    verdict: str = ""
    refuted: bool = False

    @property
    def saving_us(self) -> float:
        """Per run of the workload; a problem without counted calls counts once."""
        return (self.pick_us - self.best_us) * (self.calls or 1)


def _line(step: Step) -> str:
    """One outcome: what the library's pick takes, what the best known takes, how long is left."""
    left = "" if step.eta_s is None else f", {step.eta_s:,.0f} s left"
    head = f"[{step.done}/{step.total}{left}] {step.outcome.problem.label}"
    if isinstance(step.outcome, Result):
        pick, best = step.outcome.pick_us, step.outcome.best_us
        times = "no time" if pick is None or best is None else f"pick {pick:,.2f} µs, best {best:,.2f} µs"
        tried, offered = len(step.outcome.rows), step.outcome.offered
        of = f" of {offered}" if offered > tried else ""
        return f"{head}: {times}, {tried}{of} solutions ({step.outcome.ended})"
    if step.confirmation is None:
        return f"{head}: not confirmed, no pairs"
    speedup, word = step.confirmation.speedup, "confirmed" if step.confirmation.confirmed else "not confirmed"
    return f"{head}: {word}, ×{speedup.value:.3f} [{speedup.low:.3f}, {speedup.high:.3f}]"


class Lines:
    """A line per outcome."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo

    def take(self, step: Step) -> None:
        """After each outcome that is news."""
        if not (isinstance(step.outcome, Result) and step.outcome.known):
            self._echo(_line(step))

    def watch(self, now: Now) -> None:
        """Prints nothing: running problems have no line."""


class FindingsTable:
    """The findings so far, the largest saving first, and what each device runs; rich redraws it while it changes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now: Now = tuple
        self._findings: dict[str, Finding] = {}
        self._step: Step | None = None
        self._at = clock()

    def take(self, step: Step) -> None:
        """After each outcome."""
        self._step, self._at = step, self._clock()
        text, outcome = step.outcome.problem.text, step.outcome
        if isinstance(outcome, Result):
            if outcome.worth_confirming and outcome.pick_us and outcome.best_us and outcome.best:
                self._findings[text] = Finding(
                    outcome.problem.label, outcome.pick_us, outcome.best_us, step.calls, outcome.best.text
                )
            return
        held, confirmation = self._findings.get(text), step.confirmation
        if held is None or confirmation is None:
            return
        word = "confirmed" if confirmation.confirmed else "not confirmed"
        ratio = confirmation.speedup
        verdict = f"{word} ×{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        self._findings[text] = replace(held, verdict=verdict, refuted=not confirmation.confirmed)

    def watch(self, now: Now) -> None:
        """``now`` returns what each device is running."""
        self._now = now

    @property
    def findings(self) -> list[Finding]:
        """The largest saving first; what was not confirmed last."""
        return sorted(self._findings.values(), key=lambda x: (x.refuted, -x.saving_us, x.label))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        findings = self.findings
        if findings:
            yield self._table(findings[:ROWS])
            if len(findings) > ROWS:
                yield Text(f"and {len(findings) - ROWS} more")
        yield Text(self._progress(), no_wrap=True, overflow="ellipsis")
        for busy in self._now():
            yield Text(f"  {_busy_line(busy)}", no_wrap=True, overflow="ellipsis")

    def _table(self, findings: Sequence[Finding]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name, right in (("pick µs", True), ("best µs", True), ("calls", True)):
            table.add_column(name, justify="right" if right else "left", no_wrap=True)
        for name in ("problem", "solution", "verdict"):
            table.add_column(name, no_wrap=name != "verdict", overflow="ellipsis")
        for x in findings:
            calls = "" if x.calls is None else f"{x.calls:,}"
            cells = (f"{x.pick_us:,.2f}", f"{x.best_us:,.2f}", calls, x.label, x.solution, x.verdict or "raced")
            table.add_row(*(Text(printable(cell)) for cell in cells), style="dim" if x.refuted else "")
        return table

    def _progress(self) -> str:
        step = self._step
        if step is None:
            return "opening the backends"
        confirmed = sum(x.verdict != "" and not x.refuted for x in self._findings.values())
        eta = "" if step.eta_s is None else f", {max(0.0, step.eta_s - (self._clock() - self._at)):,.0f} s left"
        return f"{step.done} of {step.total} problems{eta}; {len(self._findings)} flagged, {confirmed} confirmed"


def _busy_line(busy: Busy) -> str:
    what = busy.what.text if isinstance(busy.what, Solution) else busy.what
    return printable(f"{busy.device}: {busy.problem.label}: {what}" if busy.problem else f"{busy.device}: {what}")


@contextlib.contextmanager
def display(echo: Callable[[str], None]) -> Iterator[Lines | FindingsTable]:
    """A ``FindingsTable`` where standard output is a terminal, where its last state stays; else ``Lines``.

    Whatever ends it, also Ctrl-C, the cursor is shown again and the next line begins at the left.
    """
    console = Console(highlight=False, markup=False)
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        yield Lines(echo)
        return
    table = FindingsTable()
    with Live(table, console=console, refresh_per_second=4, redirect_stdout=False, redirect_stderr=True):
        yield table
