"""Start the child processes that load data for the web page, and receive their reports (``child`` is their program).

This module imports next to nothing, so that the slow first child starts early.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from analyzers.explore.load.job import DONE, FAILED, VERDICT, Job

_SETTINGS = {"MALLOC_ARENA_MAX": "2", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""Environment variables of the child processes.

* With that of glibc, the threads share two heaps. By default each thread has its own, which take more memory.
* With that of OpenBLAS, NumPy's threads sleep while they wait for work. By default they run in a loop, which takes a
  tenth of the CPU time of reading a find-db.
"""
_CHILD = "analyzers.explore.load.child"


# If there are many data, the analyzers run in a second child process, because one process for both would take a
# gigabyte of memory.
class StoreReading:
    """The child processes that load the data for the web page. The first starts when the object is made."""

    def __init__(
        self,
        url: str | None,
        run: str | None = None,
        other: str | None = None,
        target: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="logparse-explore-")
        self.folder = Path(self._folder.name)
        self._closed = self._followed = False
        self._job = Job(url, run, other, dict(target), self._folder.name)
        self._process = _started(self._job)

    def steps(self) -> Iterator[tuple[str, str]]:
        """Yield each step of loading the data as soon as it is done, as ``(step, text)``.

        Raises EOFError if a process dies.
        """
        self._followed = True
        done, judged = yield from self._steps_of_process()
        if done and not judged and not self._closed:
            self._process = _started(replace(self._job, judge=True))
            yield from self._steps_of_process()

    def _steps_of_process(self) -> Generator[tuple[str, str], None, tuple[bool, bool]]:
        """Yield the progress messages (step, text) of the child process that loads the data for the web page.

        At the end, returns two bools: the process loaded all data, and it analysed the data.
        """
        judged = False
        with self._process as process:
            for line in process.stdout or ():
                step, text = json.loads(line)
                if step == DONE:
                    return True, judged
                judged |= step == VERDICT
                yield step, text
                if step == FAILED:
                    return False, judged
        if self._closed:
            return False, judged
        raise EOFError

    def close(self) -> None:
        """Stop loading and remove the written files."""
        self._closed = True
        self._process.kill()
        self._process.wait()
        if self._process.stdout and not self._followed:  # Otherwise the thread that follows the steps closes it.
            self._process.stdout.close()
        self._folder.cleanup()


def _started(job: Job) -> subprocess.Popen[str]:
    """Start the child process that loads the data for the web page."""
    # The child is a module (-m), because DuckDB treats a program without a file (-c) as interactive and prints progress
    # bars.
    command = [sys.executable, "-m", _CHILD, json.dumps(asdict(job))]
    known = {**os.environ, **_SETTINGS, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Ctrl-C is blocked in the child from its first instruction on: this process ends the child, and Ctrl-C during an
    # import would print a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # A process inherits the set of blocked signals.
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=known)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
