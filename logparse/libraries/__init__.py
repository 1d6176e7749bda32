"""Everything that only one library knows, in one folder per library.

``all_formats`` finds the formats in these folders.  ``FORMATS`` is its list, imported at the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from logparse.libraries.all_formats import FORMATS

# This import is made at the first use, because a query of a store needs no format.
__getattr__ = lazy.members(__name__, {"FORMATS": "logparse.libraries.all_formats"})

__all__ = ["FORMATS"]
