"""Protect the user's job from errors in logparse's code.

An error does not reach the job. After the first error logparse stops observing the job.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import Any, Callable, Optional

_FOLDER = os.path.join(os.path.dirname(__file__), "")
_WITHOUT_ARGUMENTS = (AssertionError, MemoryError, StopIteration)
"""Types of errors that Python itself raises without arguments."""


class _Thread(threading.local):
    """Tells for each thread whether one of logparse's own functions is running in it (``within``).

    A signal handler or finalizer of the job may see True, because it may interrupt such a function.
    """

    within = False


class Guard:
    """Wraps logparse's functions so that an error in one of them cannot reach the user's job.

    * ``on`` becomes False at the first error. Then logparse stops counting and timing steps.
    * ``why`` is that error's text for the user.
    * ``thread`` has the attribute ``within``, with a value of its own in each thread (see ``_Thread``).
    """

    def __init__(self, ended: Callable[[str], None], thread: Any = None) -> None:
        self.on = True
        self.why = ""
        self._ended = ended
        self.thread = _Thread() if thread is None else thread

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of logparse so that it raises no error into the user's job. Return the wrapped function.

        * If the function raises an error, the wrapped function returns None, and from then on all wrapped functions do
          nothing.
        * A wrapped function that is called while another one runs in the same thread does nothing.
        * Ctrl-C, ``sys.exit``, and exceptions from the job's signal handlers and from its other threads still reach the
          job. They also switch all wrapped functions off, because they may have stopped our code between two statements
          that belong together.
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
                if self.must_raise(error):
                    raise
                return None
            finally:
                thread.within = False

        return call

    def must_raise(self, error: BaseException) -> bool:
        """Stop observing after ``error``, which one of our functions has raised. Return True if it is the job's."""
        if not isinstance(error, Exception) or _raised_by_signal_handler(error) or _raised_by_other_thread(error):
            self.end(f"{type(error).__name__} interrupted the observer")
            return True
        self.end(f"{type(error).__name__}: {error}")
        return False

    def end(self, why: str) -> None:
        """Stop counting and timing the job's steps. ``why`` is the reason for the user."""
        self.on, self.why = False, self.why or why
        try:
            self._ended(why)
        except Exception:  # There was an error already, so nothing is left to report
            return


def _raised_by_other_thread(error: BaseException) -> bool:
    """Return True if another thread of the job has raised this error while a function of logparse ran.

    Packages such as ``stopit`` end a call after some time in this way (``PyThreadState_SetAsyncExc``). Such an error
    has no arguments, and its innermost stack frame is a function of logparse. Python itself raises such an error in our
    functions only if its type is in ``_WITHOUT_ARGUMENTS``.
    """
    entry = error.__traceback__
    if entry is None or error.args or isinstance(error, _WITHOUT_ARGUMENTS):
        return False
    while entry.tb_next is not None:
        entry = entry.tb_next
    return entry.tb_frame.f_code.co_filename.startswith(_FOLDER)


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
