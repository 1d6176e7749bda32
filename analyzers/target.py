"""The machine that will read the overrides: its facts, and whether a measurement was made on its like.

A time from another device or library build may rank findings; it never becomes an override.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

Facts: TypeAlias = Mapping[str, str]

BUILD: Mapping[str, tuple[str, ...]] = {
    "hipblaslt": ("hipblaslt_revision", "hipblaslt_version"),
    "rocblas": ("rocblas_version",),
    "cublaslt": ("cublaslt_version",),
    "miopen": ("miopen_version",),
    "torch": ("pytorch_version",),
}
"""Facts that tell a library's build, the sharpest first: the first that both sides know decides."""

BY_NAME = frozenset({"miopen", "torch"})
"""Libraries whose solution ids are names and mean the same in every build."""


def arch(facts: Facts) -> str | None:
    """``gfx942`` of ``gfx942:sramecc+:xnack-``; None where it is unknown."""
    return facts.get("arch", "").partition(":")[0] or None


def same_device(one: Facts, other: Facts) -> bool | None:
    """Whether both are of one GPU arch and, where both know it, one CU count; None where an arch is unknown."""
    if any(name in one and name in other and one[name] != other[name] for name in ("cu_count",)):
        return False
    left, right = arch(one), arch(other)
    return None if left is None or right is None else left == right


def same_build(one: Facts, other: Facts, library: str) -> bool | None:
    """Whether both are of one build of ``library``; None where it is unknown.  A name needs no equal build."""
    for name in BUILD.get(library, ()):
        if name in one and name in other:
            return one[name] == other[name]
    return None


def comparable(one: Facts, other: Facts, library: str) -> bool | None:
    """Whether a solution id of ``library`` means the same, and runs on the same device, on both sides."""
    device = same_device(one, other)
    build = True if library in BY_NAME else same_build(one, other, library)
    if device is False or build is False:
        return False
    return None if device is None or build is None else True


def serves(measured: Facts, target: Facts, library: str) -> bool | None:
    """Whether a time measured there may become an override here: one device, and one library build where both tell it.

    None where the device, or the build that gives an index its meaning, is unknown on either side.
    """
    device, build = same_device(measured, target), same_build(measured, target, library)
    if device is False or build is False:
        return False
    return None if device is None or (build is None and library not in BY_NAME) else True


def folder(facts: Facts) -> str:
    """A folder name for a target: device and library builds, e.g. ``gfx942-304cu-hipblaslt-1201``."""
    words = [arch(facts) or "unknown-arch", f"{facts['cu_count']}cu" if "cu_count" in facts else ""]
    for library, names in BUILD.items():
        known = next((facts[name] for name in names if name in facts), None)
        words.append(f"{library}-{known}" if known else "")
    return re.sub(r"[^\w.+-]+", "_", "-".join(filter(None, words)))
