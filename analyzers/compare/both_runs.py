"""Compare two runs of a job, before and after a change, only in the kinds of steps that both did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analyzers.actions import ActionResult
from analyzers.actions.action import CONVOLUTION, GEMM
from analyzers.compare.proof import SHARE, Group
from analyzers.compare.unit_time import SideBySide, Times, UnitTime, unit_time
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import reweigh_kinds, traced_kinds, units, units_of_facts, word_of
from analyzers.job.gpu_time import COMMUNICATION, gpu_time, kernels_of_run, steps, traced_us
from analyzers.job.step.answer import WORTH
from logparse.libraries.own.job_units import KIND
from logparse.model import Gain


class BothRuns:
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
