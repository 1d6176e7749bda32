"""Everything that is specific to cuBLASLt: its log, its names of algorithms, and timing its solutions."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("cublaslt", facts=("cublaslt_version",))
