"""Find out which of the two families of 8-bit floats a GPU computes with.

hipBLASLt's logs print ``f8_r`` and ``bf8_r`` both for OCP's types (the industry standard) and for AMD's older FNUZ
types.  The GPU's matrix units decide which family it is:

* CDNA 3 (gfx940 to gfx942) has FNUZ types only.
* CDNA 4 (gfx950) and RDNA 4 (gfx12) have OCP's types.

Source: ROCm documentation, "Data types and precision support"; ROCm/hipBLASLt ``library/include/hipblaslt-types.h``.
"""

from __future__ import annotations

from collections.abc import Mapping

from logparse.libraries.kinds.patterns import regex

FNUZ: Mapping[str, str] = {"f8_r": "f8_fnuz_r", "bf8_r": "bf8_fnuz_r"}
"""The FNUZ name of each 8-bit type, by its OCP name.  Logs use the OCP names for both families."""
OCP: Mapping[str, str] = {fnuz: ocp for ocp, fnuz in FNUZ.items()}
"""The OCP name of each 8-bit type, by its FNUZ name."""

_FNUZ_ONLY = regex(r"gfx94[0-2](?::|\Z)")


def fnuz_only(arch: str | None) -> bool:
    """Return True if GPUs of this architecture have 8-bit floats of the FNUZ family only.

    ``arch`` is for example ``gfx942:sramecc+:xnack-``.
    """
    return bool(_FNUZ_ONLY.match(arch or ""))


def on_arch(data_type: str | None, arch: str | None) -> str | None:
    """Return which 8-bit type a log really means on a GPU of this architecture: ``f8_fnuz_r`` for ``f8_r`` on gfx942.

    Other types, and all types on an unknown architecture, are returned unchanged.
    """
    return FNUZ.get(data_type or "", data_type) if fnuz_only(arch) else data_type
