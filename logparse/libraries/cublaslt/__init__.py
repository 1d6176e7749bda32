"""Everything that only cuBLASLt has: its log, its names of algorithms, its replay backend."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("cublaslt", facts=("cublaslt_version",))
