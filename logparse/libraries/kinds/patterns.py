"""Regular expressions that are compiled only when they are first used.

The log formats have 150 patterns, and one command uses a few of them.  Compiling all would take a fifth of the time
that reading a small log takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, AnyStr, cast


class _Pattern:
    """A regular expression that is compiled only when it is first used.

    Its attributes, such as ``search``, are fetched once and then kept.
    """

    def __init__(self, compiled: Callable[[], object]) -> None:
        self._compiled = compiled

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle read these attributes before __init__ has run
            raise AttributeError(name)
        value = getattr(self._compiled(), name)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> tuple[type[_Pattern], tuple[Callable[[], object]]]:
        return _Pattern, (self._compiled,)


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression like ``re.compile``, but compile it only when it is first used.

    Call the methods of the result.  Do not pass it to functions of ``re``.
    """
    # The result is not an ``re.Pattern``. An error in the pattern is raised at the first use.
    return cast("re.Pattern[AnyStr]", _Pattern(partial(re.compile, text, flags)))
