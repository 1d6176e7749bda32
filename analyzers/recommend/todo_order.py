"""Order the list of things to do, the best first, and hide those whose saving does not show in a step."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.job.gpu_time import GpuTime
from analyzers.recommend.todo import Todo
from analyzers.recommend.whole import LEAST, NEGLIGIBLE, whole_us
from logparse.model import SURENESS, Replay, Sureness

_SMALL = 0.02
"""A saving below this fraction of the traced time (0 to 1) is not listed before a larger upper bound."""
_SHOWS = 0.05
"""If the GPU waits for the host, smaller savings of GPU time than this fraction of the step (0 to 1) are not listed.

They would not make the step shorter.
"""


_ORDERS: dict[Sureness, str] = {
    "measured in the job": "measured",
    "measured alone": "measured",
    "estimated": "estimates",
}


def rank(todo: Todo, time: GpuTime | None) -> tuple[bool, int, bool, float, float, str]:
    """Return a sort key for things to do, the best first.

    The surest gains come first, then the largest. Savings per call come last, because the number of calls is unknown.
    """
    whole = whole_us(time)
    # An upper bound is often far above the real gain, so surer gains come first. But a gain below _SMALL of the traced
    # time comes after larger upper bounds.
    small = todo.unit != "call" and whole is not None and todo.possible_us < _SMALL * whole
    in_job = todo.sureness == "measured in the job"
    # A measurement makes nothing faster, and what it will find is as unsure as an upper bound.
    unsure = (small and not in_job) or (isinstance(todo.remedy, Replay) and todo.sureness == "estimated")
    sure = SURENESS.index("unknown" if unsure else todo.sureness)
    # Equally sure gains without a condition come first. Then they are sorted by the time that a step gains, then by GPU
    # time.
    return todo.unit == "call", sure, bool(todo.assumes), -todo.expected_us, -todo.saving_us, todo.name


def is_hidden(todo: Todo, time: GpuTime | None) -> bool:
    """Tell whether a saving of GPU time should be left out of the list of things to do.

    There are two reasons: the saving is negligible, or the step waits for something else and would not become shorter.
    """
    whole = todo.step.now_us if todo.step is not None else whole_us(time)
    if todo.unit != "step" or not whole or todo.gain is None or todo.waits:
        return False
    if todo.possible_us < NEGLIGIBLE * whole:
        return True
    if todo.step is not None:
        profiled = time is not None and time.profiled  # The host is slower than without the profiler.
        return not profiled and todo.possible_us < min(todo.saving_us / 2, LEAST * whole)
    waits = time is not None and time.waits and time.steps and not time.profiled
    return bool(waits) and todo.saving_us < _SHOWS * whole


def name_order(todo: Sequence[Todo]) -> str:
    """Return a heading for the list of things to do, which names its order:

    ===================================  ===========================================================================
    ``to do``                            all are equally sure, or a small or unsure saving stands behind others
    ``to do, measured first``            measured savings stand before estimates, and estimates before upper bounds
    ``to do, estimates first``           estimates stand before upper bounds
    ``measured first, not the largest``  the same order, and a later one saves more than the first
    ===================================  ===========================================================================
    """
    ranks = [SURENESS.index(x.sureness) for x in todo]
    if len(set(ranks)) <= 1 or ranks != sorted(ranks):
        return "to do"
    known = [x for x in todo if x.gain is not None and x.unit == name_unit(todo)]
    less_sure = any(x.expected_us > known[0].possible_us for x in known)
    first = _ORDERS[todo[0].sureness]
    return f"{first} first, not the largest" if less_sure else f"to do, {first} first"


def name_unit(todo: Sequence[Todo]) -> str:
    """Return whether the savings on the screen are per ``step``, per ``run`` (whole job) or per ``call``.

    The first known saving decides it, and the heading above the list names it.
    """
    return next((x.unit for x in todo if x.gain is not None), "run")
