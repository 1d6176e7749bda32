"""Signals that this process gets, with who sent them, while they interrupt nothing.

``signal.sigtimedwait`` of CPython would do, but for a fault: where the process is stopped and woken (Ctrl-Z, ``fg``)
after its time is over, it returns a signal that nobody sent (Modules/signalmodule.c, ``signal_sigtimedwait_impl``: the
siginfo is read after EINTR).  So Linux's ``signalfd`` is asked (``man 2 signalfd``).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
from collections.abc import Collection
from dataclasses import dataclass

from logparse.errors import InputError

_FROM_TERMINAL = 0x80  # si_code SI_KERNEL
_SIZE, _FIELDS = 128, struct.Struct("=IiiI")  # of struct signalfd_siginfo: signo, errno, code, pid


@dataclass(frozen=True)
class Signal:
    """A signal and the process that sent it; ``by_key``: a key at the terminal sent it to the foreground group."""

    number: int
    sender: int
    by_key: bool


class Signals:
    """Takes signals from now until ``close``, in this thread and those that it starts meanwhile.

    ``before`` is the mask of blocked signals that a started program should have.  Raises InputError on systems other
    than Linux.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "signalfd"):
            raise InputError("running a job needs Linux; elsewhere use --print, set the variables yourself and ingest")
        wanted = ctypes.create_string_buffer(_SIZE)  # sigset_t, of the same size
        libc.sigemptyset(wanted)
        for number in numbers:
            libc.sigaddset(wanted, int(number))
        self.numbers = frozenset(numbers)
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
        self._source = libc.signalfd(-1, wanted, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._source < 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
            raise InputError(f"signals of a job cannot be forwarded: {os.strerror(ctypes.get_errno())}")

    def wait(self, seconds: float) -> Signal | None:
        """The next signal within so many seconds."""
        if not select.select([self._source], [], [], seconds)[0]:
            return None
        try:
            number, _, code, sender = _FIELDS.unpack_from(os.read(self._source, _SIZE))
        except BlockingIOError:
            return None
        return Signal(number, sender, code == _FROM_TERMINAL)

    def close(self) -> None:
        os.close(self._source)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
