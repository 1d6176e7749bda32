"""Interface of a switch, and a switch of several parts."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence


class Job(NamedTuple):
    """Objects that a switch may change: the job's outermost modules and its optimizers."""

    models: Sequence[Any]
    optimizers: Sequence[Any]


class RefusedError(Exception):
    """Error if an action cannot be switched in this process.

    The text is the reason, as a clause about "it" or the job.
    """


class Switch:
    """One action.  ``on`` and ``off`` alternate, each between two units of the job.

    * ``roundoff``: the relative change of a layer's output that the action claims beyond rounding (0: none).
    * ``detail``: what it has changed, for the user.  It is known once the switch was on.
    """

    roundoff = 0.0
    detail = ""

    def on(self, job: Job) -> None:
        """Switch the action on.

        Raises RefusedError, with nothing changed, if it cannot be on, or has nothing to change.
        """
        raise NotImplementedError

    def off(self) -> None:
        """Take back everything that ``on`` has changed.  Do nothing if the switch is off."""
        raise NotImplementedError

    def disturbed(self) -> str:
        """Tell how the job itself has changed the switch's setting while it is on.

        Return an empty text if it has not.
        """
        return ""


class Several(Switch):
    """Several switches at once."""

    def __init__(self, parts: Sequence[Switch]) -> None:
        self._parts = parts
        self._on: List[Switch] = []
        self.roundoff = max(x.roundoff for x in parts)

    def on(self, job: Job) -> None:
        """Switch all on, or none."""
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

    def disturbed(self) -> str:
        """Return the first reason of a part."""
        return next((why for x in self._on if (why := x.disturbed())), "")
