"""Functions of ours that stand on the stack while code of the job runs.

A job must not see them.  Two things would show them:

* A traceback.  The function takes its frame out of it before the exception goes on (Python 3.11 and newer; older
  versions show the frame).
* ``warnings.warn(…, stacklevel=N)``, which counts frames.  Python leaves out frames of files whose name holds
  ``importlib`` and ``_bootstrap`` (``warnings._is_internal_frame``).  Hence the name of this file.

A debugger, ``sys.settrace``, cProfile and a profile with stacks see them all the same.
"""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any, Callable, List, Sequence


def without_our_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in a form whose exceptions do not show its own frame."""
    codes = [function.__code__]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            _drop_frames(error, codes)
            raise

    return _with_code(call, codes)


def module_call(original: Callable[..., Any], here: Any, calls: Any) -> Callable[..., Any]:
    """Make the wrapper of ``torch.nn.Module.__call__`` for the calls that add a frame (``module_frame.py`` says which).

    Within another call (``here.inside``) it goes straight to the original, which costs least.  It does the same if
    ``calls.begin`` returns False.  ``calls`` has the functions of ``module_frame.Calls``.
    """
    codes: List[CodeType] = []

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        try:
            if here.inside or not calls.begin(self, args, kwargs):
                return original(self, *args, **kwargs) if kwargs else original(self, *args)
            try:
                result = original(self, *args, **kwargs)
            except BaseException:
                calls.failed(self)
                raise
            return calls.ended(self, result)
        except BaseException as error:
            _drop_frames(error, codes)
            raise

    return _with_code(__call__, codes)


def around(
    function: Callable[..., Any],
    unobserved: Callable[[], bool],
    begin: Callable[..., Any],
    end: Callable[[Any, bool], None],
) -> Callable[..., Any]:
    """Return the function with ``begin(args, kwargs)`` called before it and ``end(token, whole)`` after it.

    If ``unobserved()`` returns True, only the function itself is called.
    """
    codes: List[CodeType] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if unobserved():
                return function(*args, **kwargs)
            token, whole = begin(args, kwargs), False
            try:
                result = function(*args, **kwargs)
                whole = True
                return result
            finally:
                end(token, whole)
        except BaseException as error:
            _drop_frames(error, codes)
            raise

    return _with_code(call, codes)


def _with_code(function: Any, codes: List[CodeType]) -> Callable[..., Any]:
    """Return the function.  Its code is added to ``codes``, whose frames leave a traceback."""
    codes.append(function.__code__)
    made: Callable[..., Any] = function
    return made


def _drop_frames(error: BaseException, codes: Sequence[CodeType]) -> None:
    """Drop the entries with one of ``codes`` from the head of the traceback."""
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code in codes:
        entry = entry.tb_next
    error.__traceback__ = entry
