"""State of each thread of the job: the model calls and steps that have begun and not yet ended."""

from __future__ import annotations

import threading
from typing import Any, Dict

from .units import Leader


class Calls:
    """Counts the calls of the job's models since the last step ended.

    ``count`` is their number. ``shapes`` describes the inputs of the first call, for example ``float32[16, 3, 224,
    224]``. A call without gradients, for example of a teacher, may be a step of its own. The calls before it are then
    set aside until it ends.
    """

    __slots__ = ("_aside", "count", "shapes")

    def __init__(self) -> None:
        self.begin_anew()

    @property
    def name(self) -> str:
        """A name for the job's step, made from the inputs and the number of the model calls in it.

        For example, ``float32[16, 3, 224, 224] x2`` is a step with two calls.
        """
        return self.name_of_each(1)

    def name_of_each(self, steps: int) -> str:
        """Return the name of each of several equal steps, to which the calls belong."""
        count = self.count // steps
        return self.shapes + (f" x{count}" if count > 1 else "") or "?"

    def begin_anew(self) -> None:
        self.count, self.shapes, self._aside = 0, "", (0, "")

    def set_aside(self, shapes: str) -> None:
        """Set aside the calls until now, and count a new call with these input ``shapes``.

        The new call may be a step by itself.
        """
        self._aside = self.count - 1, self.shapes
        self.count, self.shapes = 1, shapes

    def take_back(self) -> None:
        """Go on with the calls that were set aside, because the call after them has ended."""
        (self.count, self.shapes), self._aside = self._aside, (0, "")


Leaders = Dict[str, Leader]


class UnderWay(threading.local):
    """The present activity of one thread of the job: whether it is inside a model's call or a step.

    * ``inside`` is True within a call of a model. The calls of the modules in the model are not counted separately.
    * ``token`` holds data about this call, if it is observed.
    * ``later`` is True if this call is counted when it ends (``lean.py``). ``whole`` then says that it raised no
      exception so far, and ``key`` what the name of its inputs depends on, if they were read at its begin.
    * ``open`` says what kind of wrapped function is being called (``named`` or ``request``), or is empty.
    * ``last_ends`` holds the moment at which the last step ended, by how it was recognised.
    * ``leaving`` is an object that Python deletes when the thread ends.
    * ``within`` is True while one of logparse's own functions runs (``guard.py``).
    * ``lean`` holds this thread's counters once tracing is over (``lean.py``), and before that None.
    """

    def __init__(self) -> None:
        self.leaving: Any = None
        self.within = False
        self.begin_anew()

    def begin_anew(self) -> None:
        self.inside = False
        self.token: Any = None
        self.later, self.whole = False, True
        self.key: Any = None
        self.open = ""
        self.calls = Calls()
        self.last_ends: Dict[str, Any] = {}
        self.leaders: Leaders = {"optimizer": Leader(), "forward": Leader(soon=10)}
        self.lean: Any = None
