"""List of the shell scripts that search for faster kernels with a library's own tool.

Each library's folder offers its script as the object ``SEARCH_SCRIPT`` of a module.
"""

from __future__ import annotations

from logparse.libraries.found import import_values
from logparse.libraries.kinds.search_script import SearchScript

SEARCH_SCRIPTS: tuple[SearchScript, ...] = tuple(import_values("SEARCH_SCRIPT"))
