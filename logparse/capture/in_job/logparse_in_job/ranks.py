"""Let all ranks (processes) of a distributed job try the same changes at the same step.

Between the same two steps each rank sends a message and reads the messages of all other ranks. All ranks decide from
the same messages, so all do the same. The messages go through the job's own key-value store of ``torch.distributed``.
No collective operation is used, because the job would hang if one rank did not reach it.
"""

from __future__ import annotations

from typing import Any, Dict, List

from .unpatched import Python

_LATE_S, _POLL_S = 30.0, 0.002
_KEY = "logparse_try"
_ALL = "all"
"""Value that says that all ranks have sent their message in time."""


class LateError(Exception):
    """Raised if a rank (a process of a distributed job) did not send its message in time. The text names the rank."""


class Alone:
    """Used instead of ``Ranks`` in a job that has only one process, so that no messages are sent."""

    rank, count = 0, 1
    hindrance = ""
    """Reason why no change can be tried in this process. Here it is always an empty text."""

    def exchange(self, said: Dict[str, Any]) -> List[Dict[str, Any]]:
        """Return a list that holds only this process's own message, because there is no other rank."""
        return [said]

    def begins_at(self, units: int, ready: bool, ahead: int) -> bool:
        """Tell whether this process may now begin to try changes of the job, such as TF32. Returns ``ready``."""
        # A single process need not wait for others. So the number of steps so far (``units``) and of steps until all
        # processes begin (``ahead``) are not used.
        return ready


class Strangers(Alone):
    """Stands in for ``Ranks`` if the processes (ranks) of the job cannot send messages to each other.

    Then no change such as TF32 can be tried in the job. ``why`` says why there are no messages.
    """

    def __init__(self, why: str) -> None:
        # All ranks would have to switch a change on together.
        self.hindrance = why


class Ranks(Alone):
    """Exchanges messages between the ranks of a job, through the key-value store of ``torch.distributed``.

    ``store`` has the methods ``set``, ``get``, ``check`` and ``compare_set``.
    """

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self._store = store
        self.rank, self.count = rank, count
        self._number = 0
        self._begin = 0

    def exchange(self, said: Dict[str, Any]) -> List[Dict[str, Any]]:
        """Send the message ``said`` to all ranks, and return the messages of all ranks, beginning with rank 0.

        Raises LateError in every rank if one message is missing after ``_LATE_S`` seconds.
        """
        self._number += 1
        self._store.set(f"{_KEY}_{self._number}_{self.rank}", Python.dumps(said))
        keys = [f"{_KEY}_{self._number}_{rank}" for rank in range(self.count)]
        # It cannot happen that some ranks go on and others do not. The first rank that has all messages, or has waited
        # for too long, decides for all.
        decision = self._decision(keys)
        if decision != _ALL:
            raise LateError(f"rank {decision} did not reach the same unit of work within {_LATE_S:.0f} s")
        return [Python.loads(self._store.get(key)) for key in keys]

    def _decision(self, keys: List[str]) -> str:
        """Wait until all processes (ranks) of the job have sent a message, or until one of them is too late.

        ``keys`` are the names of the messages, in the order of the ranks. Returns ``_ALL`` or the number of the late
        rank.
        """
        made, by = f"{_KEY}_{self._number}_decision", Python.monotonic() + _LATE_S
        while not self._store.check([made]):
            missing = next((rank for rank, key in enumerate(keys) if not self._store.check([key])), None)
            if missing is None or Python.monotonic() > by:
                mine = _ALL if missing is None else str(missing)
                # The first rank that knows the result stores it, so that all ranks return the same.
                return str(self._store.compare_set(made, "", mine).decode())
            Python.sleep(_POLL_S)
        return str(self._store.get(made).decode())

    def begins_at(self, units: int, ready: bool, ahead: int) -> bool:
        """Return True if this rank must begin now to try changes. It has done ``units`` steps of the job so far.

        All ranks begin at the same step.
        """
        if not self._begin and self.rank == 0 and ready:
            # Rank 0 announces the step so early that no other rank has already passed it.
            self._begin = units + ahead
            self._store.set(f"{_KEY}_begin", str(self._begin))
        elif not self._begin and self.rank and self._store.check([f"{_KEY}_begin"]):
            self._begin = int(self._store.get(f"{_KEY}_begin"))
        return 0 < self._begin <= units
