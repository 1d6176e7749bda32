"""Find a shared library that this process has loaded already.  Two copies of one library would not share the device."""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path


def loaded_library(stem: str, *names: str) -> ctypes.CDLL:
    """Return a shared library, if possible the copy that this process has loaded already (often torch's own).

    * ``stem``: the beginning of the file name of a loaded copy.
    * ``names``: the names to try if no copy is loaded.

    Raises OSError if none can be loaded.
    """
    with contextlib.suppress(OSError):
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
        found = re.search(rf"\s(/\S*/{stem}\.so\S*)$", maps, re.MULTILINE)
        if found:
            return ctypes.CDLL(found.group(1))
    for name in names[:-1]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return ctypes.CDLL(names[-1])
