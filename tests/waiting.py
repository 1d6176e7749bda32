"""Wait in a test until something has happened, for example until another process has written a file.

The wait ends after 300 s, which is enough even on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Longest time in seconds that a test waits for something.

It is longer than any wait that succeeds. It only ends a wait for something that never happens.
"""


def wait_until(true: Callable[[], object], every_s: float = 0.02) -> bool:
    """Wait until ``true()`` returns a true value. Returns False if that takes longer than ``PATIENCE_S`` seconds."""
    end = time.monotonic() + PATIENCE_S
    while not (now := true()) and time.monotonic() < end:
        time.sleep(every_s)
    return bool(now)
