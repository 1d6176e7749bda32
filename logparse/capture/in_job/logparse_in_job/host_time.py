"""The host's own time for a unit: from an idle GPU to the moment when the host has issued the unit."""

from __future__ import annotations

import time
from typing import Optional

import torch

from . import ordinary
from .units import Kind

_EVERY = 5
"""Interval of timed units.  Before every fifth unit the host waits until the GPU is idle."""


class HostTime:
    """Timer of every fifth unit by the host's clock.

    ``disturbed`` is True if the present unit began with an idle GPU.
    """

    def __init__(self) -> None:
        self.disturbed = False
        self._from: Optional[float] = None

    def unit_ended(self, kind: Kind, count: int, at: float) -> None:
        """Record the host's time of the unit that ended at ``at`` (s).

        After every fifth unit, wait until the GPU is idle, so that the host's time of the next unit can be taken.
        """
        began, self._from = self._from, None
        if began is not None:
            kind.host_us.append(1e6 * (at - began))
        if count % _EVERY == 0 and ordinary.on_gpu() and not ordinary.is_capturing():
            torch.cuda.synchronize()
            self.disturbed, self._from = True, time.perf_counter()
