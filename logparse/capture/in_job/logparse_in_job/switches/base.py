"""Base class of the objects that switch a change of the job on and off, and a class that combines several of them."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence


class Job(NamedTuple):
    """The parts of the user's job that a change may alter: its models (outermost modules) and its optimizers."""

    models: Sequence[Any]
    # An optimizer that makes its first step while a change is on is added, because its state must be changed back, too.
    optimizers: List[Any]


class RefusedError(Exception):
    """Raised if a change cannot be switched on or off in this process.

    The text is the reason, for example "it acts only on a GPU". "It" is the change.
    """


class Switch:
    """Switches one change of the job, such as TF32, on and off, between two steps of the job.

    * ``roundoff``: allowed relative difference in a layer's output beyond rounding.
    * ``detail``: what was changed, for the user.
    """

    # 0 means that no difference is allowed in addition to rounding.
    roundoff = 0.0
    # This is known after the first ``on``.
    detail = ""

    def on(self, job: Job) -> None:
        """Switch the change on. Raises RefusedError if that is not possible, or if there is nothing to change.

        After such an error the job is as it was before.
        """
        raise NotImplementedError

    def off(self) -> None:
        """Take back everything that ``on`` has changed. If the change is not on, do nothing."""
        raise NotImplementedError

    def hinders(self) -> str:
        """Return the reason why the change cannot be switched off at this moment, or an empty text.

        The usual reason is that the job's next backward pass would fail without the change.
        """
        return ""

    def disturbed(self) -> str:
        """Return a sentence for the user if the job itself has changed the same setting while the change was on.

        Otherwise returns an empty text.
        """
        return ""


class Several(Switch):
    """Combines several changes into one that is switched on and off as a whole."""

    def __init__(self, parts: Sequence[Switch]) -> None:
        self._parts = parts
        self._on: List[Switch] = []
        self.roundoff = max(x.roundoff for x in parts)

    def on(self, job: Job) -> None:
        """Make all changes of the job that this object combines, for example TF32 and another memory layout.

        If a change fails, the changes that were already made are undone, and the error is raised.
        """
        try:
            for part in self._parts:
                part.on(job)
                self._on.append(part)
        except BaseException:
            self.off()
            raise
        self.detail = "; ".join(x.detail for x in self._parts if x.detail)

    def off(self) -> None:
        """Undo all changes of the job that this object combines, the last one first."""
        while self._on:
            self._on[-1].off()
            self._on.pop()

    def hinders(self) -> str:
        """Return the reason why one of the changes cannot be switched off at this moment, or an empty text.

        The usual reason is that the job's next backward pass would fail without the change.
        """
        return next((why for x in self._on if (why := x.hinders())), "")

    def disturbed(self) -> str:
        """Return a sentence for the user if the job itself has altered one of the settings while the changes were on.

        Otherwise returns an empty text.
        """
        return next((why for x in self._on if (why := x.disturbed())), "")
