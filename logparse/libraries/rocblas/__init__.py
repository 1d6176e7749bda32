"""rocBLAS: its logs, its benchmark tool, its tuning files, its replay backend."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("rocblas", facts=("rocblas_version",))
