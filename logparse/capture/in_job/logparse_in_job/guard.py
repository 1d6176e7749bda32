"""Protect the job from errors of ours.  They never reach the job, and the first one ends the observation."""

from __future__ import annotations

import functools
import signal
import threading
from typing import Any, Callable, Optional


class Guard:
    """State of the observation.  ``on`` is True while we observe.  ``why`` is the error that ended it, for the user."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self.on = True
        self.why = ""
        self._ended = ended
        self._thread = threading.local()

    @property
    def is_within(self) -> bool:
        """True if this thread is in a function of ours.

        A signal handler or a finalizer of the job may have interrupted it.
        """
        return bool(getattr(self._thread, "within", False))

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a guarded form of the function.

        It returns None instead of raising an error, and does nothing after an error.  It also does nothing within
        itself or within another guarded function.  Interrupts pass: Ctrl-C, ``sys.exit``, and whatever a signal handler
        of the job raises while our code runs.  They end the observation, too, because they may have stopped our code
        between two statements that belong together.
        """

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.on or self.is_within:
                return None
            self._thread.within = True
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if not isinstance(error, Exception) or _raised_by_signal_handler(error):
                    self.end(f"{type(error).__name__} interrupted the observer")
                    raise
                self.end(f"{type(error).__name__}: {error}")
                return None
            finally:
                self._thread.within = False

        return call

    def end(self, why: str) -> None:
        """End the observation."""
        self.on, self.why = False, self.why or why
        try:
            self._ended(why)
        except Exception:  # there was an error already; nothing is left to tell
            return


def _raised_by_signal_handler(error: BaseException) -> bool:
    handlers = set()
    for number in range(1, signal.NSIG):
        try:
            code: Optional[Any] = getattr(signal.getsignal(number), "__code__", None)
        except ValueError:
            continue
        if code is not None:
            handlers.add(code)
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code in handlers:
            return True
        entry = entry.tb_next
    return False
