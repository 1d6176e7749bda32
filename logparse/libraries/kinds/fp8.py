"""Choose between the two families of 8-bit floats that devices compute with.

hipBLASLt's logs print ``f8_r`` and ``bf8_r`` for OCP's types and for AMD's FNUZ types alike.  The matrix units decide
which family is meant:
* CDNA 3 (gfx940 to gfx942) has FNUZ types only.
* CDNA 4 (gfx950) and RDNA 4 (gfx12) have OCP's types.

Source: ROCm documentation, "Data types and precision support"; ROCm/hipBLASLt ``library/include/hipblaslt-types.h``.
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.kinds.patterns import regex

FNUZ: Mapping[str, str] = {"f8_r": "f8_fnuz_r", "bf8_r": "bf8_fnuz_r"}
"""FNUZ name by OCP name.  Logs use the OCP names for both families."""
OCP: Mapping[str, str] = {fnuz: ocp for ocp, fnuz in FNUZ.items()}
"""OCP name by FNUZ name."""

_FNUZ_ONLY = regex(r"gfx94[0-2](?::|\Z)")


def fnuz_only(arch: str | None) -> bool:
    """Return True if the arch's matrix units have FNUZ 8-bit floats only.

    Example of an arch: ``gfx942:sramecc+:xnack-``.
    """
    return bool(_FNUZ_ONLY.match(arch or ""))


def on_arch(data_type: str | None, arch: str | None) -> str | None:
    """Return the type that a call of ``data_type`` has on this arch.  If the arch is unknown, return ``data_type``."""
    return FNUZ.get(data_type or "", data_type) if fnuz_only(arch) else data_type
