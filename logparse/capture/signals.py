"""Receive the signals of this process, with their senders.  The signals interrupt nothing.

Linux's ``signalfd`` is asked (``man 2 signalfd``).  ``signal.sigtimedwait`` of CPython would be enough, but it has a
fault: if the process is stopped and woken (Ctrl-Z, ``fg``) after its time is over, it returns a signal that nobody sent
(Modules/signalmodule.c, ``signal_sigtimedwait_impl``: the siginfo is read after EINTR).

Threads that libraries started earlier (pyarrow, DuckDB) have no signal blocked.  Linux gives them the signals that this
thread blocks.  The default action would end the process and leave the job behind.  So there is a handler, too.  Signals
that it catches come without their sender.  Then SIGINT and SIGQUIT count as keys if this process is in the foreground.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from logparse.errors import InputError

_FROM_TERMINAL = 0x80  # si_code SI_KERNEL
_SIZE, _FIELDS = 128, struct.Struct("=IiiI")  # struct signalfd_siginfo: signo, errno, code, pid


@dataclass(frozen=True)
class Signal:
    """Signal, and the process that sent it.

    ``by_key`` is True if a key at the terminal sent it to the foreground group.
    """

    number: int
    sender: int
    by_key: bool


class Signals:
    """Reader of signals from now until ``close``, for this thread and the threads that it starts meanwhile.

    ``before`` is the mask of blocked signals that a started program should have.  Raises InputError on systems other
    than Linux.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "signalfd"):
            raise InputError("running a job needs Linux; elsewhere use --print, set the variables yourself and ingest")
        wanted = ctypes.create_string_buffer(_SIZE)  # sigset_t, which has the same size
        libc.sigemptyset(wanted)
        for number in numbers:
            libc.sigaddset(wanted, int(number))
        self.numbers = frozenset(numbers)
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
        self._source = libc.signalfd(-1, wanted, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._source < 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
            raise InputError(f"signals of a job cannot be forwarded: {os.strerror(ctypes.get_errno())}")
        self._caught: deque[Signal] = deque()
        self._woken, self._wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._handlers: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():  # Python allows no handler here
            return
        self._wakes_before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in numbers:
            # The job ignores what the caller ignores (nohup).  A handler would not be handed on to the job.
            if (theirs := signal.getsignal(number)) not in (None, signal.SIG_IGN):
                self._handlers[number] = theirs
                signal.signal(number, lambda number, frame: None)

    def wait(self, seconds: float) -> Signal | None:
        """Return the next signal within ``seconds``.  Return None if none comes."""
        if not self._caught:
            ready = select.select([self._source, self._woken], [], [], seconds)[0]
            with contextlib.suppress(BlockingIOError):
                self._caught += [Signal(x, 0, _is_key(x)) for x in os.read(self._woken, 256)]
            if not ready:
                return None
        if self._caught:
            return self._caught.popleft()
        try:
            number, _, code, sender = _FIELDS.unpack_from(os.read(self._source, _SIZE))
        except BlockingIOError:
            return None
        return Signal(number, sender, code == _FROM_TERMINAL)

    def close(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._handlers:
            signal.set_wakeup_fd(self._wakes_before)
        for end in (self._source, self._woken, self._wakes):
            os.close(end)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


def _is_key(number: int) -> bool:
    """Tell whether a key at the terminal may have sent this signal.

    The group of this process must be in the foreground there.
    """
    if number not in (signal.SIGINT, signal.SIGQUIT):
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
