"""Protect the job from errors in our code.  No such error reaches the job, and the first error ends the observation."""

from __future__ import annotations

import functools
import signal
import threading
from typing import Any, Callable, Optional


class _Thread(threading.local):
    """State of the present thread.

    ``within`` is True if this thread is now in a function of ours.  That can be so while a signal handler or a
    finalizer of the job runs, because it may have interrupted our function.
    """

    within = False


class Guard:
    """State of the observation.

    ``on`` is True while the job is observed.  ``why`` is the error that ended the observation, for the user.
    """

    def __init__(self, ended: Callable[[str], None]) -> None:
        self.on = True
        self.why = ""
        self._ended = ended
        self.thread = _Thread()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a guarded form of the function.

        The guarded function returns None if an error is raised, and does nothing after an error.  It also does nothing
        within itself or within another guarded function.  Interrupts still reach the job: Ctrl-C, ``sys.exit``, and any
        exception from a signal handler of the job while our code runs.  They end the observation, too, because they may
        have stopped our code between two statements that belong together.
        """
        thread = self.thread

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.on or thread.within:
                return None
            thread.within = True
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if not isinstance(error, Exception) or _raised_by_signal_handler(error):
                    self.end(f"{type(error).__name__} interrupted the observer")
                    raise
                self.end(f"{type(error).__name__}: {error}")
                return None
            finally:
                thread.within = False

        return call

    def end(self, why: str) -> None:
        """End the observation."""
        self.on, self.why = False, self.why or why
        try:
            self._ended(why)
        except Exception:  # There was an error already, so nothing is left to report
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
