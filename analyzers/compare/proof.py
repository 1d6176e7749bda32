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

from dataclasses import dataclass
from typing import Literal, TypeAlias

from analyzers.actions.action import with_job_interval
from analyzers.compare.unit_time import UnitTime
from analyzers.job.step.answer import ERROR, WORTH, StepAnswer
from logparse.model import Gain
from logparse.text import duration

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
SHOWN = 3
"""Largest number of kinds of operators, of notes, and of ranks in a text for the user."""


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
            x for x in held[:SHOWN] if x.promised.then_us - x.measured.then_us > 0.005 * self.measured.now_us
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
