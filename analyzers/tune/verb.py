"""The five stages of ``logparse tune``: capture, replay, recommend, run again, verify.

Most of them are also commands of their own, with which the user can continue an interrupted tuning.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from analyzers.actions import ACTIONS, ActionResult
from analyzers.actions.totals import results
from analyzers.compare.actions import verify_actions
from analyzers.compare.proof import ActionProof
from analyzers.compare.proof_text import lines as lines_of
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.evidence.units import Units, as_alone, units
from analyzers.job.gpu_time import gpu_time, traced_us
from analyzers.recommend import screen
from analyzers.recommend.apply_module import NAME, alternatives, has_lines, module, without_a_change
from analyzers.recommend.files_action import OVERRIDES
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo_from_actions import find_hidden_changes
from analyzers.recommend.verb import advise, job_module, with_step, write
from analyzers.recommend.verdict import verdict
from analyzers.replay.replay import Options, replay
from analyzers.replay.scheduler import Limits
from analyzers.tune import in_the_job, try_verb
from analyzers.tune.by_turns import AT_MOST_S, MOST_PAIRS, PAIRS, by_turns, run_alone
from analyzers.tune.starts import Starts
from logparse.capture import applied as marks
from logparse.capture import with_overrides
from logparse.capture.in_job.logparse_in_job.switches import NAMES
from logparse.capture.job import CANNOT_RUN, INTERRUPTED, NOT_FOUND
from logparse.capture.plan import TRACES, Plan, Trace, plan
from logparse.capture.run import Say, capture
from logparse.ingest import Ingested, ingest
from logparse.ingest.input_file import CAPTURES
from logparse.libraries.kinds.format import Emission
from logparse.output import UNCHECKED
from logparse.output.files import write_file
from logparse.store import Store, command_line
from logparse.text import cut_to_width, format_difference, make_printable, pluralize

_MOST_TRIED, _TRIAL_S, _PATIENCE_S, _ANSWER_S = 4, 30.0, 45.0, 90.0
"""Limits for trying changes in the running job.

* ``_MOST_TRIED``: the largest number of changes.
* ``_TRIAL_S``: the seconds of trials in each start of the job.
* ``_PATIENCE_S``: after this many seconds, the job is not started again for a change whose effect is still unclear.
* ``_ANSWER_S``: a short job should have its answer after this many seconds, not counting the replay. It is not started
  again for an unclear effect if that start, and one that confirms its result, would end later.
"""
_PROMISING = 0.02
"""A short job tries changes together at first if each should save this fraction (0 to 1) of the kernels' time."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Options of ``logparse tune``.

    * ``trace``: what to trace.
    * ``budget_s``: seconds for timing the job's GPU calls alone.
    * ``out``: folder for the generated files.
    * ``pairs``: largest number of pairs of runs with and without the changes.
    * ``before_each``: a shell command before every start of the job.
    """

    trace: Trace | None = field(default_factory=Trace)
    budget_s: float = 600.0
    out: Path = Path("overrides")
    pairs: int = MOST_PAIRS
    before_each: str = ""


def tune(
    command: Sequence[str], store: Store, tuning: Tuning, say: Say, environ: Mapping[str, str] = os.environ
) -> int:
    """Make a job faster: find changes, make them, measure the gain. Raises InputError and MeasuringError.

    The exit code is the job's, 130 after Ctrl-C, ``NOT_APPLIED`` if nothing shows that the changes were made,
    ``UNCHECKED`` if the job did no GPU work that could be measured, or 1 if no trace of the job could be read.
    """
    run = f"tune-{datetime.datetime.now():%Y%m%dT%H%M%S}"
    with suppress(OSError):  # If the folder cannot be made, the first write into it reports the error.
        tuning.out.mkdir(parents=True, exist_ok=True)
    first = replace(plan(command, trace=tuning.trace, environ=environ), copy=tuning.out / f"{run}.log")
    starts = Starts(before_each=tuning.before_each)
    job = _Job(command, store, tuning, say, environ, run, first, starts)
    begun = time.monotonic()
    try:
        job = job.captured()
        spent_s = time.monotonic() - begun
        job.time_kernels()
        found, actions, files = job.find_changes(spent_s)
        again = job.run_again(actions, files)
        if again.missing:
            job.not_applied(found, again)
        job.settled(found, job.verify_changes(found, actions, files, again), bool(files))
    except KeyboardInterrupt:
        say(f"interrupted: {job.goes_on}")
        return 130
    except _EndedError as ended:
        return ended.code
    return 0


@dataclass(frozen=True)
class _Again:
    """The second execution of a job that ``logparse tune`` makes faster: with the changes, such as other kernels.

    * ``asked``: the changes to make.
    * ``missing``: sentences about changes that were perhaps not made.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    # It is how long the job took, including the time to read its logs.
    seconds: float
    asked: marks.Asked
    missing: tuple[str, ...] = ()

    def proves(self, folder: Path) -> str:
        """Return why it is doubtful that the job made the changes that it should make. Empty if there is no doubt.

        A job writes a file into ``folder`` for the changes that it makes.
        """
        return "; ".join(marks.missing(self.asked, marks.read_marks(folder), self.command))


class _EndedError(Exception):
    """Raised if a stage ends the whole tuning, because the stages after it would make no sense."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class _Job:
    """A job that ``logparse tune`` makes faster. Each method is one stage, for example to measure the changes.

    ``run`` names the data of the unchanged job. A stage that cannot go on raises ``_EndedError``.
    """

    command: Sequence[str]
    store: Store
    tuning: Tuning
    say: Say
    environ: Mapping[str, str]
    run: str
    first: Plan
    starts: Starts

    @property
    def after(self) -> str:
        return f"{self.run}-after"

    @property
    def goes_on(self) -> str:
        """A sentence for an interrupted ``tune``: the commands with which the user can continue."""
        url = self.store.url
        if self.run in set(self.store.sources()["run"]):
            on, rank = (command_line(url, verb, "--run", self.run) for verb in ("replay", "recommend"))
            return f"the store keeps everything so far; `{on}` continues, and `{rank}` uses what there is"
        logs = command_line(url, "ingest", str(self.first.folder), "--run", self.run)
        return f"nothing is stored yet; `{logs}` reads the logs that the job wrote so far"

    def captured(self) -> _Job:
        """Run the job unchanged with logs and a profiler, and store what it wrote.

        Returns this object, or a new one if there was a second run.
        """
        self.say("1/5 capture: running the job unchanged, with its libraries' logs and a profiler over a few steps")
        begun = time.monotonic()
        code, read = self._captured(self.command, self.first, self.environ, self.run)
        if code:
            # In all other cases the failure has already been reported.
            if code not in (CANNOT_RUN, NOT_FOUND) or self.first.folder.exists():
                self.say(f"the job ended with exit code {code} and is not run again; {self.goes_on}")
            raise _EndedError(code)
        self.end_if_damaged(read)
        if self.ran_without_gpu(read):
            self.say(
                f"tune ends after this run of the job: {_name_traced(read)} ran no GPU kernel, and logparse found no "
                "GPU on this machine, so there is nothing to measure. Run it where the job's Python prints True for "
                "`torch.cuda.is_available()`"
            )
            raise _EndedError(UNCHECKED)
        job, found = self, units(tables_of(self.store, self.run))
        # A job that is too short for steady step times is run a second time.
        short = time.monotonic() - begun <= AT_MOST_S and found is not None
        if short and found is not None and found.provisional:
            job, read = self.captured_again(found, read)
        if traced_us(tables_of(self.store, job.run)) is None:
            self.say(_without_kernels(read))
            if not any(x.calls for x in read):
                self.say("the libraries' logs contain no calls, so there is nothing to measure and nothing to change")
                raise _EndedError(UNCHECKED)  # The tuning ends before the run that only times units.
        if short:
            job.timed_alone()
        return job

    def end_if_damaged(self, read: Sequence[Ingested]) -> None:
        """End the tuning if neither a kernel nor a logged call is known, and a trace is damaged.

        The job may have run kernels then.
        """
        traces, damaged = _traces(read), _damaged_traces(read)
        if not damaged or self.has_kernels or any(x.calls for x in read):
            return
        again = command_line(self.store.url, "ingest", str(self.first.folder), "--run", self.run)
        self.say(
            f"tune ends after this run of the job: {len(damaged)} of its {pluralize(len(traces), 'trace')} could not "
            f"be read, and no GPU kernel is known. The first is {make_printable(damaged[0].path)}. When the cause is "
            f"mended, read them again with `{again}`"
        )
        raise _EndedError(1)

    @property
    def has_kernels(self) -> bool:
        """True if the traces of the unchanged job contain a GPU kernel."""
        return bool((tables_of(self.store, self.run).kernels["run"] == self.run).any())

    def ran_without_gpu(self, read: Sequence[Ingested]) -> bool:
        """Tell whether the job surely did no GPU work: no kernel is traced, no call is logged, and no GPU is known.

        Without a trace this is not sure, because the job may have run on another machine.
        """
        tables = tables_of(self.store, self.run)
        facts = tables.facts[tables.facts["run"] == self.run]
        has_gpu = bool(facts["name"].isin(["arch", "device"]).any())
        idle = not any(x.calls for x in read) and not self.has_kernels
        return bool(_name_traced(read)) and idle and not has_gpu

    def captured_again(self, first: Units, read: list[Ingested]) -> tuple[_Job, list[Ingested]]:
        """Run a short job once more and trace the middle of its steps, because its step times never became steady."""
        if self.tuning.trace is None or first.count < 2 * self.tuning.trace.units:
            return self, read
        self.say(
            f"    {pluralize(first.count, first.word)} are too few for steady times: running the job once more, "
            "with a trace that begins in the middle of the job"
        )
        trace = replace(self.tuning.trace, expected=first.count)
        how = replace(plan(self.command, trace=trace, environ=self.environ), copy=self.first.copy)
        again = replace(self, run=f"{self.run}-again", first=how, tuning=replace(self.tuning, trace=trace))
        code, read_again = self._captured(self.command, how, self.environ, again.run)
        now = None if code else units(tables_of(self.store, again.run))
        # If the second run fails or does fewer steps, the first run is kept.
        if fewer := self.starts.fewer(first, now):
            self.say(f"warning: {fewer}")
            return self, read
        # The second run and its files replace the first.
        self.store.forget(self.run)
        return again, read_again

    def _captured(
        self, command: Sequence[str], how: Plan, environ: Mapping[str, str], run: str, asked: marks.Asked | None = None
    ) -> tuple[int, list[Ingested]]:
        self.starts.prepare(environ)
        stdin = self.starts.stdin
        return capture(command, how, lambda: self.store, self.say, run=run, environ=environ, stdin=stdin, asked=asked)

    def timed_alone(self) -> None:
        """Run the job once more without logs and profiler, and time its steps.

        Logs slow the host, and some jobs run at half of their speed with them.
        """
        self.say("    running the job once more without logs and profiler, to time its steps")
        folder = self.first.folder / "alone"
        unit = self.tuning.trace.unit if self.tuning.trace else ""
        times = run_alone((self.command, self.environ), folder, unit, self.say, self.starts)
        self.compare_units(times)
        if times is not None:
            ingest([str(folder)], self.store, run=self.run)

    def compare_units(self, now: Units | None) -> None:
        """Warn the user if a run of the job did fewer steps than the first run."""
        first = units(tables_of(self.store, self.run))
        if first is not None and (line := self.starts.fewer(first, now)):
            self.say(f"warning: {line}")

    def time_kernels(self) -> None:
        what = "timing the job's calls with each action, then searching for faster kernels"
        self.say(f"2/5 replay: {what}, for at most {self.tuning.budget_s:,.0f} s")
        log = self.tuning.out / f"{self.run}-replay.log"
        with _output_in(log):
            report = replay(self.store, Options(run=self.run, limits=Limits(budget_s=self.tuning.budget_s)))
        if printed := log.read_bytes().count(b"\n"):
            self.say(f"the libraries printed {pluralize(printed, 'line')}: {log}")
        if report.interrupted:
            raise KeyboardInterrupt

    def find_changes(self, spent_s: float) -> tuple[Recommendation, list[str], list[Path]]:
        """Find out which changes make the job faster, and write the files that make these changes.

        ``spent_s``: seconds of tuning so far, without ``logparse replay``. Returns the recommendation, the changes'
        names and the files.
        """
        self.say("3/5 recommend")
        settings, begun = Settings(), time.monotonic()
        found = advise(self.store, settings, self.run)
        if self.tried(found, spent_s + time.monotonic() - begun):
            found = advise(self.store, settings, self.run)
        written, _ = write(found, settings, self.tuning.out)
        # These changes need no edit of the user's program.
        alone = without_a_change(found.actions, find_hidden_changes(found), found.in_job, found.combination)
        actions = [x.action.name for x in alone]
        if any(x.outcome == "measured" for x in found.tried):
            # Starts of a job cannot show what a small change adds to a measured gain.
            worth = {*found.combination, *found.in_job, *promising(found, actions)}
            actions = [x for x in actions if x in worth]
        # These are the files that ``apply.sh`` uses.
        files = [x.path for x in written if x.applied and x.path is not None]
        if not actions and not files:
            made = job_module(found)
            listed = {name for x in verdict(found).todo for name in x.names}
            none = "no override file or setting is worth applying"
            if listed.intersection(x.action.name for x in found.actions):
                none = "nothing was proved in your job"
            self._ended(found, [*(in_job_lines(found) or [f"tune: {none}"]), f"  {verdict(found).headline}"], made)
            raise _EndedError
        return found, actions, files

    def tried(self, found: Recommendation, spent_s: float) -> bool:
        """Try the most promising changes while the job runs, and store the measured times with the job's data.

        Returns False if nothing was measured. ``spent_s`` is how many seconds the tuning has taken so far, without
        ``logparse replay``.
        """
        names = candidates(found)
        unit = self.tuning.trace.unit if self.tuning.trace else ""
        found_units = units(tables_of(self.store, self.run))
        if not names or found_units is None:
            return False
        self.say(f"    trying in the running job, switched on and off between its steps: {', '.join(names)}")
        limits = {"seconds": _TRIAL_S, "patience_s": _PATIENCE_S, "expected": found_units.count}
        asked = in_the_job.trial(names, unit=unit, together=tuple(promising(found, names)), **limits)
        if asked.is_short:
            # A change that is faster in the last start needs one more, which confirms it.
            asked = replace(asked, patience_s=_ANSWER_S - spent_s - 2 * self.starts.timed_s)
        answer = in_the_job.try_in_the_job(self.command, self.environ, asked, self.starts, self.say)
        for line in try_verb.lines(answer):
            self.say(f"    {line}")
        if answer.code == INTERRUPTED:
            raise KeyboardInterrupt
        if not any(x.seen for x in answer.records):
            return False
        in_the_job.write(answer, self.first.folder / "tried")
        ingest([str(self.first.folder / "tried")], self.store, run=self.run)
        return True

    def run_again(self, actions: Sequence[str], files: Sequence[Path]) -> _Again:
        self.say(f"4/5 running the job again, with {' and '.join([*actions, *(path.name for path in files)])}")
        words, environ = with_overrides.applied(self.command, self.tuning.out, self.environ)
        # TunableOp reads no tuned rows while it records untuned keys (PyTorch 2.10 and later).
        again = plan(words, trace=self.tuning.trace, leave_out=["tunableop"], environ=environ)
        again = replace(again, copy=self.tuning.out / f"{self.after}.log")
        asked, begun = marks.asked_of(self.tuning.out), time.monotonic()
        code, _ = self._captured(words, again, environ, self.after, asked)
        if code:
            self.say(f"the job with the changes ended with exit code {code}; its logs are stored as run {self.after}")
            raise _EndedError(code)
        self.compare_units(units(tables_of(self.store, self.after)))
        ran = _Again(words, environ, time.monotonic() - begun, asked)
        folder = again.folder / marks.FOLDER
        # The job removed the folder with its logs. Without them the verdict is that nothing is known.
        if not folder.is_dir():
            return ran
        found = marks.read_marks(folder)
        if found:
            self.say(f"    applied {found}")
        for line in found.notes:
            self.say(f"    {line}")
        return replace(ran, missing=tuple(marks.missing(asked, found, self.command)))

    def not_applied(self, found: Recommendation, again: _Again) -> NoReturn:
        """End the tuning, because the second run was made without the changes and so shows nothing about their gain."""
        for line in again.missing:
            self.say(f"    {line}")
        made = job_module(found)
        head = "tune: not verified, because not every change was in force in the second run of the job"
        self._ended(found, [head, *(cut_to_width(f"  {line}") for line in again.missing)], made)
        raise _EndedError(marks.NOT_APPLIED)

    def verify_changes(
        self, found: Recommendation, actions: Sequence[str], files: Sequence[Path], again: _Again
    ) -> ActionProof:
        self.say("5/5 verify")
        before, after = (tables_of(self.store, run) for run in (self.run, self.after))
        of_files = {x.action.name: x for x in found.actions if x.action.kind == "files"} if files else {}
        surest = of_files.get(OVERRIDES.name) or next(iter(of_files.values()), None)
        proof = verify_actions(before, after, actions, surest)
        if (counted_units := units(before)) is None or again.seconds > AT_MOST_S:
            return proof
        unit = self.tuning.trace.unit if self.tuning.trace else ""
        sides = (self.command, self.environ), (again.command, again.environ)
        counts = {x.name: float(x.count) for x in counted_units.kinds}
        pairs = PAIRS if proof.limit else self.tuning.pairs
        times = by_turns(*sides, unit, self.say, pairs, counts, self.starts, again.proves)
        return verify_actions(before, after, actions, surest, times)

    def settled(self, found: Recommendation, proof: ActionProof, of_files: bool) -> None:
        """Keep the changes, or undo them if the job was measured to gain nothing. Print what else the user can do.

        ``of_files``: True if kernels in override files were also used.
        """
        applied = [x for x in found.actions if x.action.name in proof.actions]
        changed = {y.of for x in applied for y in x.parts}
        others = (x for x in found.findings if x.problem is None or x.problem.text not in changed)
        rest = replace(found, findings=tuple(x for x in others if x.override is None or not of_files))
        # Nothing became faster, so the changes are undone.
        if proof.refuted:
            outcome, kept, left = "not kept", [], [x for x in found.actions if x not in applied]
            rest = replace(rest, actions=tuple(left))
            write(rest, Settings(), self.tuning.out)  # Files of changes that are not kept get another name.
        else:
            outcome, kept = "kept" if proof.ok else "kept, although not proven", applied
            # The gains of the other changes are predicted again, for the job as it is now.
            now, wall = tables_of(self.store, self.after), proof.wall
            left = results(now, ACTIONS, Settings(), kept)
            rest = replace(rest, actions=tuple(left))
            if wall is not None and traced_us(now) is not None:
                now = as_alone(now, tables_of(self.store, self.run), wall, wall.kinds)
                rest = with_step(replace(rest, gpu_time=gpu_time(now)), now)
        weighed = {x.action.name: x for x in left}
        entries = [weighed.get(x.action.name, x) for x in found.actions if x in kept or x not in applied]
        made = module(entries, kept, left, rest.step_gain, find_hidden_changes(rest), rest.in_job, rest.combination)
        path = self.tuning.out / NAME
        if made is not None:
            write_file(path, made.data, within=self.tuning.out)
        else:
            path.unlink(missing_ok=True)
        first, *more = lines_of(proof)
        gone = (x for x in found.actions if x.pays and not changed.isdisjoint(y.of for y in x.parts))
        if kept:
            more += _name_unmeasured_changes([x for x in gone if x.action.name not in weighed], (*kept, *left))
        self._ended(rest, [f"tune: {first}: {outcome}", *more], made, not proof.refuted)

    def _ended(self, left: Recommendation, head: Sequence[str], made: Emission | None, kept: bool = False) -> None:
        """Print the result of the tuning, and how to make the changes that are left to the user."""
        apply = [command_line(None, "run", "--with", str(self.tuning.out), "--", "JOB")] * kept
        listed = {name for x in verdict(left).todo for name in x.names}
        if made is not None and any(x.action.kind == "program" and x.action.name in listed for x in left.actions):
            apply += made.lines
        for line in screen.render_end(left, head, screen.Written(self.tuning.out, (), self.store.url), apply):
            self.say(line)


def candidates(found: Recommendation) -> list[str]:
    """Return the changes that are worth trying in the running job, the largest saving of GPU time first.

    Small savings are included, because a step that waits for its host may gain more than its kernels save.
    """
    able = [x for x in found.actions if x.action.name in NAMES and not x.loses and has_lines(x)]
    return [x.action.name for x in sorted(able, key=lambda x: -x.saving_us)][:_MOST_TRIED]


def promising(found: Recommendation, names: Sequence[str]) -> list[str]:
    """Return which of the named changes should each save a visible part of the kernels' time."""
    saving = {x.action.name: x.saving_us / x.now_us for x in found.actions if x.now_us}
    return [name for name in names if saving.get(name, 0.0) >= _PROMISING]


def in_job_lines(found: Recommendation) -> list[str]:
    """Return lines for the user about the changes that were tried in the running job.

    One line names the best change, the next the changes that are not faster. If none was faster, there are no lines.
    """
    best = next((x for x in found.tried if x.outcome == "measured"), None)
    if best is None:
        return []
    lost = [x.name for x in found.tried if x.is_lost]
    lines = [f"tune: {best.name}: {try_verb.times(best, found.word)}, {try_verb.MEASURED}"]
    return lines + [cut_to_width(f"  tried in your job, and not faster: {', '.join(lost)}")] * bool(lost)


@contextmanager
def _output_in(path: Path) -> Iterator[None]:
    """Context manager that redirects the output of this process and its children to a file.

    It is used while libraries run that print long warnings.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(output) for output in (1, 2)]
    with path.open("wb") as file:
        for output in (1, 2):
            os.dup2(file.fileno(), output)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for output, own in zip((1, 2), kept, strict=True):
            os.dup2(own, output)
            os.close(own)


def _name_unmeasured_changes(gone: Sequence[ActionResult], there: Sequence[ActionResult]) -> Iterator[str]:
    """Yield a line that names further changes which may save time, but were never measured with the chosen changes.

    * ``gone``: the further changes.
    * ``there``: the chosen changes, and others that can still be chosen.
    """
    # A change is not named if it is an alternative to one that is there.
    beside = [x for x in gone if not any(alternatives(x, y) for y in there)]
    if beside:
        names = ", ".join(
            f"{x.action.name} ({format_difference(x.saving_us / (x.steps or 1.0))} of kernels)" for x in beside
        )
        yield cut_to_width(f"  would save time, but were not timed together with these changes: {names}")


def _traces(read: Sequence[Ingested]) -> list[Ingested]:
    """Return the traces of the job's steps, without the traces of captured CUDA graphs."""
    return [x for x in read if Path(x.path).match(TRACES) and CAPTURES not in x.path]


def _damaged_traces(read: Sequence[Ingested]) -> list[Ingested]:
    return [x for x in _traces(read) if x.state == "failed" or x.units["reject"]]


def _name_traced(read: Sequence[Ingested]) -> str:
    """Return the number of processes that wrote a trace of their steps as words. Empty if no process wrote a trace."""
    processes = {Path(x.path).name.split("_")[1] for x in _traces(read)}
    return pluralize(len(processes), "traced process") if processes else ""


def _without_kernels(read: Sequence[Ingested]) -> str:
    """Explain to the user why the trace has no GPU kernel, as far as the job's files show the reason."""
    if damaged := len(_damaged_traces(read)):
        total = pluralize(len(_traces(read)), "trace")
        return f"{damaged} of {total} could not be read, so no action can be compared with the whole job"
    if traced := _name_traced(read):
        return f"{traced} ran no GPU kernel, so no action can be compared with the whole job"
    return (
        "no process wrote a trace, so no action can be compared with the whole job: the job ended before the times of "
        "its steps became steady, or its Python was not started with this command's environment"
    )
