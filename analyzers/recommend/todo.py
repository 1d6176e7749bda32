"""Describe one thing to do (``Todo``) in words: its saving, how sure that is, and what it rests on.

The screen, the files and the web page show these words, so that they are the same everywhere. Times are µs of GPU time
per *unit*:

* a step, if traces mark steps or the user counts them;
* else the whole run;
* else one call of each operator (with sizes), if nothing counts calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from analyzers.recommend.whole import A_RUN, LEAST
from logparse.capture.in_job.logparse_in_job.switches import TOGETHER
from logparse.model import UPPER_BOUND, ChangeProgram, Gain, Remedy, Sureness
from logparse.text import duration, in_one_unit, join_times

Unit: TypeAlias = Literal["step", "run", "call"]
PROBABLY = "probably "
NOTHING, UNCONFIRMED = "may gain nothing", "not confirmed"
UNSETTLED = "if not in use yet"
"""The certainty of a saving by a user find-db that the job may read already."""


@dataclass(frozen=True)
class Todo:
    """One thing that the user can do to make the job faster.

    * ``gain``: the GPU time now and afterwards. None if unknown. If ``sureness`` is ``unknown``, its saving is the
      largest possible one.
    * ``name``: an id, the argument of ``--explain``. ``title``: a verb and its object.
    * ``changes``: what changes, such as a file that is read, a setting, or lines of the program.
    * ``findings``: the numbers, from 1, of its findings in the ranking. Actions and remarks are found by ``name``
      instead.
    * ``step``: the wall time of a step, now and afterwards. It was measured in the job, else simulated. None if
      unknown.
    * ``bounded``: True if ``step.then_us`` is only a lower bound, because the step cannot gain more than with kernels
      that take no time.
    * ``exact``: True if results change only by the order in which numbers are added.
    * ``waits``: True if the saving shortens a wait in the step and not the kernels.
    * ``confirmed``: True if a test confirmed every saving.
    * ``doubt``: ``not confirmed`` if a test could confirm the saving and none did, ``may gain nothing`` if the interval
      of the saving contains no gain, else empty.
    * ``slowed_by``: what the step waits for, if the step gains less than half of what its kernels save, such as ``the
      host``. Else empty.
    * ``most_us``: the most that the step may gain, µs, if the profiler or logs slowed the host of the simulated step.
      Without them the step gains something between the saving of ``step`` and this. Else None.
    * ``usual``: the step now and afterwards if its host needs half of its traced time, as usual without the profiler
      (docs/measurement.md). The saving that is shown is then this one. None if the time without the profiler is known,
      or if the host's speed does not matter.
    * ``rests_on``: what the estimate takes for granted, such as ``50% of the roofline is reached``. Empty if it
      takes nothing for granted.
    * ``waits_for``: the wait of the step that the change shortens, ``host`` or ``communication``. Else empty.
    * ``processes``: the number of processes whose calls the saving is the sum of, if it is one of a run.
    * ``assumes``: the condition under which anything is saved, if no file of the job settles it. Else empty.
    """

    name: str
    title: str
    what: str
    gain: Gain | None
    unit: Unit
    sureness: Sureness
    remedy: Remedy
    changes: str
    findings: tuple[int, ...] = ()
    step: Gain | None = None
    bounded: bool = False
    exact: bool = True
    waits: bool = False
    confirmed: bool = False
    doubt: str = ""
    slowed_by: str = ""
    most_us: float | None = None
    usual: Gain | None = None
    rests_on: str = ""
    waits_for: str = ""
    processes: int = 0
    assumes: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the changes that are made together. Usually it is only ``name``."""
        return tuple(self.name.split(TOGETHER))

    @property
    def certainty(self) -> str:
        """How certain the saving is: how it was found (``sureness``), and whether a test confirmed it.

        For example: ``measured alone, confirmed``. If only the largest possible saving is known, it is ``upper bound
        only``.
        """
        known = UPPER_BOUND if self.sureness == "unknown" and self.gain is not None else self.sureness
        more = "confirmed" if self.confirmed else self.doubt
        return f"{known}, {more}" if more else known

    @property
    def shown(self) -> Gain | None:
        """The gain that is shown to the user: the time of a step if it is known, or else the GPU time."""
        return self.gain if self.step is None else self.step

    @property
    def at_most(self) -> bool:
        """True if the shown saving (``shown``) is only an upper bound."""
        return self.bounded or (self.step is None and self.sureness == "unknown")

    @property
    def saving_us(self) -> float:
        """The GPU time that is saved, µs."""
        return 0.0 if self.gain is None else self.gain.saving_us

    @property
    def gained_us(self) -> float:
        """How much shorter a step becomes by the change, µs. If that is unknown, how much GPU time is saved."""
        return self.saving_us if self.step is None else max(self.step.saving_us, 0.0)

    @property
    def usual_us(self) -> float | None:
        """The time that a step usually gains without the profiler, µs (``usual``). None if it is unknown."""
        return None if self.usual is None else self.usual.saving_us

    @property
    def expected_us(self) -> float:
        """The time that the step is expected to gain, µs: ``usual_us`` if it is known, else ``gained_us``."""
        return self.gained_us if self.usual_us is None else self.usual_us

    @property
    def depends_on_limit(self) -> bool:
        """True if the saving depends on what limits the step, so that it cannot be added to other savings."""
        return bool(self.slowed_by or self.waits_for)

    @property
    def possible_us(self) -> float:
        """The most that a step may gain, µs: with the host of the trace and without the profiler.

        If the host's speed without the profiler is not estimated (``usual``), it is ``most_us``, if that is known.
        """
        if self.usual is not None:
            return max(self.gained_us, self.expected_us)
        return self.gained_us if self.most_us is None else self.most_us


def name_saving_unit(todo: Todo, word: str, whole: str) -> str:
    """Return the words that follow a saving, such as ``a step`` or ``for the whole trace``."""
    if todo.unit == "call":
        return f"a {of_calls(todo)}"
    joined = "of " if todo.usual is not None else "for "
    unit = f"a {word}" if todo.unit == "step" else f"{joined * whole.startswith(('the', 'all'))}{whole}"
    return unit + (f" {sum_text(todo)}" if whole == A_RUN and sum_text(todo) else "")


def sum_text(todo: Todo) -> str:
    """Return the remark on a saving of several processes, such as ``(sum of 2 processes)``. Empty for one process."""
    return f"(sum of {todo.processes} processes)" if todo.unit == "run" and todo.processes > 1 else ""


def of_calls(todo: Todo) -> str:
    """Return the word that follows a saving per call: ``call``, or ``call of each`` for several operators."""
    return "call of each" if len(todo.findings) > 1 else "call"


def change_text(todo: Todo) -> str:
    """Describe the change for the user.

    It begins with "less precise" if results become less precise.
    """
    return todo.changes if todo.exact else f"less precise: {todo.changes}"


def gain(todo: Todo) -> str:
    """Write a gain as text: the time of a step (else of the GPU) before and after.

    * ``45.4 → 41.1 ms``: measured or simulated
    * ``≈ 45.4 → 41.1 ms``: estimated
    * ``saves probably ≈ 18.5 ms (or 2)``: with a faster host than that of the trace (``usual``), or with that one
    * ``≈ 2 to 18.5 of 45.4 ms``: between two estimates (``most_us``)
    * ``up to 18.5 of 45.4 ms``: a bound, not measured
    * ``0 or 18.5 of 45.4 ms``: measured, if a condition holds
    """
    if todo.shown is None:
        return "unknown"
    if todo.usual is not None:
        return f"saves {saving_texts([todo], alone=True)[0]}"
    if todo.at_most or todo.assumes:
        return f"{mark(todo)}{join_times(todo.gained_us, 'of', todo.shown.now_us)}"
    return saving_texts([todo])[0] if todo.most_us is not None else mark(todo) + _arrow(todo.shown)


def usual_text(todo: Todo, each: str) -> str:
    """Write a saving that depends on the host (``usual``), with percentages. ``each``: its unit, such as ``a step``.

    For example ``saves probably ≈ 5.91 of ≈ 26.3 ms (22%), or 0.962 of 32.4 ms (3%) if the profiler did not slow the
    host``. Else it is empty.
    """
    usual, shown = todo.usual, todo.shown
    if usual is None or shown is None:
        return ""
    (saved, now, other, traced), unit = in_one_unit(
        [max(usual.saving_us, 0.0), usual.now_us, max(shown.saving_us, 0.0), shown.now_us]
    )
    shares = [f" ({share:.0%})" if round(share := 1 - x.ratio, 2) > 0 else "" for x in (usual, shown)]
    out = f"saves {_probably(todo)}{saved} of ≈ {now} {unit} {each}".rstrip() + shares[0]
    if not differs_if_traced(todo):
        return out
    return f"{out}, or {'≤ ' * todo.at_most}{other} of {traced} {unit}{shares[1]} if the profiler did not slow the host"


def hosts_text(todo: Todo) -> str:
    """Write the time before and after for each of two hosts, if a saving depends on the host (``usual``).

    For example ``probably ≈ 26.3 → 20.4 ms without the profiler, 32.4 → 31.4 ms if it did not slow the host``. Empty if
    only one saving is known, or if both are nothing or the same bound.
    """
    usual, shown = todo.usual, todo.shown
    if usual is None or shown is None:
        return ""
    if not differs_if_traced(todo) and (todo.at_most or todo.gained_us < LEAST * usual.now_us):
        return ""
    if todo.at_most:  # A bound has no arrow, because the time afterwards is only the shortest possible one.
        (least, now, most, traced), unit = in_one_unit([usual.saving_us, usual.now_us, todo.gained_us, shown.now_us])
        texts = f"≤ {least} of ≈ {now} {unit}", f"≤ {most} of {traced} {unit}"
    else:
        texts = f"≈ {_arrow(usual)}", _arrow(shown)
    less = differs_if_traced(todo) and todo.gained_us < usual.saving_us
    waits = ", for which the GPU then waits" if less else ""
    return f"probably {texts[0]} without the profiler, {texts[1]} if it did not slow the host{waits}"


def differs_if_traced(todo: Todo) -> bool:
    """True if the gain with the host that the trace shows is another one than the gain without the profiler.

    Of two bounds, only the larger one counts.
    """
    if todo.usual is None:
        return False
    more_us = todo.gained_us - todo.usual.saving_us
    return (more_us if todo.at_most else abs(more_us)) >= LEAST * todo.usual.now_us


def _arrow(gain: Gain) -> str:
    return join_times(gain.now_us, "→", gain.then_us)


def saving_texts(todo: Sequence[Todo], *, alone: bool = False) -> list[str]:
    """Write the savings of several things to do, all in one unit of time, such as ``82.5 of 330 ms``.

    A saving that depends on the host (``usual``) has the other one beside it: ``≈ 5.91 ms (or 0.962)``. With ``alone``,
    the text has no heading, which says ``probably``: ``probably ≈ 5.91 ms (or 0.962)``. The time of which the saving
    is a part is then left out.
    """
    times = [[] if x.shown is None else [*_ends(x), x.shown.now_us] for x in todo]
    numbers, unit = in_one_unit([us for each in times for us in each if us is not None])
    left, out = iter(numbers), []
    for x, each in zip(todo, times, strict=True):
        if not each:
            out.append("unknown")
            continue
        saved, other, now = (next(left) if us is not None else None for us in each)
        # With a faster host, the saving is a part of another time than with the traced host.
        of = "" if alone or x.usual is not None else f" of {now}"
        if other is not None and x.usual is not None:
            about = _probably(x).removeprefix("" if alone else PROBABLY)
            out.append(f"{about}{saved} {unit} (or {'≤ ' * x.at_most}{other})")
        else:
            out.append(f"{mark(x)}{saved}{'' if other is None else f' to {other}'}{of} {unit}")
    return out


def _ends(todo: Todo) -> tuple[float, float | None]:
    """Return the saving, µs, and another one if it depends on the host: the most, or that with the traced host."""
    if todo.usual is None:
        return todo.expected_us, todo.most_us
    return todo.usual.saving_us, todo.gained_us if differs_if_traced(todo) else None


def _probably(todo: Todo) -> str:
    """Return the words before a saving that depends on the host (``usual``): ``probably ≈ ``, ``probably ≤ ``."""
    if not differs_if_traced(todo):
        return mark(todo)
    return f"{PROBABLY}≤ " if todo.at_most else f"{PROBABLY}≈ "


def mark(todo: Todo) -> str:
    """Return the words before a saving that say how surely it is known.

    For example ``≈ `` before an estimate, ``up to `` before a bound, and ``0 or `` if it rests on a condition.
    """
    if todo.at_most:
        return "up to "
    if todo.assumes:
        return "0 or "
    simulated = todo.most_us is not None or todo.usual is not None
    return "≈ " if simulated or todo.sureness == "estimated" else ""


def interval_text(todo: Todo) -> str:
    """Return the interval of the saving as a text like ``range of the saving: 62 to 91.3 ms``.

    Empty if an end is unknown, or if the interval is small.
    """
    shown = todo.shown
    least, most = (None, None) if shown is None else (shown.saving_low_us, shown.saving_high_us)
    if shown is None or least is None or most is None or most - least < LEAST * shown.now_us:
        return ""
    # The interval of an action is one of 95 %. The interval of rows of a file adds up the intervals of the rows, and a
    # row that was not confirmed may save nothing.
    of_action = isinstance(todo.remedy, ChangeProgram) and not todo.findings
    name = "95% interval" if of_action else "range"
    if least <= 0 and todo.doubt == UNCONFIRMED:
        # The options of the user's own ``recommend`` are unknown here, so no command is named for it.
        return "0 if not confirmed (`logparse replay`, then recommend again)"
    return f"{name} of the saving: {join_times(least, 'to', most) if least > 0 else f'0 to {duration(most)}'}"


def kernels_text(todo: Todo) -> str:
    """Write the time of the kernels before and after a change as text, like ``the changed kernels 54.9 → 51.2 ms``.

    It is empty if the step's time or the kernels' saving is unknown, or if the change shortens a wait instead.
    """
    if todo.step is None or todo.gain is None or todo.sureness == "unknown" or todo.waits_for:
        return ""
    # The text is shown together with the step's time. If the step gains much less than its kernels, the text says how
    # much, and what the step waits for.
    but = ""
    if todo.usual is not None:
        lost_us = todo.saving_us - max(todo.usual.saving_us, 0.0)
        idle = f", {duration(lost_us)} of it becomes idle time" if lost_us >= LEAST * todo.usual.now_us else ""
        gains = f", the job {hosts}" if (hosts := hosts_text(todo)) else ""
        but = f" (−{duration(todo.saving_us)}{idle}){gains}"
    elif todo.most_us is not None:
        (least, most), unit = in_one_unit([todo.gained_us, todo.most_us])
        but = f", of which the job gains {least} {unit} (host as slow as in the trace) to {most} {unit} (fast host)"
    elif todo.slowed_by:
        (gained, saved), unit = in_one_unit([todo.gained_us, todo.saving_us])
        most = "at most " if todo.at_most else ""
        gains = f"{most}{gained} {unit}" if todo.gained_us > 0 else "nothing"
        but = f" (−{saved} {unit}), of which the job gains {gains}, because {todo.slowed_by} is the limit"
    return f"the changed kernels {_arrow(todo.gain)}{but}"


def granted(todo: Todo) -> str:
    """Write what an estimate takes for granted as text: ``assumes that 50% of the roofline is reached``."""
    return f"assumes that {todo.rests_on}" if todo.rests_on else ""


def basis(todo: Todo) -> str:
    """Write what a saving rests on as text. Empty if there is nothing to say.

    It has the range of the saving, how much of the kernels' saving arrives in a step, the saving with each of two
    hosts, and what an estimate assumes.
    """
    return "; ".join(filter(None, [range_text(todo), kernels_text(todo) or hosts_text(todo), granted(todo)]))


def range_text(todo: Todo) -> str:
    """Return ``interval_text`` if the saving is a measured or estimated one, and no bound or condition."""
    unsure = todo.at_most or todo.assumes or todo.most_us is not None or todo.usual is not None
    return "" if unsure else interval_text(todo)
