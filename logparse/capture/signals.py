"""Receive the signals that are sent to this process, and learn which process sent them.

A signal does not interrupt the code that is running: the program asks for the next signal when it is ready.

* This module uses Linux's ``signalfd`` (``man 2 signalfd``). CPython's ``signal.sigtimedwait`` would be simpler, but it
  has a bug: if the process is stopped and woken (Ctrl-Z, ``fg``) after the time-out, it returns a signal that nobody
  sent (Modules/signalmodule.c, ``signal_sigtimedwait_impl``: the siginfo is read after EINTR).
* Threads that libraries started earlier (pyarrow, DuckDB) do not block signals. Linux would deliver a signal to one of
  them, and that would kill this process while its job goes on. So this module also installs a Python signal handler.
* The handler does not learn who sent a signal. SIGINT and SIGQUIT are then assumed to come from the keyboard if this
  process is in the foreground.
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
    """A received signal, with the number of the process that sent it.

    ``by_key`` is True if the user pressed a key such as Ctrl-C, so that all processes of the foreground group got the
    signal.
    """

    number: int
    sender: int
    by_key: bool


class Signals:
    """Receives the given signals instead of the process's usual handlers, until ``close`` is called.

    ``before`` holds the blocked signals that a started program must get back. Raises InputError on systems other than
    Linux.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "signalfd"):
            raise InputError(
                "logparse can run a job only on Linux; on other systems, use `logparse capture --print`, set the "
                "printed variables yourself, and ingest the logs"
            )
        wanted = ctypes.create_string_buffer(_SIZE)  # sigset_t, which has the same size
        libc.sigemptyset(wanted)
        for number in numbers:
            libc.sigaddset(wanted, int(number))
        self.numbers = frozenset(numbers)
        # This applies to the calling thread and to the threads that it starts meanwhile.
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
        self._source = libc.signalfd(-1, wanted, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._source < 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
            raise InputError(f"signals cannot be forwarded to the job: {os.strerror(ctypes.get_errno())}")
        self._caught: deque[Signal] = deque()
        self._woken, self._wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._handlers: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():  # Python allows no handler here
            return
        self._wakes_before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in numbers:
            # If the caller ignores a signal (nohup), the job must ignore it, too.  A handler would not be inherited by
            # the job.
            if (theirs := signal.getsignal(number)) not in (None, signal.SIG_IGN):
                self._handlers[number] = theirs
                signal.signal(number, lambda number, frame: None)

    def wait(self, seconds: float) -> Signal | None:
        """Wait for a signal for up to ``seconds`` and return it. Returns None if none arrives."""
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
    r"""Return True if a key at the terminal may have sent this signal: Ctrl-C (SIGINT) or Ctrl-\ (SIGQUIT).

    That is possible only if this process is in the terminal's foreground group.
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
