"""Which of the two families of 8-bit floats a device computes with.

Logs of hipBLASLt print ``f8_r`` and ``bf8_r`` for OCP's types and for AMD's FNUZ types alike.  The matrix units decide:
CDNA 3 (gfx940 to gfx942) has FNUZ only, CDNA 4 (gfx950) and RDNA 4 (gfx12) have OCP's.

Source: ROCm documentation, "Data types and precision support"; ROCm/hipBLASLt ``library/include/hipblaslt-types.h``.
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.kinds.patterns import regex

FNUZ: Mapping[str, str] = {"f8_r": "f8_fnuz_r", "bf8_r": "bf8_fnuz_r"}
"""OCP's names, which logs use for both, and the names of the FNUZ types."""
OCP: Mapping[str, str] = {fnuz: ocp for ocp, fnuz in FNUZ.items()}

_FNUZ_ONLY = regex(r"gfx94[0-2](?::|\Z)")


def fnuz_only(arch: str | None) -> bool:
    """Whether the matrix units of an arch (``gfx942:sramecc+:xnack-``) have no 8-bit floats but FNUZ."""
    return bool(_FNUZ_ONLY.match(arch or ""))


def on_arch(data_type: str | None, arch: str | None) -> str | None:
    """The type that a call of ``data_type`` has on this arch; as given where the arch is unknown."""
    return FNUZ.get(data_type or "", data_type) if fnuz_only(arch) else data_type
