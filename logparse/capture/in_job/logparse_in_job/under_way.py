"""Calls and units in one thread of the job that have begun and not ended."""

from __future__ import annotations

import threading
from typing import Any, Dict

from .units import Leader


class Calls:
    """Outermost calls since the last unit: their number, and the sizes of the first call's inputs."""

    def __init__(self) -> None:
        self.count, self.shapes = 0, ""

    @property
    def name(self) -> str:
        """Name of the kind of the unit to which these calls belong."""
        return self.shapes + (f" x{self.count}" if self.count > 1 else "") or "?"

    def begin_anew(self) -> None:
        self.count, self.shapes = 0, ""


class UnderWay(threading.local):
    """State of the present thread.

    * ``inside``: True within a call of an outermost module.
    * ``token``: data about this call, if it is observed.
    * ``open``: the sort of a wrapped function that is being called.
    * ``last_ends``: the moment at which the last unit of each sort ended.
    * ``leaving``: an object that ends with the thread.
    """

    def __init__(self) -> None:
        self.leaving: Any = None
        self.begin_anew()

    def begin_anew(self) -> None:
        self.inside = False
        self.token: Any = None
        self.open = ""
        self.calls = Calls()
        self.last_ends: Dict[str, Any] = {}
        self.leaders = {"optimizer": Leader(), "forward": Leader()}
