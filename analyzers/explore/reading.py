"""The processes that read a store for the page, and the folder that they fill (``prepare`` is what they run).

Imports little: the first process starts while this one still imports what draws.  The analyzers run in a second one,
which does not hold what the first one needed: the two together would take a gigabyte.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from analyzers.explore import cache
from analyzers.explore.job import DONE, FAILED, Job
from logparse.errors import LogparseError
from logparse.store import open_store

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_GIVEN_BACK = {"MALLOC_TRIM_THRESHOLD_": "1000000", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}
"""Settings of glibc under which freed memory goes back to the system: a fifth less at the reader's peak."""


class Reading:
    """Starts to read at once, unless an earlier page has kept what it would make (``restored``)."""

    def __init__(
        self,
        url: str,
        run: str | None = None,
        other: str | None = None,
        target: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="logparse-explore-")
        self.folder = Path(self._folder.name)
        kept = None
        with contextlib.suppress(LogparseError):  # what is wrong with the store is said by the child
            store = open_store(url)
            kept = cache.place(store, store.latest_run(run), other, target)
        self.job = Job(url, run, other, dict(target), self._folder.name, None if kept is None else str(kept))
        self.restored = cache.restore(kept, self.folder)
        self.process: BaseProcess | None = None
        self._told: Connection | None = None
        self._closed = False
        if not self.restored:
            self._start(verdict=False)

    def steps(self) -> Iterator[tuple[str, str]]:
        """What is there, as soon as it is: ``(step, text)``.  Raises EOFError where a process dies."""
        if self.restored:
            return
        for verdict in (False, True):
            if verdict and not self._closed:
                self._start(verdict=True)
            while self._told is not None and not self._closed:
                step, text = self._told.recv()
                if step == DONE:
                    break
                yield step, text
                if step == FAILED:
                    return

    def close(self) -> None:
        """Stop reading and remove what was written."""
        self._closed = True
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self._folder.cleanup()

    def _start(self, *, verdict: bool) -> None:
        receiver, sender = get_context("spawn").Pipe(duplex=False)
        process = get_context("spawn").Process(target=_child, args=(sender, self.job, verdict), daemon=True)
        os.environ.update(_GIVEN_BACK)  # read by the C library when a process starts: by the reader, not by this one
        process.start()
        sender.close()
        self.process, self._told = process, receiver


def _child(sender: Connection, job: Job, verdict: bool) -> None:
    from analyzers.explore import prepare

    (prepare.judge if verdict else prepare.read)(sender, job)
