"""hipBLASLt: its logs, its benchmark tool, its tuning files, its replay backend."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("hipblaslt", facts=("hipblaslt_revision", "hipblaslt_version"))
