"""Wait for another process, even on a machine that is busy with others."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Wall time that no wait takes. It bounds a wait for something that never comes. No assertion depends on it."""


def wait_until(true: Callable[[], object], every_s: float = 0.02) -> bool:
    """Wait until ``true()`` holds. Returns False if it never does."""
    end = time.monotonic() + PATIENCE_S
    while not (now := true()) and time.monotonic() < end:
        time.sleep(every_s)
    return bool(now)
