"""Everything that is specific to hipBLASLt: its logs, its benchmark tool, its tuning files, timing its solutions."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("hipblaslt", facts=("hipblaslt_revision", "hipblaslt_version"))
