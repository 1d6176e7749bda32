"""List of all libraries whose kernels ``logparse replay`` can time.

Each library's folder has a module with an object ``BACKEND``.  The library that is used by default comes first, and the
others follow by name.
"""

from __future__ import annotations

from logparse.libraries.found import import_values
from logparse.libraries.kinds.backend import BackendType

BACKENDS: tuple[BackendType, ...] = tuple(
    sorted(import_values("BACKEND"), key=lambda backend: (not backend.default, backend.name))
)
