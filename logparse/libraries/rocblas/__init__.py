"""Everything that is specific to rocBLAS: its logs, its benchmark tool, its tuning files, and timing its kernels."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("rocblas", facts=("rocblas_version",))
