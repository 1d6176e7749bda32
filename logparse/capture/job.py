"""Runs a user's command with the output, signals and exit code that it has when it is called directly.

Standard output and error are the command's own, unless a copy of them is requested (MIOpen writes nowhere else): then
the command sees a pipe there, or a terminal of its own where there is one, and what it prints goes through as it is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from logparse.errors import InputError

CANNOT_RUN, NOT_FOUND, INTERRUPTED = 126, 127, 130
"""A shell's exit codes for a command that is no program, one that is not found, and one that Ctrl-C ended."""

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
_FROM_TERMINAL = 0x80  # si_code SI_KERNEL: the whole foreground group got the signal, with the command
_IDLE_SECONDS = 0.2


@dataclass(frozen=True)
class Ended:
    """How a command ended.  ``code`` is a shell's exit code: 128 + n if signal n killed the command."""

    code: int
    killed_by: str | None = None
    lost_copy: str | None = None  # why the copy of standard error is incomplete
    not_run: str | None = None  # why the command could not be started


def unrunnable(program: str, environ: Mapping[str, str]) -> Ended | None:
    """How a program ends that cannot be started; None: it can."""
    if shutil.which(program, path=environ.get("PATH")):
        return None
    there = os.path.exists(program)
    return Ended(CANNOT_RUN if there else NOT_FOUND, not_run=os.strerror(errno.EACCES if there else errno.ENOENT))


def run(
    command: Sequence[str], environ: Mapping[str, str], copy_stderr: Path | None = None, copy: Path | None = None
) -> Ended:
    """Run ``command`` to its end, and forward every signal that it did not get itself.

    ``copy_stderr`` gets a copy of its standard error, ``copy`` one of both outputs behind what it has already.  Raises
    InputError where signals cannot be told apart (other systems than Linux).
    """
    files = {1: [x for x in (copy,) if x], 2: [x for x in (copy_stderr, copy) if x]}
    with Together() as together:
        ends = {output: _ends(output, output == 1 or copy_stderr is None) for output in files if files[output]}
        theirs = {output: write for output, (_, write) in ends.items()}
        try:
            child = together.start(command, environ, theirs)
        except OSError as error:
            for read, _ in ends.values():
                os.close(read)
            return Ended(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN, not_run=error.strerror)
        finally:
            for write in theirs.values():
                os.close(write)
        with _copied({output: read for output, (read, _) in ends.items()}, files) as lost:
            together.wait()
    why = "; ".join(lost) or None
    if child.returncode < 0:
        return Ended(128 - child.returncode, signal.Signals(-child.returncode).name, why)
    return Ended(child.returncode, None, why)


class Together:
    """Commands that run at once; every signal that they did not get themselves is forwarded to all of them.

    ``interrupted``: one of these asked for their end.  Raises InputError where signals cannot be told apart.
    """

    def __init__(self) -> None:
        if not hasattr(signal, "sigwaitinfo"):
            raise InputError("running a job needs Linux; elsewhere use --print, set the variables yourself and ingest")
        self._signals = {signal.SIGCHLD, *(getattr(signal, name) for name in _FORWARDED)}
        self._children: list[subprocess.Popen[bytes]] = []
        self.interrupted = False

    def __enter__(self) -> Together:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def start(
        self, command: Sequence[str], environ: Mapping[str, str], outputs: Mapping[int, int] = MappingProxyType({})
    ) -> subprocess.Popen[bytes]:
        """Start one; ``outputs`` replace standard output (1) and error (2).  Raises OSError."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)  # a child inherits the mask
        try:
            child = subprocess.Popen(command, env=dict(environ), stdout=outputs.get(1), stderr=outputs.get(2))
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        self._children.append(child)
        return child

    def wait(self) -> None:
        """Until all have ended."""
        while any(child.poll() is None for child in self._children):
            self.pause(_IDLE_SECONDS)

    def pause(self, seconds: float) -> None:
        """Wait so long, or until a signal came."""
        seen = signal.sigtimedwait(self._signals, seconds)
        if seen is None or seen.si_signo == signal.SIGCHLD:
            return
        self.interrupted |= seen.si_signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if seen.si_code != _FROM_TERMINAL:
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(seen.si_signo)


def _ends(output: int, terminal: bool) -> tuple[int, int]:
    """Where an output is read and written: a pipe, or a terminal that changes nothing, where this process has one."""
    if not terminal or not os.isatty(output):
        return os.pipe()
    read, write = os.openpty()
    attributes = termios.tcgetattr(write)
    attributes[1] &= ~termios.OPOST  # the terminal behind it makes its line ends
    termios.tcsetattr(write, termios.TCSANOW, attributes)
    fcntl.ioctl(write, termios.TIOCSWINSZ, fcntl.ioctl(output, termios.TIOCGWINSZ, b"\0" * 8))
    return read, write


@contextlib.contextmanager
def _copied(sources: Mapping[int, int], files: Mapping[int, Sequence[Path]]) -> Iterator[list[str]]:
    """Copies the command's outputs to this process's and to files, until it has ended and nothing is left to read."""
    lost: list[str] = []
    ended = threading.Event()
    pumps = [
        threading.Thread(target=_pump, args=(source, output, files[output], ended, lost), daemon=True)
        for output, source in sources.items()
    ]
    for pump in pumps:
        pump.start()
    try:
        yield lost
    finally:
        ended.set()
        for pump in pumps:
            pump.join()
        for source in sources.values():
            os.close(source)


def _pump(source: int, own: int, paths: Sequence[Path], ended: threading.Event, lost: list[str]) -> None:
    """Empty the source even if a copy or this process's output fails: the job must never wait."""
    outputs: dict[int, str] = {os.dup(own): "standard output" if own == 1 else "standard error"}
    for path in paths:
        try:
            outputs[os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)] = str(path)
        except OSError as error:
            lost.append(f"{path}: {error.strerror}")
    while True:
        ready, _, _ = select.select([source], [], [], _IDLE_SECONDS)
        if not ready and ended.is_set():
            break  # a process that the job left behind may keep the pipe open
        try:
            data = os.read(source, 1 << 16) if ready else b""
        except OSError:  # a terminal whose last writer is gone
            break
        if ready and not data:
            break
        for output in list(outputs):
            try:
                _write(output, data)
            except OSError as error:
                lost.append(f"{outputs.pop(output)}: {error.strerror}")
                os.close(output)
    for output in outputs:
        os.close(output)


def _write(output: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(output, left) :]
