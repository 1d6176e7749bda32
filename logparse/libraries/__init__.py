"""One room per library, with all that only this library knows; ``FORMATS`` are found in them (``all_formats``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from logparse.libraries.all_formats import FORMATS

# A question to a store needs none of the formats.
__getattr__ = lazy.members(__name__, {"FORMATS": "logparse.libraries.all_formats"})

__all__ = ["FORMATS"]
