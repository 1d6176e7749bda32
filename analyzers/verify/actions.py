"""Did an action do to the whole job what was promised?  GPU time of both runs' traces, by kind of operator.

What was promised is what ``recommend`` sums up for the run before; what was gained is the difference of all kernels'
time.  Both are per step where the traces mark steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.actions import ACTIONS, ActionResult
from analyzers.actions.action import step_interval
from analyzers.actions.totals import CONVOLUTION, GEMM, results
from analyzers.analyzer import Settings, Tables
from analyzers.job.gpu_time import kernels_of_run, steps, traced_us
from logparse.errors import InputError
from logparse.output import CHECK_FAILED, ROWS, Answer
from logparse.text import duration, signed

_SHOWN = 8
SHARE = 0.5
"""An action has kept its promise where it gained at least this share of it."""
BUSY = 0.85
"""A device that computes for less than this share of a step waits for the host: less GPU time does not show there."""


@dataclass(frozen=True)
class Group:
    """All operators of one kind: GPU time in µs, as it was, as promised, and as it is."""

    name: str
    before_us: float
    promised_us: float
    after_us: float


@dataclass(frozen=True)
class ActionProof:
    """Times are GPU time in µs per ``unit`` (step or run); ``step_us`` are the wall times of a step, where marked."""

    before: str
    after: str
    actions: tuple[str, ...]
    unit: str
    before_us: float
    promised_us: float
    low_us: float
    high_us: float
    after_us: float
    step_us: tuple[float, float] | None
    groups: tuple[Group, ...]

    @property
    def gained_us(self) -> float:
        return self.before_us - self.after_us

    @property
    def losers(self) -> tuple[Group, ...]:
        """Kinds of operators that take longer than before by at least 0.5 % of all, what loses most first."""
        slower = (x for x in self.groups if x.after_us - x.before_us > 0.005 * self.before_us)
        return tuple(sorted(slower, key=lambda x: x.before_us - x.after_us))

    @property
    def busy(self) -> tuple[float, float] | None:
        """Share of a step in which the device computed, before and after; None where steps are not marked."""
        if self.step_us is None:
            return None
        return self.before_us / self.step_us[0], self.after_us / self.step_us[1]

    @property
    def host_bound(self) -> bool:
        return self.busy is not None and min(self.busy) < BUSY

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the promise is not kept; empty where it is."""
        promise = self.before_us - self.promised_us
        if promise <= 0:
            return ("nothing was promised: the action was expected to cost time",)
        if self.gained_us <= 0:
            return ("the GPU time of the whole job did not fall",)
        if self.gained_us < SHARE * promise:
            return (f"{self.gained_us / promise:.0%} of what was promised was gained",)
        return ()

    @property
    def ok(self) -> bool:
        return not self.failures


def verify_actions(before: Tables, after: Tables, names: Sequence[str]) -> ActionProof:
    """Judge the named actions, which the run ``after`` has applied together.

    Raises InputError for a name that the run before promises nothing for, and where a run has no trace.
    """
    settings = Settings()
    promised = {x.action.name: x for x in results(before, ACTIONS, settings)}
    unknown = [name for name in names if name not in promised]
    if unknown:
        there = f"there is {', '.join(promised)}" if promised else "no replay has timed one (`logparse replay`)"
        there += "; override files are judged by `logparse verify BEFORE AFTER FILE…`"
        raise InputError(f"no action {', '.join(unknown)} of run {before.run}: {there}")
    chosen = [promised[name] for name in names]
    counts = [steps(x, settings)[0] for x in (before, after)]
    per = tuple(float(x) if x and all(counts) else 1.0 for x in counts)
    totals = [traced_us(x) for x in (before, after)]
    if totals[0] is None or totals[1] is None:
        raise InputError("an action is judged by all GPU time: both runs need a trace of torch.profiler")
    now = totals[0] / per[0]
    change, low, high = (
        sum((value(x) - x.now_us) / per[0] for x in chosen)
        for value in (_then, lambda x: x.low_us, lambda x: x.high_us)
    )
    interval = step_interval(now, now + change, now + low, now + high)
    return ActionProof(
        before=before.run,
        after=after.run,
        actions=tuple(names),
        unit="step" if all(counts) else "run",
        before_us=now,
        promised_us=now + change,
        low_us=interval[0],
        high_us=interval[1],
        after_us=totals[1] / per[1],
        step_us=_walls((before, after), settings, per) if all(counts) else None,
        groups=_groups(before, after, chosen, per),
    )


def _then(result: ActionResult) -> float:
    return result.then_us


def _walls(runs: tuple[Tables, Tables], settings: Settings, per: tuple[float, ...]) -> tuple[float, float] | None:
    walls = [steps(x, settings)[1] for x in runs]
    if walls[0] is None or walls[1] is None:
        return None
    return walls[0] / per[0], walls[1] / per[1]


def _groups(before: Tables, after: Tables, chosen: Sequence[ActionResult], per: tuple[float, ...]) -> tuple[Group, ...]:
    now, then = (by_group(x) for x in (before, after))
    change: dict[str, float] = {}
    for part in (x for result in chosen for x in result.parts):
        change[part.group] = change.get(part.group, 0.0) + part.then_us - part.now_us
    names = sorted({*now, *then})
    made = (
        Group(x, now.get(x, 0.0) / per[0], (now.get(x, 0.0) + change.get(x, 0.0)) / per[0], then.get(x, 0.0) / per[1])
        for x in names
    )
    return tuple(sorted(made, key=lambda x: (-abs(x.after_us - x.before_us), x.name)))


def by_group(tables: Tables) -> dict[str, float]:
    """GPU time of a run by kind of operator, µs: convolutions, GEMMs, and every other operator by its name."""
    rows = kernels_of_run(tables)
    kind = rows["problem"].astype("object").fillna("").str.partition(" ")[0].map({"conv": CONVOLUTION, "gemm": GEMM})
    totals = rows.groupby(kind.fillna(rows["op"]))["total_us"].sum()
    return {str(name): float(us) for name, us in totals.items()}


def answer(found: ActionProof) -> Answer:
    """Whether actions did what they promised: a row per kind of operator, those that changed most first."""
    table = [
        {
            "operators": x.name,
            **{name: round(getattr(x, name), 3) for name in ("before_us", "promised_us", "after_us")},
            "gained_us": round(x.before_us - x.after_us, 3),
        }
        for x in found.groups
    ]
    return Answer([table[:ROWS], *lines(found)], table, "verify --action", code=0 if found.ok else CHECK_FAILED)


def lines(found: ActionProof) -> list[str]:
    """What was promised and what was gained, what lost, and the verdict last."""
    promised, low, high = (found.before_us - x for x in (found.promised_us, found.high_us, found.low_us))
    head = f"{found.before} → {found.after}: {' and '.join(found.actions)}"
    out = [
        f"{head}: {duration(found.before_us)} → {duration(found.after_us)} of GPU time per {found.unit}",
        f"gained {signed(found.gained_us)} ({found.gained_us / found.before_us:+.1%}), promised {signed(promised)} "
        f"[{signed(low)}, {signed(high)}]",
    ]
    if found.step_us is not None and found.busy is not None:
        a, b = found.step_us
        out.append(
            f"the step: {duration(a)} → {duration(b)}; the GPU computes {found.busy[0]:.0%} → {found.busy[1]:.0%}"
        )
    if found.host_bound:
        out.append("host-bound: the GPU waits for the host, so less GPU time may not show in the step")
    out += [f"  loses: {x.name} ({duration(x.before_us)} → {duration(x.after_us)})" for x in found.losers[:_SHOWN]]
    out += [f"  failed: {failure}" for failure in found.failures]
    return [*out, "verified" if found.ok else "not verified"]
