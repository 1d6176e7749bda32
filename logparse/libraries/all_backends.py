"""List of all libraries whose kernels ``logparse replay`` can time.

Each library's folder offers such a library as the object ``BACKEND`` of a module.  The default comes first, then the
others by name.
"""

from __future__ import annotations

from logparse.libraries.found import offered
from logparse.libraries.kinds.backend import BackendType

BACKENDS: tuple[BackendType, ...] = tuple(
    sorted(offered("BACKEND"), key=lambda backend: (not backend.default, backend.name))
)
