"""What a switch is."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence


class Job(NamedTuple):
    """What a switch may change: modules that the job calls from outside of any other one, and its optimizers."""

    models: Sequence[Any]
    optimizers: Sequence[Any]


class RefusedError(Exception):
    """An action cannot be switched in this process; the text is the reason, as a clause about "it" or the job."""


class Switch:
    """One action.  ``on`` and ``off`` come by turns, each between two units of the job.

    ``roundoff``: the relative change of a layer's output that the action claims beyond what rounding does (0: none).
    ``detail``: what it has changed, for the user; known once it was on.
    """

    roundoff = 0.0
    detail = ""

    def on(self, job: Job) -> None:
        """Switch it on.  Raises RefusedError, with nothing changed, where it cannot be, or has nothing to change."""
        raise NotImplementedError

    def off(self) -> None:
        """Take everything back that ``on`` has changed; nothing where it is off."""
        raise NotImplementedError

    def disturbed(self) -> str:
        """What the job has changed itself of what the switch has set, while it is on; empty: nothing."""
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
        """Switch them off, the last one first."""
        while self._on:
            self._on[-1].off()
            self._on.pop()

    def disturbed(self) -> str:
        """The first one's."""
        return next((why for x in self._on if (why := x.disturbed())), "")
