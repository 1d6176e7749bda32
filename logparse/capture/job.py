"""Runs a user's command with the output, signals and exit code that it has when it is called directly.

Standard output is the command's own.  So is standard error, unless a copy is requested (MIOpen writes nowhere else):
then the command sees a pipe instead of a terminal there, and a copy goes to a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logparse.errors import InputError

CANNOT_RUN, NOT_FOUND = 126, 127
"""A shell's exit codes for a command that is no program, and for one that is not found."""

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


def run(command: Sequence[str], environ: Mapping[str, str], copy_stderr: Path | None = None) -> Ended:
    """Run ``command`` to its end, and forward every signal that it did not get itself.

    Raises InputError where signals cannot be told apart (other systems than Linux).
    """
    if not hasattr(signal, "sigwaitinfo"):
        raise InputError("running a job needs Linux; elsewhere use --print, set the variables yourself and ingest")
    try:
        child = subprocess.Popen(command, env=dict(environ), stderr=subprocess.PIPE if copy_stderr else None)
    except OSError as error:
        return Ended(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN, not_run=error.strerror)
    with _copied(child, copy_stderr) as lost, _waiting() as signals:
        while child.poll() is None:
            seen = signal.sigwaitinfo(signals)
            if seen.si_signo != signal.SIGCHLD and seen.si_code != _FROM_TERMINAL:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(seen.si_signo)
    why = "; ".join(lost) or None
    if child.returncode < 0:
        return Ended(128 - child.returncode, signal.Signals(-child.returncode).name, why)
    return Ended(child.returncode, None, why)


@contextlib.contextmanager
def _waiting() -> Iterator[set[signal.Signals]]:
    """Blocks signals for ``sigwaitinfo``.  Enter it after the command has started: it would inherit the mask."""
    signals = {signal.SIGCHLD, *(getattr(signal, name) for name in _FORWARDED)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield signals
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _copied(child: subprocess.Popen[bytes], path: Path | None) -> Iterator[list[str]]:
    """Copies the command's standard error to this process's and to a file, until it has ended and its pipe is empty."""
    lost: list[str] = []
    if path is None or child.stderr is None:
        yield lost
        return
    ended = threading.Event()
    source = child.stderr.fileno()
    pump = threading.Thread(target=_pump, args=(source, path, ended, lost), daemon=True)
    pump.start()
    try:
        yield lost
    finally:
        ended.set()
        pump.join()
        child.stderr.close()


def _pump(source: int, path: Path, ended: threading.Event, lost: list[str]) -> None:
    """Empty the pipe even if the copy or this process's standard error fails: the job must never wait."""
    outputs: dict[int, str] = {os.dup(2): "standard error"}
    try:
        outputs[os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)] = str(path)
    except OSError as error:
        lost.append(f"{path}: {error.strerror}")
    while True:
        ready, _, _ = select.select([source], [], [], _IDLE_SECONDS)
        if not ready and ended.is_set():
            break  # a process that the job left behind may keep the pipe open
        data = os.read(source, 1 << 16) if ready else b""
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
