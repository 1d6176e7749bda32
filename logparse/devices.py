"""Peak rates of devices, and the least time that a device allows a problem (roofline).

The peaks stand in ``devices.csv`` with their sources.  A device that is not in it is unknown: callers report that.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain

PEAK_COLUMN: Mapping[str, str] = {
    **dict.fromkeys(("FP64", "f64_r", "f64_c"), "tf_fp64"),
    **dict.fromkeys(("FP32", "f32_r", "f32_c"), "tf_fp32"),
    "xf32_r": "tf_xf32",
    **dict.fromkeys(("FP16", "f16_r"), "tf_fp16"),
    **dict.fromkeys(("BF16", "bf16_r"), "tf_bf16"),
    **dict.fromkeys(("FP8", "BF8", "f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r"), "tf_fp8"),
    **dict.fromkeys(("INT8", "i8_r"), "tf_int8"),
}
"""The column of ``devices.csv`` that holds the matrix peak of an input type (GEMM and convolution words)."""


@dataclass(frozen=True)
class Device:
    """One row of ``devices.csv``: ``peaks`` in TFLOP/s by column, ``hbm_gbs`` in 10^9 bytes/s.

    ``cu_count`` is as HIP counts (``logparse.target.hip_count``): WGPs on RDNA.
    """

    name: str
    arch: str
    cu_count: int
    peaks: Mapping[str, float]
    hbm_gbs: float
    cache_bytes: int
    source: str

    def peak_tflops(self, dtype: str) -> float | None:
        """Dense matrix peak of an input type, None where the data sheet gives none.

        Convolutions of ``FP32`` are those of TF32 on NVIDIA GPUs, as PyTorch allows it by default; ``f32_r`` is full.
        """
        short = dtype == "FP32" and self.arch.startswith("sm_")
        return self.peaks.get("tf_xf32" if short else PEAK_COLUMN.get(dtype, ""))

    def least_us(self, flops: float, least_bytes: float, dtype: str) -> float | None:
        """The roofline: the longer of computing ``flops`` and moving ``least_bytes`` through HBM, in µs."""
        peak = self.peak_tflops(dtype)
        return None if peak is None else max(flops / (peak * 1e6), least_bytes / (self.hbm_gbs * 1e3))


@cache
def devices() -> tuple[Device, ...]:
    """Every device whose peaks are known, in the order of the file."""
    text = (files("logparse") / "devices.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Device(
            name=row["name"],
            arch=row["arch"],
            cu_count=int(row["cu_count"]),
            peaks={column: float(value) for column, value in row.items() if column.startswith("tf_") and value},
            hbm_gbs=float(row["hbm_gbs"]),
            cache_bytes=int(row["cache_mib"]) << 20,
            source=row["source"],
        )
        for row in rows
    )


def device_of(facts: Mapping[str, str]) -> Device | None:
    """The device that ``facts`` name: by its marketing name, else by arch and CU count; None when it is unknown.

    Of several names within a marketing name the longest counts: an RX 9070 XT is no RX 9070.
    """
    name, arch, cus = facts.get("device", ""), facts.get("arch", "").partition(":")[0], facts.get("cu_count", "")
    words = f" {' '.join(name.replace('-', ' ').replace('_', ' ').split())} "
    named = sorted((x for x in devices() if f" {x.name} " in words), key=lambda x: -len(x.name))
    alike = (x for x in devices() if x.arch == arch and str(x.cu_count) == cus)
    return next(chain(named, alike), None)


_FOUR_BIT = frozenset({"gfx950", "sm_100", "sm_103", "sm_120", "sm_121"})
"""Archs whose matrix units multiply 4-bit types, at twice the rate of 8-bit ones."""
_CLOCKS, _LATER = 1.1, 4
"""How much faster than its data sheet a device may be, and than all known ones a device may be that is not known."""


def too_fast(flops: float | None, time_us: float | None, facts: Mapping[str, str]) -> str:
    """Why a time (µs) of a matrix product of so many operations cannot be: it is above what the device that ``facts``
    name does in any precision.  Empty where it can be, and where operations or time are unknown.
    """
    if not flops or time_us is None or not time_us > 0:
        return ""
    arch = facts.get("arch", "").partition(":")[0]
    known = device_of(facts)
    alike = [known] if known else [x for x in devices() if x.arch == arch]
    most = max(rate for x in alike or devices() for rate in x.peaks.values())
    most *= (_CLOCKS if alike else _LATER) * (2 if arch in _FOUR_BIT else 1)
    rate = flops / time_us / 1e6
    if rate <= most:
        return ""
    name = "/".join(x.name for x in alike) if alike else "any device"
    return f"{time_us:g} µs are {rate:,.0f} Tflop/s: {name} does less than {most:,.0f} in any precision"
