"""Time convolutions with the plans of cuDNN."""

from __future__ import annotations

from logparse.libraries.kinds.build import Build

BUILD = Build("cudnn", facts=("cudnn_version",))
