"""List of the settings with which ``logparse capture`` switches on the log of each library.

Each library's folder has a module with an object ``CAPTURE``, which contains them.
"""

from __future__ import annotations

from logparse.libraries.found import import_values
from logparse.libraries.kinds.capture import Capture

_PLATFORMS = ("rocm", "cuda")

CAPTURES: tuple[Capture, ...] = tuple(
    sorted(import_values("CAPTURE"), key=lambda x: (len(x.platforms), _PLATFORMS.index(x.platforms[0]), x.library))
)
"""Log settings of all libraries, in the order in which they are printed.

Libraries of ROCm come first, then libraries of CUDA, then libraries of both.
"""
