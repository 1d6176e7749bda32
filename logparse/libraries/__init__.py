"""Everything that is specific to one math library, in one folder per library.

``FORMATS`` lists the file formats that these folders offer (see ``all_formats``).  It is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from logparse.libraries.all_formats import FORMATS

# This import is made at the first use, because a query of a store needs no format.
__getattr__ = lazy.members(__name__, {"FORMATS": "logparse.libraries.all_formats"})

__all__ = ["FORMATS"]
