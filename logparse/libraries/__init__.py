"""One room per library, with all that only this library knows; ``FORMATS`` are found in them (``all_formats``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logparse.libraries.kinds.format import Format

    FORMATS: tuple[Format, ...]


def __getattr__(name: str) -> object:
    """``FORMATS``, imported when it is first asked for: a question to a store needs none of them."""
    if name != "FORMATS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from logparse.libraries.all_formats import FORMATS

    globals()[name] = FORMATS
    return FORMATS


__all__ = ["FORMATS"]
