"""Wrapper functions of logparse that are on Python's stack while the user's code runs.

The user's job should not notice them. Two things would show them:

* A traceback. So each wrapper removes its own frame from the traceback of an exception (Python 3.11 and newer; older
  versions show the frame).
* ``warnings.warn(…, stacklevel=N)``, which counts frames. Python does not count frames of files whose name contains
  ``importlib`` and ``_bootstrap`` (``warnings._is_internal_frame``). So this file has such a name.

Debuggers, ``sys.settrace``, cProfile and a profile with stacks still see the wrappers.
"""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any, Callable, List, Sequence


def without_our_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that the traceback of an exception does not show the function's own frame."""
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
    """Make a wrapper of ``torch.nn.Module.__call__`` that, unlike the usual one, adds a frame to Python's stack.

    This wrapper is used only if the usual wrapper is not possible (see ``module_frame.py``). ``calls`` has the
    functions of ``module_frame.Calls``, which are called before and after the original function. Only the original is
    called in two cases:

    * The call is made within another module's call (``here.inside``). Such calls are frequent, and this costs least.
    * ``calls.begin`` returns False.
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
    """Return a function that calls ``function``, with ``begin(args, kwargs)`` before it and ``end`` after it.

    ``end`` gets the result of ``begin``, and True if no exception was raised. While ``unobserved()`` is True, both are
    left out.
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


def following_method(kind: type, name: str) -> Callable[..., Any]:
    """Return a method for the class ``kind`` that only calls the inherited method ``name``.

    With a method of its own, the class can be wrapped without changing its base class.
    """

    def method(self: Any, *args: Any) -> Any:
        return getattr(super(kind, self), name)(*args)

    method.__name__, method.__qualname__ = name, f"{kind.__qualname__}.{name}"
    return without_our_frame(method)


def _with_code(function: Any, codes: List[CodeType]) -> Callable[..., Any]:
    """Arrange that tracebacks do not show the calls of this function. Return the function unchanged.

    The function's code object is added to ``codes``. Stack frames with such a code object are removed from tracebacks.
    """
    codes.append(function.__code__)
    made: Callable[..., Any] = function
    return made


def _drop_frames(error: BaseException, codes: Sequence[CodeType]) -> None:
    """Shorten an exception's traceback: drop its first entries as long as their code is in ``codes``."""
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code in codes:
        entry = entry.tb_next
    error.__traceback__ = entry
