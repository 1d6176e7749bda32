"""Regular expressions that are compiled at their first use.

The formats have 150 patterns, and a command uses a few.  Compiling all would take a fifth of the time that the ingest
of a small log takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, AnyStr, cast


class _Pattern:
    """Stand-in for a compiled pattern.

    The pattern is compiled when one of its attributes is first read.  Each attribute that was read is cached.
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
    """Return a pattern as ``re.compile`` does, but raise an error in the pattern at its first use.

    Call its methods.  Do not pass it to functions of ``re``, because it is no ``re.Pattern``.
    """
    return cast("re.Pattern[AnyStr]", _Pattern(partial(re.compile, text, flags)))
