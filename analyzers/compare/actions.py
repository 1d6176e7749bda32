"""Judge whether a change to a job (an action, such as TF32) made it as much faster as was promised.

Two runs of the job are compared: one without the change and one with it. A run consists of steps or requests, which may
be of several kinds (``analyzers/evidence/units.py``), for example training steps and validation steps. Only kinds that
both runs traced are compared. Both runs are weighted by the first run's numbers of each kind, so that a different mix
of kinds does not look like a gain. Two times are judged:

* the time of the kernels that compute, against the sum that ``recommend`` promised for the first run
* the wall time of a step without a profiler (``unit_time.py``)

Neither promise includes collectives, because their time depends on when the other ranks arrive.

Two runs at different times meet different conditions on the machine. For example, a step took 48.1 ms, and two minutes
later 30.6 ms with a change. When both runs took turns, the change gained only 2 % (ddp of
``benchmarks/results/jobs-NVIDIA-H200-2026-11-27.json``). So if the wall time of two such runs differs by more than the
simulation of a step predicts, the difference proves nothing about the change.

If the wall time alone does not decide, the kernels may decide. If the host launches as many kernels as before, a step
gains nothing in two cases:

* By simulation, the step would hardly be shorter even if kernels took no time.
* The kernels take as long as before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Literal, TypeAlias

from analyzers.actions import ACTIONS, ActionResult
from analyzers.actions.action import CONVOLUTION, GEMM, with_job_interval
from analyzers.actions.totals import factors_of, results
from analyzers.compare.unit_time import SideBySide, Times, UnitTime, select_unprofiled_times, unit_time
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import KINDS, reweigh_kinds, traced_kinds, units, units_by_source, units_of_facts, word_of
from analyzers.job.gpu_time import COMMUNICATION, gpu_time, kernels_of_run, steps, traced_us
from analyzers.job.step.answer import BESIDE_LOGS, ERROR, WORTH, StepAnswer, beside_logs, step_of
from logparse.errors import InputError
from logparse.libraries.own.applied_marks import APPLIED, ASKED, EXPORTED, IN_FORCE, LOST, UNKNOWN, undone
from logparse.libraries.own.job_units import KIND, UNIT
from logparse.model import Gain
from logparse.output import CHECK_FAILED, Answer
from logparse.text import COLUMNS, cut_to_width, describe_gain, duration, format_difference, pluralize

Verdict: TypeAlias = Literal[
    "verified",
    "faster, not as promised",
    "took effect, not faster",
    "had no effect",
    "another workload",
    "time unknown",
]
SHARE = 0.5
"""The smallest fraction (0 to 1) of the first run's time for which both runs must have done the same kinds of steps.

If the fraction is smaller, the two runs did different work and are not compared.
"""
_ALIKE = 0.1
"""How much the numbers of steps of two ranks may differ, as a fraction (0.1 is 10 %), if the ranks do the same work."""
_SHOWN = 3


@dataclass(frozen=True)
class Group:
    """The time of all operators of one kind in a job, for example of all convolutions.

    There are three GPU times in µs: before a change, promised for the change, and measured after it.
    """

    name: str
    promised: Gain
    measured: Gain


@dataclass(frozen=True)
class ActionProof:
    """The comparison of a run without changes and a run with them. Times are of an average step, µs.

    The attribute ``unit`` is the word for what both runs repeat: a step, a request, … or the whole run.

    * ``promised``, ``measured``: the gain of the kernels that compute. A time is 0 if a run has no trace.
    * ``wall``: the wall time of a step without a profiler, or None if it is unknown.
    * ``share``: the fraction (0 to 1) of the first run's time that belongs to kinds of steps that both runs did.
    * ``collectives_us``: time before and after in which the GPU only communicates.
    * ``step``: the step with the changes, simulated from the traces of the first run. None if it could not be
      simulated.
    * ``launched``: number of kernels that the host launches in a step, before and after.
    * ``host_us``: additional time that the host is expected to need for the changed calls. Negative if it needs less.
    * ``same``: True if both runs launched the same kernels, about as often.
    * ``doubts``: reasons why the two runs cannot be compared. ``notes``: other facts for the reader.
    * ``lost``: changes that were not in force any more when the second run ended. No time is stated as their gain.
    * ``unproven``: the reason why the second run may have run without the changes. If there is one, a gain proves
      nothing about the changes.
    """

    before: str
    after: str
    actions: tuple[str, ...]
    unit: str
    promised: Gain
    measured: Gain
    groups: tuple[Group, ...]
    wall: UnitTime | None = None
    share: float = 1.0
    collectives_us: tuple[float, float] = (0.0, 0.0)
    step: StepAnswer | None = None
    launched: tuple[float, float] = (0.0, 0.0)
    host_us: float = 0.0
    same: bool = False
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unproven: str = ""

    @property
    def named(self) -> str:
        """The names of the changes as one text, for example ``tf32 and channels_last``.

        The text is ``override files`` if only override files (with kernels for a library to use) were added.
        """
        return " and ".join(self.actions) or "override files"

    @property
    def noise_us(self) -> float:
        """How much the GPU time may differ between two runs of an unchanged job, µs (in 95 % of cases)."""
        now_us = self.measured.now_us
        return with_job_interval(Gain(now_us, now_us)).saving_high_us or 0.0

    @property
    def faster(self) -> bool:
        return self.wall is not None and self.wall.faster

    @property
    def undecided(self) -> bool:
        """True if the measurements do not show whether the changes made the job faster.

        There are two cases:

        * The wall times are so noisy that they fit both no gain and a useful gain. The kernel times do not help: they
          do not show that the gain is small (``little``), or that faster kernels cannot help (``limit``).
        * The wall times differ for a reason other than the kernels (``of_the_host``).
        """
        if self.wall is None or self.of_the_host:
            return self.of_the_host
        return self.wall.undecided and not self.limit and not self.little

    @property
    def _unit_us(self) -> float:
        return (self.wall or self.measured).now_us

    @property
    def _host_saves_us(self) -> float:
        """The time that the host may save in a step or request, µs. The larger one of two estimates is returned:

        * the host's saving that a replay measured
        * (the number of kernels that are no longer launched) · (the time of a launch)

        The time of a launch comes from the simulation. Without a simulation, it is assumed to be twice the step's time
        per kernel, because fills of memory are launched together with kernels and are not counted.
        """
        before, after = self.launched
        each = self.step.launch_us if self.step else 2 * self._unit_us / before if before else 0.0
        return max((before - after) * each, -self.host_us, 0.0)

    @property
    def little(self) -> str:
        """A sentence for the user if the changes saved too little time to matter, otherwise an empty text.

        The sentence is written only if all three conditions are true:

        * The measured wall times are too noisy to show a gain or a loss.
        * The kernels and their launches saved at most a small fraction of a step.
        * Communication cannot explain a larger gain, because the job does not communicate or runs the same kernels.
        """
        least, most = (
            self.measured.saving_us - self.noise_us,
            self.measured.saving_us + self.noise_us + self._host_saves_us,
        )
        communicates = any(self.collectives_us) and not self.same
        if self.wall is None or not self.wall.undecided or communicates:
            return ""
        if not (self.measured.now_us and self.measured.then_us) or least > 0 or most > WORTH * self.wall.now_us:
            return ""
        gain = f"the kernels and their launches gained at most {duration(max(most, 0.0))}"
        return f"{gain}, less than {WORTH:.0%} of a {self.unit}"

    @property
    def limit(self) -> str:
        """A sentence that explains why faster kernels cannot shorten a step of the job. Empty if they can.

        The reason is that the step waits for the host or for communication.
        """
        step = self.step
        if step is None or step.ceilings.free_kernels_us - self._host_saves_us <= (1 - WORTH) * step.now_us:
            return ""
        other = max((x for x in step.shares if x != "kernels"), key=lambda x: step.shares[x], default="host")
        # For example: "the host is the limit: if kernels took no time, a step would take 30 ms, not 31 ms (simulated)".
        limit = f"{'the ' * (other == 'host')}{other} is the limit"
        times = f"{duration(step.ceilings.free_kernels_us)}, not {duration(step.now_us)}"
        return f"{limit}: if kernels took no time, a {self.unit} would take {times} (simulated)"

    @property
    def of_the_host(self) -> bool:
        """True if something other than the kernels explains why the two runs took different wall times."""
        wall, step = self.wall, self.step
        # The kernels cannot explain a faster run if the simulation shows that they do not limit the step (``limit``).
        if wall is None or (self.limit and wall.faster):
            return wall is not None
        # Runs that were not done in turns may differ by more than the simulation predicts.
        if wall.runs:
            return False
        least, most = sorted((0.0, self.measured.saving_us / wall.now_us))
        least, most = least - ERROR, most + ERROR
        if step is not None:
            most, least = (1 - us / step.now_us for us in step.ends_us)
        return wall.ends_us[0] > (1 - least) * wall.now_us or wall.ends_us[1] < (1 - most) * wall.now_us

    @property
    def unexplained(self) -> tuple[Group, ...]:
        """The kinds of operators with the largest unexpected gain, if the job became far faster than promised.

        Empty if the measured time is not suspicious.
        """
        # For example, 100 ms were promised, with 90 ms as the lower bound. A measured time below 90 − (100 − 90) = 80
        # ms is suspicious.
        if (low := self.promised.ends_us[0]) - self.measured.then_us <= self.promised.then_us - low:
            return ()
        held = sorted(self.groups, key=lambda x: x.measured.then_us - x.promised.then_us)
        return tuple(
            x for x in held[:_SHOWN] if x.promised.then_us - x.measured.then_us > 0.005 * self.measured.now_us
        ) or tuple(held[:1])

    @property
    def verdict(self) -> Verdict:
        """The result of the comparison in a few words, for example ``verified``.

        A gain becomes ``time unknown`` if nothing shows that the changes were made, because the job may have been
        compared with itself.
        """
        found = self._measured_verdict
        return "time unknown" if self.unproven and found in ("verified", "faster, not as promised") else found

    @property
    def _measured_verdict(self) -> Verdict:
        if self.share < SHARE:
            return "another workload"
        if self.doubts or self.undecided:
            return "time unknown"
        if (
            not self.faster
            and abs(self.measured.saving_us) <= self.noise_us
            and (self.wall or self._host_saves_us <= WORTH * self._unit_us)
        ):
            return "had no effect"
        if not self.faster and (self.wall is not None or self.measured.saving_us < 0):
            return "took effect, not faster"
        # Runs by turns do the same work, because one command started them.
        by_turns = self.wall is not None and self.wall.runs
        if self.unexplained and not by_turns:
            # The actions do not explain the difference, so the runs did different work.
            return "another workload"
        if self.wall is None:
            return "time unknown"
        as_promised = (
            self.measured.saving_us > 0 and self.measured.then_us <= self.promised.ends_us[1] and not self.unexplained
        )
        return "verified" if as_promised else "faster, not as promised"

    @property
    def ok(self) -> bool:
        return self.verdict == "verified"

    @property
    def refuted(self) -> bool:
        """True if measurements of the job before and after the changes show that the job did not become faster."""
        return self.verdict in ("took effect, not faster", "had no effect")


def verify_actions(
    before: Tables,
    after: Tables,
    names: Sequence[str],
    files: ActionResult | None = None,
    times: Times | SideBySide | None = None,
) -> ActionProof:
    """Compare a run without and a run with changes, and judge whether the changes gained what was promised.

    * ``before``, ``after``: the tables of the two runs, from ``tables_of``.
    * ``names``: the changes that were made in the second run.
    * ``files``: the effect of override files that were also used in the second run.
    * ``times``: step times from further runs that took turns. If they are given, the wall time comes from them.

    Raises InputError if no replay of the first run timed a named change.
    """
    settings = Settings()
    known = [x.action.name for x in results(before, ACTIONS, settings)]
    unknown = [name for name in names if name not in known]
    if unknown:
        there = (
            f"the timed actions are {', '.join(known)}"
            if known
            else "no change to the job was timed yet (`logparse replay` times such changes, called actions)"
        )
        there += (
            "; to judge override files instead, run `logparse verify BEFORE AFTER FILE…` with the names of the runs "
            "without and with these files"
        )
        raise InputError(f"no replay of run {before.run} timed the action {', '.join(unknown)}: {there}")
    both = _Both(before, after, settings)
    chosen = [x for x in results(both.before, ACTIONS, settings) if x.action.name in names]
    now, then = both.us
    by_turns = both.wall(times) if times else None
    wall = by_turns or both.wall(both.timed)
    doubts = [*both.doubts(), *both.not_applied(names, files is not None)]
    given = [x for y in (*chosen, *([files] if files else [])) for x in factors_of(y).items()]
    # If several actions have a factor for a call, a factor that is not 1 is preferred.
    under = dict(sorted(given, key=lambda x: x[1].value != 1.0))
    step = step_of(both.alike, under)
    return ActionProof(
        before=before.run,
        after=after.run,
        actions=(*names, *([files.action.name] if files else [])),
        unit=both.unit,
        promised=with_job_interval(_sum_predicted_gains(chosen, files, now)).per(both.per[0]),
        measured=Gain(now / both.per[0], then / both.per[1]),
        groups=both.groups(chosen, files),
        wall=None if doubts else wall,
        share=both.share,
        collectives_us=both.collectives_us,
        step=step if isinstance(step, StepAnswer) else None,
        launched=both.launched,
        host_us=sum(x.host_us for x in under.values()),
        same=both.same,
        doubts=tuple(doubts),
        lost=tuple(both.lost(names)),
        unproven=both.unproven(names),
        notes=(
            *(x.in_part for x in chosen if x.in_part),
            *both.notes(wall, names),
            *[BESIDE_LOGS] * (wall is not by_turns and any(map(beside_logs, both.runs))),
        ),
    )


def _sum_predicted_gains(chosen: Sequence[ActionResult], files: ActionResult | None, now_us: float) -> Gain:
    """Add up the predicted gains of several changes, for a job whose kernels take ``now_us`` now.

    ``files`` are override files (lists of kernels for a library).
    """
    ends = ([us - x.now_us for us in (x.then_us, *x.widened.ends_us)] for x in chosen)
    change, low, high = (sum(x) for x in zip((0.0, 0.0, 0.0), *ends, strict=True))
    if files is not None and files.now_us:
        apart = {x.of for x in files.parts}.isdisjoint(x.of for y in chosen for x in y.parts)
        share = now_us / files.now_us  # The files' times are of the whole run, with units of all kinds.
        more = [share * (x - files.now_us) for x in (files.then_us, *files.ends_us)]
        # If the files and another change concern the same call, the files' gain is not added, because the other change
        # may leave nothing for the files to gain.
        change, low, high = change + more[0] * apart, low + more[1], high + more[2] * apart
    return Gain(now_us, now_us + change, now_us + low, now_us + high)


class _Both:
    """Two runs of a job, before and after a change, compared only in the kinds of steps that both did.

    * ``counts``: number of steps of each kind.
    * ``per``: number of steps over which times are summed.
    """

    def __init__(self, before: Tables, after: Tables, settings: Settings) -> None:
        self.runs = (before, after)
        self.units = tuple(units(x) for x in self.runs)
        traced = [traced_kinds(x.facts[x.facts["run"] == x.run]) for x in self.runs]
        own = {x.name: float(x.count) for x in self.units[0].kinds} if self.units[0] else {}
        marked = [steps(x, settings)[0] for x in self.runs]
        self.counts: Mapping[str, float] = own
        self.share = 1.0
        self.before, self.after = before, after
        if all(traced):
            own = own or {name: float(count) for name, count in traced[0].items()}
            alike = len({x.sort for x in self.units if x}) < 2  # A step and a call may have one kind's name.
            self.counts = {name: own[name] for name in own if alike and all(name in x for x in traced)}
            self.share = self._share(own)
            self.before, self.after = (reweigh_kinds(x, self.counts) for x in self.runs)
            self.per = tuple(float(sum(x.values())) for x in traced)
        else:
            self.per = tuple(float(x) if x and all(marked) else 1.0 for x in marked)
        self.unit = word_of(before) if all(traced) or all(marked) else "run"

    def _share(self, own: Mapping[str, float]) -> float:
        """Return the fraction (0 to 1) of the first run's time that it spent in kinds of steps that both runs did.

        ``own``: the number of steps of each kind in the first run.
        """
        each = {x.name: x.mean_us for x in self.units[0].kinds if x.mean_us is not None} if self.units[0] else {}
        # A kind whose time is unknown gets the mean time of the other kinds.
        usual = sum(each.values()) / len(each) if each else 1.0
        parts = {name: count * each.get(name, usual) for name, count in own.items()}
        total = sum(parts.values())
        return sum(us for name, us in parts.items() if name in self.counts) / total if total else 0.0

    @property
    def timed(self) -> Times:
        """How many steps of each kind the two runs did, and how long the steps took."""
        found = self.units
        # Writing the libraries' logs slows a job. If only one run was also timed without logs, the times with logs are
        # used for both.
        if len({x.alone for x in found if x}) > 1:
            found = tuple(units_of_facts(x.facts[x.facts["run"] == x.run], alone=False) for x in self.runs)
        a, b = ([x] if x is not None else [] for x in found)
        return a, b

    def wall(self, times: Times | SideBySide) -> UnitTime | None:
        """Return how long a step of the job takes in wall time, before and after the change.

        Returns None if too few kinds of steps were timed.
        """
        if isinstance(times, SideBySide):
            found = times.unit_time(self.counts)
        else:
            found = unit_time(*times, self.counts) if all(times) else None
        us = kernels_of_run(self.before).groupby("unit")["total_us"].sum()
        known = us[us.index.isin(list(self.counts))]
        part = known[known.index.isin(found.kinds)].sum() / known.sum() if found and len(known) else 1.0
        # The timed kinds of steps, for example training, must make up at least half of the kernels' time.
        return found if part >= SHARE else None

    @property
    def alike(self) -> Tables:
        """The data of the job before the change, without the kinds of steps that did not occur after it.

        For example, if the job after the change did only training steps, evaluation steps before the change are left
        out.
        """
        facts = self.runs[0].facts
        others = facts["name"].str.startswith(KIND) & ~facts["name"].str[len(KIND) :].isin(list(self.counts))
        return replace(self.runs[0], facts=facts[~others]) if self.share < 1 and others.any() else self.runs[0]

    @property
    def us(self) -> tuple[float, float]:
        """GPU time of the first and of the second run, without communication, µs. 0 for a run without a trace."""
        return traced_us(self.before) or 0.0, traced_us(self.after) or 0.0

    @property
    def collectives_us(self) -> tuple[float, float]:
        found = ((gpu_time(x), per) for x, per in self._sides)
        a, b = (sum(y.us for y in x.parts if y.name == COMMUNICATION) / per if x else 0.0 for x, per in found)
        return a, b

    @property
    def launched(self) -> tuple[float, float]:
        """The average number of kernels that a step launches to compute or copy, before and after the change.

        Kernels that communicate are not counted.
        """
        before, after = (float(kernels_of_run(x)["calls"].sum()) / per for x, per in self._sides)
        return before, after

    @property
    def same(self) -> bool:
        """True if both runs launched the same kernels, about as often."""
        names, (before, after) = [set(kernels_of_run(x)["kernel"]) for x, _ in self._sides], self.launched
        return names[0] == names[1] and abs(after - before) <= WORTH / 2 * before

    def groups(self, chosen: Sequence[ActionResult], files: ActionResult | None) -> tuple[Group, ...]:
        now, then = ({name: us / per for name, us in by_group(x).items()} for x, per in self._sides)
        change: dict[str, float] = {}
        for result in (*chosen, *([files] if files else [])):
            share = self.us[0] / (files.now_us or 1.0) if files and result is files else 1.0
            for part in result.parts:
                us = -share * part.saving_us / self.per[0]
                change[part.group] = change.get(part.group, 0.0) + us
        made = (
            Group(x, Gain(us := now.get(x, 0.0), us + change.get(x, 0.0)), Gain(us, then.get(x, 0.0)))
            for x in sorted({*now, *then})
        )
        return tuple(sorted(made, key=lambda x: (-abs(x.measured.saving_us), x.name)))

    @property
    def _sides(self) -> Iterator[tuple[Tables, float]]:
        return iter(((self.before, self.per[0]), (self.after, self.per[1])))

    def doubts(self) -> Iterator[str]:
        """Yield the reasons why the two runs cannot be compared, for example that one has no trace."""
        for run, found, us in zip(self.runs, self.units, self.us, strict=True):
            if not us and self.share >= SHARE:
                ended = (
                    ": the job ended before the times of its steps became steady" if found and not found.tracing else ""
                )
                yield f"{run.run} has no trace with GPU kernels{ended}"
        ranks = [_ranks(x) for x in self.runs]
        for what in ("units", "trace"):
            there = [x[what] for x in ranks]
            for run, mine in zip(self.runs, there, strict=True):
                lost = sorted(set().union(*there) - mine, key=lambda x: (len(x), x))
                if lost and all(there):
                    which = f"rank {lost[0]}" if len(lost) == 1 else f"{len(lost)} ranks ({lost[0]} …)"
                    yield f"{which} of {run.run} wrote no {what}: did the process die?"
        for run in self.runs:
            yield from _unlike_ranks(run)

    def not_applied(self, names: Sequence[str], files: bool) -> Iterator[str]:
        """Yield a sentence for each change of a job that cannot be judged by comparing the job before and after it.

        Either the job already made the change before, or it did not make it or keep it afterwards.
        """
        marks = [_find_changes_made(x) for x in self.runs]
        lost = self.lost(names)
        for name in names:
            if name in marks[0]:
                yield f"{self.before.run} also ran with {name}, so the job is compared with itself"
            if name in lost:
                yield undone(name, lost[name], self.after.run)
            elif name not in marks[1] and name in self._read_asked("settings"):
                yield f"{self.after.run} did not report that it applied {name}, so it ran without {name}"
        if files and self._read_asked("scripts") and not any(_find_changes_made(self.runs[1], EXPORTED)):
            yield f"{self.after.run} did not report that it ran apply.sh, so it ran without the override files"

    def lost(self, names: Sequence[str]) -> Mapping[str, set[str]]:
        """Return which of the changes were not in force any more when a process of the second run ended.

        The values name the settings of PyTorch that were set to another value.
        """
        return {name: undone for name, undone in _lost(self.runs[1]).items() if name in names}

    def unproven(self, names: Sequence[str]) -> str:
        """Return a sentence which warns that the job may not have made the changes. Empty if nothing suggests that."""
        unseen = [x for x in names if x not in _find_changes_made(self.runs[1]) and x not in self.lost(names)]
        # A warning needs three things: the user asked for changes, no process reported them, the same kernels ran.
        if not unseen or not self.same or not len(self._rows(ASKED)):
            return ""
        return f"no process of {self.after.run} reported that it applied {', '.join(unseen)}, and the same kernels ran"

    def _read_asked(self, what: str) -> set[str]:
        return {name for text in self._rows(ASKED).values() for name in json.loads(text).get(what, ())}

    def _rows(self, name: str) -> Mapping[str, str]:
        return _values(self.runs[1], name)

    def notes(self, wall: UnitTime | None, names: Sequence[str]) -> Iterator[str]:
        """Yield further sentences that the user must know, for example that too few steps were timed."""
        for name in sorted(_unknown(self.runs[1]).intersection(names)):
            yield f"no process of {self.after.run} reported at its end whether {name} was still in force"
        for run, found in zip(self.runs, self.units, strict=True):
            if wall is None and (found is None or not select_unprofiled_times(found)):
                yield f"{run.run}: too few steps were timed without the profiler"
            elif found is not None and found.tracing.startswith("not settled"):
                yield f"{run.run}: the times of its steps are {found.tracing}"
        if (
            wall is None
            and all(x is not None and select_unprofiled_times(x) for x in self.units)
            and self.share >= SHARE
        ):
            yield "no kind of step (for example training steps) was timed without the profiler in both runs"


def _values(tables: Tables, name: str) -> Mapping[str, str]:
    """Return the value of the fact ``name`` (for example the rank) in each file of the run.

    The keys are the ids of the files.
    """
    rows = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == name)]
    return {str(source): str(value) for source, value in zip(rows["source_id"], rows["value"], strict=True)}


def _find_changes_made(tables: Tables, kind: str = APPLIED) -> set[str]:
    """Return the names of the changes with which a job ran, as its processes reported them or as its settings show.

    A setting that a process lost (``_lost``) is left out. ``kind`` selects other reports about a change, for example
    that the change failed.
    """
    names = tables.facts.loc[tables.facts["run"] == tables.run, "name"].astype(str)
    marked = {x.removeprefix(kind) for x in names if x.startswith(kind)}
    if kind != APPLIED:
        return marked
    found = units(tables)
    return (marked | (found.settings if found else frozenset())) - _lost(tables).keys()


def _lost(tables: Tables) -> Mapping[str, set[str]]:
    """Return the changes of a job that were not in force any more when one of its processes ended.

    The values name the settings of PyTorch that were set to another value.
    """
    out: dict[str, set[str]] = {}
    for name, found in _at_end(tables):
        if found.get("at_end") == LOST:
            out.setdefault(name, set()).add(str(found.get("undone")))
    return out


def _unknown(tables: Tables) -> set[str]:
    """Return the changes of which no process of the job says whether they were in force when it ended.

    Reports of an older ``apply.py`` never say it, so they are not counted.
    """
    said: dict[str, set[str]] = {}
    for name, found in _at_end(tables):
        said.setdefault(name, set()).add(str(found.get("at_end", IN_FORCE)))
    return {name for name, words in said.items() if words == {UNKNOWN}}


def _at_end(tables: Tables) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield what each process of the job reported about each change that it applied."""
    rows = tables.facts[tables.facts["run"] == tables.run]
    for name, value in zip(rows["name"].astype(str), rows["value"].astype(str), strict=True):
        if name.startswith(APPLIED):
            yield name.removeprefix(APPLIED), json.loads(value)


def _ranks(tables: Tables) -> Mapping[str, set[str]]:
    """Return which ranks of the job counted their steps (key ``units``), and which were traced (key ``trace``)."""
    of = _values(tables, "rank")
    return {
        what: {of[x] for x in _values(tables, name) if x in of} for what, name in (("units", UNIT), ("trace", KINDS))
    }


def _unlike_ranks(tables: Tables) -> Iterator[str]:
    """Yield a sentence if the ranks of one run do different work, because an average over them then means nothing."""
    of = _values(tables, "rank")
    found = units_by_source(tables.facts[tables.facts["run"] == tables.run])
    ranks = [x for source, x in found.items() if source in of and not x.alone]
    numbers = [x.count for x in ranks]
    if len({x.sort for x in ranks}) > 1 or (numbers and min(numbers) < (1 - _ALIKE) * max(numbers)):
        made = ", ".join(f"{x.count} of {x.word}" for x in ranks[:_SHOWN])
        yield f"the ranks of {tables.run} do different work ({made} …)"


def by_group(tables: Tables) -> dict[str, float]:
    """Return the GPU time of a run by kind of operator, µs.

    The kinds are convolutions, GEMMs, and each other operator by its name.
    """
    rows = kernels_of_run(tables)
    if not len(rows):
        return {}
    kind = rows["problem"].astype("object").fillna("").str.partition(" ")[0].map({"conv": CONVOLUTION, "gemm": GEMM})
    totals = rows.groupby(kind.fillna(rows["op"]))["total_us"].sum()
    return {str(name): float(us) for name, us in totals.items()}


def answer(found: ActionProof) -> Answer:
    """Return the output of ``verify`` for changes of a job: the time that they saved, and the time that was predicted.

    The exit code tells whether the changes helped.
    """
    table = [
        {
            "operators": x.name,
            "before_us": round(x.measured.now_us, 3),
            "promised_us": round(x.promised.then_us, 3),
            "after_us": round(x.measured.then_us, 3),
            "gained_us": round(x.measured.saving_us, 3),
        }
        for x in found.groups
    ]
    first, *more = lines(found)
    return Answer(
        [cut_to_width(f"verify: {first}"), *more], table, "verify --action", code=0 if found.ok else CHECK_FAILED
    )


def headline(found: ActionProof) -> str:
    """Return the verdict as a line of text, with the times before and after if they are known.

    For example: "verified: step 48 ms → 31 ms with tf32".
    """
    if found.lost:
        were = "was" if len(found.lost) == 1 else "were"
        return f"{found.verdict}: {' and '.join(found.lost)} {were} not in force until the end of {found.after}"
    gain = found.wall or found.measured
    times = (gain.now_us, gain.then_us)
    what = f"{found.unit} " if found.wall else f"GPU computation of a {found.unit} "
    moved = f"{what}{duration(times[0])} → {duration(times[1])} with " if all(times) and found.share else ""
    return f"{found.verdict}: {moved}{found.named}"


def lines(found: ActionProof) -> list[str]:
    """Return at most 12 lines for the user: the verdict, the promised and the measured gain, and what became slower."""
    out = []
    gain = found.measured
    if gain.now_us and gain.then_us and found.share and not found.lost:
        out.append(
            f"GPU computation {duration(gain.now_us)} → {duration(gain.then_us)}, {describe_gain(gain.saving_us)}, "
            f"promised {format_difference(found.promised.saving_us)} {_interval(found.promised)}"
        )
    wall = found.wall
    if wall is None:
        out.append(f"wall time of a {found.unit} without the profiler: unknown")
    else:
        of = (
            f"{pluralize(wall.runs, 'run')} of each version, in turns"
            if wall.runs
            else "one run of each version, divided into blocks of steps"
        )
        of = f"{wall.turns} turns in {pluralize(wall.runs, 'pair')} of runs" if wall.turns else of
        out.append(f"wall time of a {found.unit}: {describe_gain(wall.saving_us)} {_interval(wall)} ({of})")
        out += _said_of_the_wall(found)
    if found.same and found.verdict == "had no effect":
        out.append(
            "the same kernels ran as before: the change affected no call of the job, or chose the kernels that ran "
            "before"
        )
    a, b = found.collectives_us
    if abs(b - a) > 0.005 * max(gain.now_us, a):
        moved_by = f"{format_difference(b - a)} ({duration(a)} → {duration(b)})"
        out.append(f"exposed communication changed by {moved_by}, which the change does not explain")
    if found.share < 1:
        out.append(f"kinds of steps that both runs have take {found.share:.0%} of the time of {found.before}")
    if found.share >= SHARE and not found.doubts:
        moved = [x for x in found.groups[:_SHOWN] if abs(x.measured.saving_us) > 0.005 * gain.now_us]
        if moved and not found.unexplained:
            out.append("kinds of kernels that changed most: " + _list_group_times(moved))
        if found.unexplained:
            out.append(
                "kinds of kernels whose time fell far more than `recommend` promised, for an unknown reason: "
                + _list_group_times(found.unexplained)
            )
    unproven = [found.unproven] * bool(found.unproven)
    out += [*dict.fromkeys((*found.doubts, *unproven, *found.notes))][:_SHOWN]
    return [cut_to_width(headline(found)), *(line for x in out for line in _wrap_details(x))]


def _interval(gain: Gain) -> str:
    """Format the interval of a saving: ``[2.0 ms, 4.1 ms]``."""
    low, high = gain.ends_us
    return f"[{format_difference(gain.now_us - high)}, {format_difference(gain.now_us - low)}]"


def _wrap_details(text: str) -> list[str]:
    """Wrap and indent a line of details so that it fits the terminal (``COLUMNS`` characters)."""
    return fill(text, COLUMNS, initial_indent="  ", subsequent_indent="    ").splitlines()


def _said_of_the_wall(found: ActionProof) -> Iterator[str]:
    """Yield sentences for the user about the wall time of a step: the predicted gain, and why it may not appear.

    The reasons are given if the measured times prove nothing, or if the step cannot become shorter.
    """
    step = found.step
    if step is not None:
        yield f"promised for the wall time, by simulation: {format_difference(step.saving_us)} {_interval(step)}"
    if found.of_the_host:
        yield (
            "the kernels do not explain this difference; the host or communication may differ between two starts of "
            "the job"
        )
    elif found.undecided:
        yield (
            "the result is too uncertain to decide, because the times of steps differ by more than the gain; time "
            "longer runs, or more runs (`tune --pairs 12`)"
        )
    elif not found.faster and (why := found.limit or found.little):
        yield why


def _list_group_times(groups: Sequence[Group]) -> str:
    return ", ".join(f"{x.name} {duration(x.measured.now_us)} → {duration(x.measured.then_us)}" for x in groups)
