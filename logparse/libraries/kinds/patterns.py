"""Regular expressions that are compiled at their first use.

The formats have 150 of them, of which a command uses a few: compiling all would take a fifth of the time that the
ingest of a small log takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, AnyStr, cast


class _Pattern:
    """Compiles at the first use of any of its attributes, and keeps each that is used as its own."""

    def __init__(self, compiled: Callable[[], object]) -> None:
        self._compiled = compiled

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by copy and pickle, before __init__ has run
            raise AttributeError(name)
        value = getattr(self._compiled(), name)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> tuple[type[_Pattern], tuple[Callable[[], object]]]:
        return _Pattern, (self._compiled,)


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As ``re.compile``, but an error in the pattern is raised at the first use.

    Give it to no function of ``re``: call its methods.
    """
    return cast("re.Pattern[AnyStr]", _Pattern(partial(re.compile, text, flags)))
