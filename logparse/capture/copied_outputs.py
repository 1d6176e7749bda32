"""Copy what a job prints into files, while the user still sees it as if there were no copies.

=====================================  ================================================================================
standard output or error               what the job has instead
=====================================  ================================================================================
a terminal                             a terminal of the same size that changes nothing.  If both outputs are one
                                       terminal and both are copied, they share one terminal, which keeps their order
                                       (a copy of standard error alone then holds both)
anything else                          a pipe
not copied, or closed by the caller    itself
=====================================  ================================================================================

The job may leave a background process behind that still holds such an output open. Then logparse starts a small reader
process (``copy_on.py``), which goes on copying after logparse itself has ended:

* It goes on writing the copies.
* It goes on writing to the real standard output or error if that is a terminal or a file.
* It does not write to a pipe. A program that reads the pipe to its end would then wait for the background process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from logparse.capture import copy_on

_IDLE_S, _LAST_S = 0.2, 2.0
"""Seconds that decide when all output of a job that has ended was read.

All output was read if nothing comes for ``_IDLE_S`` seconds. Copying ends after ``_LAST_S`` seconds in any case,
because later output comes from other processes.
"""
_NAMES = {1: "standard output", 2: "standard error"}
_readers: list[subprocess.Popen[bytes]] = []
"""The reader processes that go on copying output after their job has ended.

The processes are kept here because they are children of this process, which must collect their exit codes.
"""


@dataclass
class _Channel:
    """An output of the job (standard output or standard error) that is copied to files.

    logparse reads from the file descriptor ``source``, and the job prints to ``theirs``.
    """

    source: int
    theirs: int
    # This is 1 for standard output and 2 for standard error.
    own: int
    files: Sequence[Path]
    outputs: dict[int, str] = field(default_factory=dict)
    ended: bool = False  # True once the last process that writes to it has gone

    @property
    def terminal(self) -> bool:
        return os.isatty(self.source)


class CopiedOutputs:
    """Context in which a job's output also goes to files, for example ``{1: [out.log], 2: [err.log, out.log]}``.

    The keys are 1 for standard output and 2 for standard error.

    * ``theirs`` holds the file descriptors that the caller must give to the job as its standard output and error.
    * ``started`` must be called once the job has been started.
    * ``lost`` lists the copies that are incomplete, with the reasons. The list is complete after the context has ended.
    """

    def __init__(self, files: Mapping[int, Sequence[Path]]) -> None:
        self._files = {output: paths for output, paths in files.items() if paths and not _is_closed(output)}
        self.lost: list[str] = []
        self.theirs: dict[int, int] = {}

    def __enter__(self) -> CopiedOutputs:
        self._ended = threading.Event()
        self._pumps: list[threading.Thread] = []
        self._channels: list[_Channel] = []
        if len(self._files) == 2 and _is_one_terminal():
            both = [*dict.fromkeys(path for paths in self._files.values() for path in paths)]
            self._channels.append(_Channel(*_terminal(1), 1, both))
            self.theirs = dict.fromkeys((1, 2), self._channels[0].theirs)
            return self
        for output, paths in self._files.items():
            ends = _terminal(output) if os.isatty(output) else os.pipe()
            self._channels.append(_Channel(*ends, output, paths))
            self.theirs[output] = ends[1]
        return self

    def started(self) -> None:
        """Begin to copy what the job prints, in one thread for each output. Call this once the job has been started."""
        self._give_up_theirs()
        for channel in self._channels:
            pump = threading.Thread(target=self._pump, args=(channel,), name="logparse-copy", daemon=True)
            pump.start()
            self._pumps.append(pump)

    def resize(self) -> None:
        """Give the terminals that the job prints to the size of the user's terminal, after the user has resized it."""
        for channel in self._channels:
            if channel.terminal:
                with contextlib.suppress(OSError):
                    fcntl.ioctl(channel.source, termios.TIOCSWINSZ, _size(channel.own))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_up_theirs()
        self._ended.set()
        for pump in self._pumps:
            pump.join()
        for channel in self._channels:
            if self._pumps and not channel.ended:
                self._hand_over(channel)
            for output in (channel.source, *channel.outputs):
                os.close(output)

    def _give_up_theirs(self) -> None:
        for write in {channel.theirs for channel in self._channels if channel.theirs >= 0}:
            os.close(write)
        for channel in self._channels:
            channel.theirs = -1

    def _pump(self, channel: _Channel) -> None:
        """Copy all that the job prints to one output, until the output ends.

        If writing a copy fails, reading goes on, because otherwise the job would wait for ever at a full pipe.
        """
        channel.outputs[os.dup(channel.own)] = _NAMES[channel.own]
        for path in channel.files:
            try:
                channel.outputs[os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)] = str(path)
            except OSError as error:
                self.lost.append(f"{path}: {error.strerror}")
        by: float | None = None
        while True:
            ready, _, _ = select.select([channel.source], [], [], _IDLE_S)
            if self._ended.is_set():
                by = by or time.monotonic() + _LAST_S
                if not ready or time.monotonic() > by:
                    return  # a process that the job left behind keeps it open
            if not ready:
                continue
            try:
                data = os.read(channel.source, 1 << 16)
            except OSError as error:
                if error.errno != errno.EIO:  # EIO: no process writes to the terminal any more
                    self.lost.append(f"{_NAMES[channel.own]}: {error.strerror}")
                data = b""
            if not data:
                channel.ended = True
                return
            self._write(channel, data)

    def _write(self, channel: _Channel, data: bytes) -> None:
        for output in list(channel.outputs):
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(output, left) :]
            except OSError as error:
                self.lost.append(f"{channel.outputs.pop(output)}: {error.strerror}")
                os.close(output)

    def _hand_over(self, channel: _Channel) -> None:
        """Start a process that goes on copying an output of the job after logparse has ended.

        This is needed if a background process of the job still writes to the output.
        """
        kept = [x for x, name in channel.outputs.items() if name not in _NAMES.values() or _holds_nobody_up(x)]
        _readers[:] = [x for x in _readers if x.poll() is None]
        try:
            reader = subprocess.Popen(
                [sys.executable, "-I", "-S", copy_on.__file__, *map(str, (channel.source, *kept))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=(channel.source, *kept),
                start_new_session=True,  # So a Ctrl-C at the terminal does not reach it
            )
        except OSError as error:
            self.lost.append(
                f"{_NAMES[channel.own]}, which a process that outlived the job still holds open: {error.strerror}"
            )
        else:
            _readers.append(reader)


def _is_closed(output: int) -> bool:
    """Return True if logparse was started with a closed standard output (1) or standard error (2).

    Programs that logparse starts would then also get a closed output.
    """
    try:
        return not os.get_inheritable(output)
    except OSError:
        return True


def _is_one_terminal() -> bool:
    return os.isatty(1) and os.isatty(2) and os.fstat(1).st_rdev == os.fstat(2).st_rdev


def _holds_nobody_up(output: int) -> bool:
    """Return True if no other program waits until this output is closed, so that the output may stay open.

    A program at the other end of a pipe or socket waits. For a file or a terminal nobody waits.
    """
    mode = os.fstat(output).st_mode
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _terminal(output: int) -> tuple[int, int]:
    """Open a new pseudo-terminal, and return its two file descriptors: for logparse to read, and for the job to write.

    The pseudo-terminal has the size of the terminal at ``output``. It passes on unchanged what the job writes.
    """
    read, write = os.openpty()
    attributes = termios.tcgetattr(write)
    attributes[1] &= ~termios.OPOST  # The real terminal converts line ends
    termios.tcsetattr(write, termios.TCSANOW, attributes)
    with contextlib.suppress(OSError):
        fcntl.ioctl(write, termios.TIOCSWINSZ, _size(output))
    return read, write


def _size(output: int) -> bytes:
    """Return the size of a terminal (rows and columns) as the bytes of the system's ``winsize`` structure."""
    return fcntl.ioctl(output, termios.TIOCGWINSZ, b"\0" * 8)
