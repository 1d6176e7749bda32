"""Interface of a switch, and a switch of several parts."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence


class Job(NamedTuple):
    """Objects that a switch may change: the job's outermost modules and its optimizers.

    An optimizer that makes its first step while an action is on is then appended, because ``off`` must find its state.
    """

    models: Sequence[Any]
    optimizers: List[Any]


class RefusedError(Exception):
    """Error if an action cannot be switched in this process.

    The text is the reason, as a clause about "it" or the job.
    """


class Switch:
    """One action.  ``on`` and ``off`` are called alternately, each between two units of the job.

    * ``roundoff``: the relative change of a layer's output that the action declares beyond rounding (0: none).
    * ``detail``: what the action has changed, for the user.  It is known once the switch was on.
    """

    roundoff = 0.0
    detail = ""

    def on(self, job: Job) -> None:
        """Switch the action on.

        Raises RefusedError, with nothing changed, if the action cannot be on or has nothing to change.
        """
        raise NotImplementedError

    def off(self) -> None:
        """Take back everything that ``on`` has changed.  Do nothing if the switch is off."""
        raise NotImplementedError

    def hinders(self) -> str:
        """Tell why the job's next backward pass fails if the switch goes off now.  Return an empty text otherwise."""
        return ""

    def disturbed(self) -> str:
        """Tell how the job itself has changed the switch's setting while the switch was on.

        Return an empty text if the job has not changed it.
        """
        return ""


class Several(Switch):
    """Several switches at once."""

    def __init__(self, parts: Sequence[Switch]) -> None:
        self._parts = parts
        self._on: List[Switch] = []
        self.roundoff = max(x.roundoff for x in parts)

    def on(self, job: Job) -> None:
        """Switch all parts on.  If one part fails, switch none on."""
        try:
            for part in self._parts:
                part.on(job)
                self._on.append(part)
        except BaseException:
            self.off()
            raise
        self.detail = "; ".join(x.detail for x in self._parts if x.detail)

    def off(self) -> None:
        """Switch all off, the last switch first."""
        while self._on:
            self._on[-1].off()
            self._on.pop()

    def hinders(self) -> str:
        """Return the reason of the first part that has one."""
        return next((why for x in self._on if (why := x.hinders())), "")

    def disturbed(self) -> str:
        """Return the reason of the first part that the job has disturbed."""
        return next((why for x in self._on if (why := x.disturbed())), "")
