"""List of the libraries' settings for ``logparse capture``, found in their folders: ``CAPTURE`` of a module."""

from __future__ import annotations

from logparse.libraries.found import offered
from logparse.libraries.kinds.capture import Capture

_PLATFORMS = ("rocm", "cuda")

CAPTURES: tuple[Capture, ...] = tuple(
    sorted(offered("CAPTURE"), key=lambda x: (len(x.platforms), _PLATFORMS.index(x.platforms[0]), x.library))
)
"""All settings, in the order in which they are printed: libraries of ROCm, libraries of CUDA, libraries of both."""
