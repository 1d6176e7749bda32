"""Measure how long the host (the CPU) takes to issue the work of a step.

The measurement begins when the GPU is idle, and ends when the host has issued all kernels of the step.
"""

from __future__ import annotations

from typing import Optional

import torch

from . import ordinary
from .units import Kind
from .unpatched import Python

_EVERY = 5
"""The host's time is measured for every fifth step. Before each such step the host waits until the GPU is idle."""


class HostTime:
    """Measures how long the host (CPU) takes to issue the work of every fifth step of the job.

    ``disturbed`` is True if the present step is such a step, which begins with an idle GPU. Its GPU time is not used.
    """

    def __init__(self) -> None:
        self.disturbed = False
        self._from: Optional[float] = None

    def unit_ended(self, kind: Kind, count: int, at: float) -> None:
        """Note that a step of the job has ended, and prepare the next one if its host time is to be measured.

        * ``at``: when the step ended, in seconds.
        * ``count``: the number of steps so far.
        """
        began, self._from = self._from, None
        if began is not None:
            kind.host_us.append(1e6 * (at - began))
        # The next step is measured. Such a step begins when the GPU is idle.
        if count % _EVERY == 0 and ordinary.on_gpu() and not ordinary.is_capturing():
            torch.cuda.synchronize()
            self.disturbed, self._from = True, Python.perf_counter()
