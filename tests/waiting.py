"""Waiting for what another process does, also on a machine that is busy with others."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Wall time that no wait takes: it bounds a wait for what never comes, and no assertion is about it."""


def wait_until(true: Callable[[], object], every_s: float = 0.02) -> bool:
    """Whether it has become true."""
    end = time.monotonic() + PATIENCE_S
    while not (now := true()) and time.monotonic() < end:
        time.sleep(every_s)
    return bool(now)
