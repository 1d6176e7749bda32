"""Shared libraries of this process: two copies of one library would not share the device."""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path


def loaded_library(stem: str, *names: str) -> ctypes.CDLL:
    """The copy that this process has loaded already (often torch's own), by the stem of its file's name; else the first
    of ``names`` that the machine has.  Raises OSError.
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
