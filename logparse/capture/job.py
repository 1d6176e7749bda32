r"""Run a user's command with the same output, signals and exit code as if the user had run it directly.

The command has the same standard input, output and error as this process, with two exceptions:

* If a copy of the output is wanted (MIOpen logs only to standard error), ``copied_outputs.py`` replaces the outputs.
* If the command runs several times, ``kept_input.py`` replaces the standard input.

At a terminal the command stays in the foreground process group. So Ctrl-C, Ctrl-\ and Ctrl-Z reach both the command and
this process, and a shell's ``fg`` wakes both. A terminal that replaces a copied output is not the command's
*controlling* terminal. So a shell that the command starts there has no job control.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from logparse.capture.copied_outputs import CopiedOutputs
from logparse.capture.kept_input import KeptInput
from logparse.capture.signals import Signals

CANNOT_RUN, NOT_FOUND, INTERRUPTED = 126, 127, 130
"""Exit codes of a shell for a file that is no program, for an unknown command, and after Ctrl-C."""

_FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT),
)
_IDLE_SECONDS = 0.2
_OWN: Mapping[int, int] = MappingProxyType({})  # standard input as this process has it


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    ``code`` is the exit code that a shell would report: 128 + n if signal n killed the command.
    """

    code: int
    killed_by: str | None = None
    lost_copy: str | None = None  # why the copy of standard error is incomplete
    not_run: str | None = None  # why the command could not be started


def why_not_startable(program: str, environ: Mapping[str, str]) -> Ended | None:
    """Return why a program cannot be started: the exit code that a shell would give, and the error.

    Returns None if the program can be started.
    """
    if shutil.which(program, path=environ.get("PATH")):
        return None
    there = os.path.exists(program)
    return Ended(CANNOT_RUN if there else NOT_FOUND, not_run=os.strerror(errno.EACCES if there else errno.ENOENT))


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    copy_stderr: Path | None = None,
    copy: Path | None = None,
    stdin: KeptInput | None = None,
) -> Ended:
    """Run a command to its end and return its exit code. Signals that only logparse received are forwarded to it.

    * ``copy_stderr`` is a file that gets a copy of the command's standard error.
    * ``copy`` is a file to which both standard output and standard error are appended.
    * ``stdin`` is the standard input, if the command runs several times and reads the same input each time.

    Raises InputError on systems other than Linux, because only Linux tells who sent a signal. Raises InputError also if
    the standard input cannot be read a second time.
    """
    files = {1: [x for x in (copy,) if x], 2: [x for x in (copy_stderr, copy) if x]}
    # The copies end before ``together``, but after the last process that writes to the outputs.
    with Together() as together, CopiedOutputs(files) as outputs:
        together.on_resize = outputs.resize if outputs.theirs else None
        with stdin.given() if stdin else contextlib.nullcontext(_OWN) as given:
            try:
                child = together.start(command, environ, {**given, **outputs.theirs})
            except OSError as error:
                return Ended(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN, not_run=error.strerror)
            outputs.started()
            together.wait()
    why = "; ".join(outputs.lost) or None
    if child.returncode < 0:
        return Ended(128 - child.returncode, signal.Signals(-child.returncode).name, why)
    return Ended(child.returncode, None, why)


class Together:
    """Context that runs several commands at once and forwards signals to them.

    ========================================  ==================================================================
    a signal                                  is forwarded
    ========================================  ==================================================================
    from a key at the terminal                never, because the whole foreground group got it
    from a process that a command started     never, because it went to the sender's group or back to its parent
    SIGCONT                                   to commands that are stopped: a shell's ``fg`` wakes the whole group
    a new size of the terminal                once the commands' own terminals have it (``on_resize``)
    from any other process                    once
    ========================================  ==================================================================

    ``interrupted`` is True if a signal such as Ctrl-C asked the commands to end. Raises InputError on entry on systems
    that do not tell who sent a signal.
    """

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self.interrupted = False
        self.on_resize: Callable[[], None] | None = None

    def __enter__(self) -> Together:
        self._signals = Signals({signal.SIGCHLD, signal.SIGWINCH, *_FORWARDED})
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self._signals.close()

    def start(
        self, command: Sequence[str], environ: Mapping[str, str], streams: Mapping[int, int] = MappingProxyType({})
    ) -> subprocess.Popen[bytes]:
        """Start a command and return its process.

        ``streams`` maps 0, 1 and 2 to file descriptors that replace its standard input, output and error. Raises
        OSError if the command cannot be started.
        """
        signal.pthread_sigmask(signal.SIG_SETMASK, self._signals.before)  # a child inherits the mask
        stdin, stdout, stderr = map(streams.get, range(3))
        try:
            child = subprocess.Popen(command, env=dict(environ), stdin=stdin, stdout=stdout, stderr=stderr)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._signals.numbers)
        self._children.append(child)
        return child

    def wait(self) -> None:
        """Wait until all commands have ended."""
        while any(child.poll() is None for child in self._children):
            self.pause(_IDLE_SECONDS)

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds`` or until a signal arrives. Pass the signal on to the running commands.

        A signal is not passed on if the commands get it anyway, for example after Ctrl-C in the terminal.
        """
        seen = self._signals.wait(seconds)
        if seen is None or seen.number == signal.SIGCHLD:
            return
        if seen.number == signal.SIGWINCH:
            if self.on_resize is not None:
                self.on_resize()
                self._forward(seen.number, self._children)
            return
        self.interrupted |= seen.number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if seen.number == signal.SIGCONT:
            self._forward(seen.number, [child for child in self._children if _stat(child.pid)[:1] == ["T"]])
        elif not seen.by_key and not _is_below(seen.sender):
            self._forward(seen.number, self._children)

    def _forward(self, number: int, children: Sequence[subprocess.Popen[bytes]]) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)


def _stat(process: int) -> list[str]:
    """Return the kernel's data about a process, such as its state and its parent's number, from ``/proc/PID/stat``.

    The list begins after the program's name. ``man 5 proc_pid_stat`` lists the fields. Returns an empty list if the
    process does not exist.
    """
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _is_below(process: int) -> bool:
    """Return True if ``process`` is a descendant of this process: a child, or a child of a child, and so on."""
    here = os.getpid()
    while process > 1 and (found := _stat(process)):
        process = int(found[1])
        if process == here:
            return True
    return False
