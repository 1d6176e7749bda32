"""List of all backends, found in the folders of the libraries: ``BACKEND`` of a module.

The default comes first, then the others by name.
"""

from __future__ import annotations

from logparse.libraries.found import offered
from logparse.libraries.kinds.backend import BackendType

BACKENDS: tuple[BackendType, ...] = tuple(
    sorted(offered("BACKEND"), key=lambda backend: (not backend.default, backend.name))
)
