"""List of the scripts with which libraries search, found in the libraries' folders: ``SEARCH_SCRIPT`` of a module."""

from __future__ import annotations

from logparse.libraries.found import offered
from logparse.libraries.kinds.search_script import SearchScript

SEARCH_SCRIPTS: tuple[SearchScript, ...] = tuple(offered("SEARCH_SCRIPT"))
