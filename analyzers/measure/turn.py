"""Workers that share a device take turns at it: one at a time uses it, the others build on the host's cores.

A worker gives its turn back only while it builds, so whatever runs on the device runs there alone, and the samples
that decide a race follow each other as with a single worker.  Memory is shared: each worker holds its own problem's
operands, and where a problem does not fit beside the others' it waits until it is alone.

Both are locks of files (``flock``), which the kernel releases when a worker crashes or is killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from types import TracebackType

_POLL_S = 0.0005
"""A turn lasts some milliseconds."""
_HEARTBEAT_S = 0.5
"""A waiting worker reports that it is alive, so that the parent does not take it for one that hangs."""


class Turn:
    """The turn at a device whose workers share ``path``; None: the device is this worker's alone.

    ``waiting`` is called now and then while another worker has the turn.  Enter it to have the turn.
    """

    def __init__(self, path: str | None, waiting: Callable[[], None] = lambda: None) -> None:
        self.shared = path is not None
        self._turn = _Lock(path, waiting)
        self._memory = _Lock(f"{path}.memory" if path else None, waiting)

    def __enter__(self) -> None:
        """Wait for the turn, and keep memory of the device in use until the exit."""
        self._memory.take(exclusive=False)
        self._turn.take(exclusive=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turn.give_back()
        self._memory.give_back()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Others may use the device meanwhile."""
        self._turn.give_back()
        try:
            yield
        finally:
            self._turn.take(exclusive=True)

    def alone(self) -> None:
        """Wait until no other worker uses memory of the device, until the exit; this one must use none."""
        self._turn.give_back()
        self._memory.give_back()
        self._memory.take(exclusive=True)
        self._turn.take(exclusive=True)


class _Lock:
    """A file's lock, held by one process exclusively or by several together."""

    def __init__(self, path: str | None, waiting: Callable[[], None]) -> None:
        self._descriptor = None if path is None else os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._waiting = waiting

    def take(self, *, exclusive: bool) -> None:
        if self._descriptor is None:
            return
        import fcntl  # not on Windows, where no path is given

        how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
        reported = time.monotonic()
        while True:
            try:
                fcntl.flock(self._descriptor, how)
                return
            except BlockingIOError:
                time.sleep(_POLL_S)
            if time.monotonic() - reported > _HEARTBEAT_S:
                reported = time.monotonic()
                self._waiting()

    def give_back(self) -> None:
        if self._descriptor is None:
            return
        import fcntl

        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
