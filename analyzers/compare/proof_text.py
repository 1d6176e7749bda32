"""Write the judgement of a change to a job (``ActionProof``) as lines for a terminal and as ``verify``'s answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from analyzers.compare.proof import SHARE, SHOWN, ActionProof, Group
from logparse.model import Gain
from logparse.output import CHECK_FAILED, Answer
from logparse.text import describe_gain, duration, format_difference, line_width, pluralize


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
    return Answer([f"{_VERB}{first}", *more], table, "verify --action", code=0 if found.ok else CHECK_FAILED)


_VERB = "verify: "


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
        moved = [x for x in found.groups[:SHOWN] if abs(x.measured.saving_us) > 0.005 * gain.now_us]
        if moved and not found.unexplained:
            out.append("kinds of kernels that changed most: " + _list_group_times(moved))
        if found.unexplained:
            out.append(
                "kinds of kernels whose time fell far more than `recommend` promised, for an unknown reason: "
                + _list_group_times(found.unexplained)
            )
    unproven = [found.unproven] * bool(found.unproven)
    out += [*dict.fromkeys((*found.doubts, *unproven, *found.notes))][:SHOWN]
    width = line_width() - len(_VERB)  # ``answer`` puts the name of the command before the first line.
    head = fill(headline(found), width, subsequent_indent="    ").splitlines()
    return [*head, *(line for x in out for line in _wrap_details(x))]


def _interval(gain: Gain) -> str:
    """Format the interval of a saving: ``[2.0 ms, 4.1 ms]``."""
    low, high = gain.ends_us
    return f"[{format_difference(gain.now_us - high)}, {format_difference(gain.now_us - low)}]"


def _wrap_details(text: str) -> list[str]:
    """Wrap and indent a line of details so that it fits the terminal."""
    return fill(text, line_width(), initial_indent="  ", subsequent_indent="    ").splitlines()


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
