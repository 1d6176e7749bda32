"""Try changes (actions) in the user's own program, by switching them on and off while it runs.

Each start runs the job and switches some changes on and off between its steps
(``logparse/capture/in_job/logparse_in_job/trial.py``) until their effect is known. Then the job is ended, because it
was started only for the trial. A start tries the first row of this table that contains a change:

=====================================  ============================================================================
changes                                because
=====================================  ============================================================================
not tried in any start                 An earlier start ended before them, or another change broke it.
faster in only one process             A process has a bias of its own.
all measured changes together          The savings of two changes never just add up.
undecided                              The job does few steps. Pairs of several starts are one sample. Changes that
                                       seem faster come first. No such start begins once the patience is over.
=====================================  ============================================================================

A start of a short job has steps for one change alone. Then the changes that should gain most are tried together first,
and a change that was faster once is confirmed before others are tried. So the first answer needs two starts. The other
changes are tried as long as the patience lasts.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analyzers.actions import ACTIONS
from analyzers.evidence.trials import Tried, combine_starts
from analyzers.evidence.units import word_of_sort
from analyzers.tune.starts import Starts
from logparse.capture import job
from logparse.capture.in_job.logparse_in_job.pairs import FLOOR, NO_TIME, SHORTEST_JOB
from logparse.capture.in_job.logparse_in_job.switches import AT_START, NAMES, TOGETHER
from logparse.capture.notes import read_observed_steps
from logparse.capture.plan import make_trial_environment
from logparse.capture.run import Say
from logparse.errors import UsageError
from logparse.libraries.own.job_trials import Record, dump, record
from logparse.output.files import write_file
from logparse.text import make_printable, one_of

MOST_STARTS = 8
_FRUITLESS = 2
"""After this many starts in a row without a new result, the job is not started again."""
_GRACE_S, _LEAVE_S, _LOOK_S = 1.0, 15.0, 0.1
"""Three times in seconds that control how a job is ended after a trial.

* ``_GRACE_S``: how long the job may take to end by itself.
* ``_LEAVE_S``: how long it may take to end after a signal.
* ``_LOOK_S``: the time between two checks.
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The user's request to try changes in a running job.

    * ``actions``: the names of the changes.
    * ``seconds``: largest number of seconds of trials in each start.
    * ``floor``: smallest gain that matters, 0.03 for 3 %.
    * ``unit``: the callable whose calls are the steps, as the user gave it with ``--unit``.
    * ``rows``: the TunableOp files that the change ``tunableop_rows`` reads.
    * ``expected``: number of steps that the job makes, if an earlier run counted them (0: unknown).
    * ``patience_s``: after this many seconds, the job is not started again for changes whose effect is still unclear.
    * ``together``: the changes that should gain most. A short job tries them together before it tries each alone.
    """

    actions: tuple[str, ...]
    unit: str = ""
    seconds: float = 60.0
    floor: float = FLOOR
    rows: tuple[str, ...] = ()
    expected: int = 0
    patience_s: float = math.inf
    together: tuple[str, ...] = ()

    @property
    def is_short(self) -> bool:
        """True if the job is known to do so few steps that each start can try only one change."""
        return 0 < self.expected < SHORTEST_JOB


@dataclass(frozen=True)
class Answer:
    """The results of trying changes in a running job.

    * ``tried``: the result of each change, the best first.
    * ``word``: the user's word for a step.
    * ``starts``: how often the job was started.
    * ``records``: the records that the job's processes wrote.
    * ``notes``: texts for the user.
    * ``code``: the exit code. It is 130 after Ctrl-C. If the job ended by itself before anything was known, it is the
      job's exit code. Otherwise it is 0.
    """

    tried: tuple[Tried, ...]
    word: str
    starts: int
    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()
    code: int = 0


def trial(actions: Sequence[str], **more: object) -> Trial:
    """Make the request for trying changes in a running job (``Trial``) from the names of the changes.

    Raises UsageError if a change cannot be switched on and off in a running process.
    """
    at_start = {x.strip("`"): why for x, why in AT_START}
    for name in actions:
        if name in at_start:
            raise UsageError(
                f"{name} cannot be tried in a running job: {at_start[name]}. `logparse tune` compares two starts "
                "of the job instead"
            )
        one_of("ACTION", name, NAMES)
    if not actions:
        raise UsageError(f"name at least one action of: {', '.join(NAMES)}")
    return Trial(actions=tuple(dict.fromkeys(actions)), **more)  # type: ignore[arg-type]


def try_in_the_job(
    command: Sequence[str], environ: Mapping[str, str], asked: Trial, starts: Starts, say: Say
) -> Answer:
    """Try changes in a running job, and return how each of them did. The job is started as often as necessary.

    Raises InputError if the user's command before a start fails (``Starts``).
    """
    records: list[Record] = []
    names, notes, made, fruitless, code = _first(asked), dict[str, None](), 0, 0, 0
    patient_until = time.monotonic() + asked.patience_s
    while made < MOST_STARTS and fruitless < _FRUITLESS:
        tried = combine_starts(names, records, asked.floor)
        wanted = _choose_changes(tried, time.monotonic() < patient_until, asked.is_short)
        if not wanted:
            break
        names += [x for x in wanted if x not in names]
        ended_early = any(not x.over for x in records)
        expected = max(x.units for x in records) if ended_early else asked.expected
        made += 1
        say(f"start {made}: {', '.join(wanted)}")
        ended = _start(command, environ, asked, wanted, expected, starts, say)
        records += ended.records
        notes.update(dict.fromkeys(ended.notes))
        fruitless = (
            0
            if any(x.pairs or x.ended in ("refused", "differs") for y in ended.records for x in y.seen)
            else fruitless + 1
        )
        code = 0 if ended.records else ended.code
        if ended.interrupted:
            code = job.INTERRUPTED
            break
        if not ended.records and ended.code:
            break
    sorts = [x.sort for x in records if x.sort]
    word = word_of_sort(sorts[0]) if sorts else "unit"
    tried = combine_starts(names, records, asked.floor)
    if all(x.outcome != "not tried" for x in tried):  # a later start has tried the others
        notes.pop(NO_TIME, None)
    return Answer(tuple(tried), word, made, tuple(records), tuple(notes), code)


def write(found: Answer, folder: Path) -> None:
    """Write what was measured while changes were tried in a running job, so that ``logparse ingest`` can read it.

    ``folder`` gets one file for each process that tried changes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(found.records):
        write_file(folder / f"try_{number}.json", dump(each), within=folder)


def _first(asked: Trial) -> list[str]:
    """Return the names of the changes to try, in this order. In a short job, a combination of changes comes first."""
    together = _compatible(asked.together)
    return [TOGETHER.join(together)] * (asked.is_short and len(together) > 1) + [*asked.actions]


def _choose_changes(tried: Sequence[Tried], patient: bool, short: bool) -> list[str]:
    """Return the names of the changes to try when the job is started next.

    For example, a change was not tried yet, or seemed to be faster once, which must be confirmed.

    * ``patient``: True while there is time to start the job again for a change whose effect is unclear.
    * ``short``: True for a job with few steps. Then changes that were not tried yet also need ``patient``, unless
      nothing was tried at all.
    """
    untried = [x.name for x in tried if x.outcome == "not tried"]
    once = [x.name for x in tried if x.outcome == "faster once"]
    if short and once:
        return once
    if untried and (patient or not short or not any(x.seen for x in tried)):
        return untried
    single = [x.name for x in tried if TOGETHER not in x.name and x.outcome in ("measured", "faster once")]
    together = _compatible(single)
    known = [set(x.name.split(TOGETHER)) for x in tried]
    if len(together) > 1 and set(together) not in known and (patient or not short):
        once.append(TOGETHER.join(together))
    return once or [x.name for x in tried if patient and x.outcome == "undecided"]


def _compatible(names: Iterable[str]) -> list[str]:
    """Return the changes that can be made together. If two exclude each other, the earlier one is kept."""
    known = {x.name: x for x in ACTIONS}
    kept: list[str] = []
    for name in names:
        here = known.get(name)
        if here is None or not any(known[x].is_alternative_to(here) for x in kept if x in known):
            kept.append(name)
    return kept


# ------------------------------------------------------------------------------------------------------- one start


def read(folder: Path) -> list[Record]:
    """Read what the processes of a job wrote about the changes that they tried, sorted by rank.

    An incomplete file is left out.
    """
    found = []
    for path in sorted(folder.glob("try_*.json")):
        with contextlib.suppress(OSError, ValueError):
            found.append(record(path.read_bytes()))
    return sorted(found, key=lambda x: x.rank)


@dataclass(frozen=True)
class _Start:
    """The result of starting the job once to try changes: its processes' records, its end, and notes for the user."""

    records: tuple[Record, ...]
    code: int
    interrupted: bool
    notes: tuple[str, ...]


def _start(
    command: Sequence[str],
    environ: Mapping[str, str],
    asked: Trial,
    actions: Sequence[str],
    expected: int,
    starts: Starts,
    say: Say,
) -> _Start:
    starts.prepare(environ)
    with tempfile.TemporaryDirectory(prefix="logparse-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        plan = {
            "actions": list(actions),
            "seconds": asked.seconds,
            "expected": expected,
            "floor": asked.floor,
            "rows": list(asked.rows),
        }
        write_file(folder / "asked.json", json.dumps(plan).encode(), within=folder)
        made = make_trial_environment(folder, asked.unit, environ, folder / "asked.json")
        with job.Together() as together, starts.stdin.given() as streams:
            try:
                child = together.start(command, made, streams)
            except OSError as error:
                code = job.NOT_FOUND if isinstance(error, FileNotFoundError) else job.CANNOT_RUN
                return _Start((), code, False, (f"{make_printable(command[0])}: {error.strerror}",))
            ended_by_us = _wait_for_end(child, together, folder, asked, say)
            interrupted = together.interrupted
        records = [x for x in read(folder) if x.rank == 0]
        noted = [make_printable(line) for line in read_observed_steps(folder).lines()]
    code = 0 if ended_by_us else child.returncode if child.returncode >= 0 else 128 - child.returncode
    how = "" if ended_by_us or interrupted else _explain_exit(child.returncode)
    records = [_with_end(x, how) for x in records]
    # A launcher without units, for example torchrun, reports our signal
    reasons = [x.why for x in records if x.why and (x.units or not ended_by_us)]
    notes = [*noted, *reasons, *([how] if how and not reasons else [])]
    if not records and not how and not interrupted:
        notes.append(
            "no process tried an action: none imported torch, or its Python did not get this command's environment "
            "(options -S, -I or -E, sudo, a container)"
        )
    elif not any(x.seen for x in records) and not any(x.why for x in records):
        notes.append("the job ended before the times of its steps became steady, because it does too few steps")
    return _Start(tuple(records), code, interrupted, tuple(notes))


def _explain_exit(returncode: int) -> str:
    if returncode < 0:
        return f"the job was ended by {signal.Signals(-returncode).name}"
    return f"the job ended with exit code {returncode}" if returncode else ""


def _with_end(found: Record, how: str) -> Record:
    """Mark a change as broken if the process was killed while the change was switched on.

    Otherwise the record is returned as it is.
    """
    if found.over or not how or not found.on:
        return found
    why = f"{how} while this action was on"
    seen = tuple(replace(x, ended="broken", why=why) if x.name == found.on else x for x in found.seen)
    return replace(found, seen=seen, why=f"{how} while {found.on} was on")


def _wait_for_end(child: subprocess.Popen[bytes], together: job.Together, folder: Path, asked: Trial, say: Say) -> bool:
    """Wait until the job ends, or until all changes were tried and the job can be ended. Show the progress meanwhile.

    Returns True if the job had to be ended by a signal.
    """
    told: set[tuple[str, int]] = set()
    while child.poll() is None:
        records = read(folder)
        for when, line in _progress(records, asked):
            if when not in told:
                told.add(when)
                say(line)
        begun = [x for x in records if x.sort]  # Launchers and helpers that import torch make no unit.
        if begun and all(x.over for x in begun):
            return _leave(child, together, folder)
        together.pause(_LOOK_S)
    return False


def _processes(folder: Path) -> Iterator[int]:
    """Yield the ids of the job's processes in which changes were tried."""
    for path in folder.glob("try_*.json"):
        number = path.stem.removeprefix("try_").partition("-")[0]
        if number.isdigit():
            yield int(number)


def _progress(records: Sequence[Record], asked: Trial) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield lines for the user about the effect that changes of a running job have so far.

    A line's key is the change and how often it was timed. The caller shows a key only once.
    """
    for first in records[:1]:
        # The change is switched on and off. The same line is yielded until it was timed again.
        for seen in first.seen:
            found = Tried(seen.name, (seen,), asked.floor)
            if (ratio := found.ratio) is not None:
                count = 1 << int(math.log2(len(seen.pairs)))  # One line per doubling of the pairs.
                if len(seen.pairs) == count or seen.ended:
                    reach = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
                    line = f"    {seen.name}: {reach} of the time without it, after {len(seen.pairs)} pairs"
                    yield (seen.name, len(seen.pairs)), line


def _leave(child: subprocess.Popen[bytes], together: job.Together, folder: Path) -> bool:
    """End a job in which changes were tried. Returns True if it ended only after a signal."""
    # The job gets some time to end by itself, then SIGTERM, and later SIGKILL.
    for seconds, number in ((_GRACE_S, signal.SIGTERM), (_LEAVE_S, signal.SIGKILL)):
        by = time.monotonic() + seconds
        while child.poll() is None and time.monotonic() < by and not together.interrupted:
            together.pause(_LOOK_S)
        if child.poll() is not None:
            return number == signal.SIGKILL
        if not together.interrupted:
            # The processes that tried the changes get the signals, too, because a shell that started them forwards no
            # signal. The shell gets them first, because it would go on with its next command once the job has ended.
            for process in (child.pid, *_processes(folder)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
    return True
