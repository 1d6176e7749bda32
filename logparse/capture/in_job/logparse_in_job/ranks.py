"""Ranks of a job that tries actions.  Between the same two units, each rank reads the messages of all other ranks.

Every rank then decides from the same messages, so all ranks do the same.  The messages go through the job's own store
of ``torch.distributed``.  No collective of ours runs, because the job would hang if one rank did not reach it.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List

_LATE_S, _POLL_S = 30.0, 0.002
_KEY = "logparse_try"
_ALL = "all"
"""Decision that the messages of all ranks have come in time."""


class LateError(Exception):
    """Error if a rank did not send its message in time.  The text names the rank."""


class Alone:
    """Single process without other ranks."""

    rank, count = 0, 1
    hindrance = ""
    """Reason why no action can be tried in this process.  It is empty if actions can be tried."""

    def exchange(self, said: Dict[str, Any]) -> List[Dict[str, Any]]:
        """Send the message ``said`` to all ranks.  Return the messages that the ranks send now, with rank 0 first."""
        return [said]

    def begins_at(self, units: int, ready: bool, ahead: int) -> bool:
        """Tell whether a trial begins after ``units`` units.

        ``ready`` is True if rank 0 is ready for the trial.  ``ahead`` is the number of units between rank 0's
        announcement and the beginning.
        """
        return ready


class Strangers(Alone):
    """Rank that cannot reach the other ranks."""

    def __init__(self, why: str) -> None:
        self.hindrance = why


class Ranks(Alone):
    """Rank with a store.  ``store`` has ``set``, ``get``, ``check`` and ``compare_set``."""

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self._store = store
        self.rank, self.count = rank, count
        self._number = 0
        self._begin = 0

    def exchange(self, said: Dict[str, Any]) -> List[Dict[str, Any]]:
        """Return the present messages of all ranks.

        Raises LateError in every rank if a message is missing in one rank after ``_LATE_S`` seconds.  The first rank
        that has all messages, or has waited so long, decides for all ranks.  So a late rank does not go on alone.
        """
        self._number += 1
        self._store.set(f"{_KEY}_{self._number}_{self.rank}", json.dumps(said))
        keys = [f"{_KEY}_{self._number}_{rank}" for rank in range(self.count)]
        decision = self._decision(keys)
        if decision != _ALL:
            raise LateError(f"rank {decision} did not reach the same unit of work within {_LATE_S:.0f} s")
        return [json.loads(self._store.get(key)) for key in keys]

    def _decision(self, keys: List[str]) -> str:
        """Wait for the messages with these keys.  Return ``_ALL``, or the number of a rank that is late."""
        made, by = f"{_KEY}_{self._number}_decision", time.monotonic() + _LATE_S
        while not self._store.check([made]):
            missing = next((rank for rank, key in enumerate(keys) if not self._store.check([key])), None)
            if missing is None or time.monotonic() > by:
                mine = _ALL if missing is None else str(missing)
                return str(self._store.compare_set(made, "", mine).decode())
            time.sleep(_POLL_S)
        return str(self._store.get(made).decode())

    def begins_at(self, units: int, ready: bool, ahead: int) -> bool:
        """Tell whether a trial begins.  Rank 0 announces the unit early enough that no other rank has passed it."""
        if not self._begin and self.rank == 0 and ready:
            self._begin = units + ahead
            self._store.set(f"{_KEY}_begin", str(self._begin))
        elif not self._begin and self.rank and self._store.check([f"{_KEY}_begin"]):
            self._begin = int(self._store.get(f"{_KEY}_begin"))
        return 0 < self._begin <= units
