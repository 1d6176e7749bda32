"""Peak compute and memory rates of GPUs, and the least time that a GPU needs for an operation (roofline).

``devices.csv`` lists the peaks with their sources.  For a GPU that is not in this file, the functions return None.
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
"""For each input type, the column of ``devices.csv`` with the peak rate of matrix products of this type.

Types of GEMMs (``f16_r``) and of convolutions (``FP16``) are both keys.
"""


@dataclass(frozen=True)
class Device:
    """A GPU model with the figures of its data sheet: one row of ``devices.csv``.

    * ``peaks``: peak rates in TFLOP/s, by the column of the file.
    * ``hbm_gbs``: memory bandwidth in 10^9 bytes/s.
    * ``cu_count``: number of compute units that HIP reports.
    """

    name: str
    arch: str
    # On RDNA GPUs HIP counts pairs of compute units (see ``logparse.target.hip_count``).
    cu_count: int
    peaks: Mapping[str, float]
    hbm_gbs: float
    cache_bytes: int
    source: str

    def peak_tflops(self, dtype: str) -> float | None:
        """Return the peak rate of dense matrix products in TFLOP/s, for inputs of a data type.

        Returns None if the data sheet states no such rate.
        """
        # A convolution of type ``FP32`` on an NVIDIA GPU gets the peak of TF32, because PyTorch allows TF32 there by
        # default. A GEMM of type ``f32_r`` gets the peak of full single precision.
        short = dtype == "FP32" and self.arch.startswith("sm_")
        return self.peaks.get("tf_xf32" if short else PEAK_COLUMN.get(dtype, ""))

    def least_us(self, flops: float, least_bytes: float, dtype: str) -> float | None:
        """Return the least time in µs that this GPU needs for a matrix product or convolution (the roofline).

        ``flops`` is the number of operations, ``least_bytes`` the memory traffic. Returns None if the peak for
        ``dtype`` is unknown.
        """
        peak = self.peak_tflops(dtype)
        # The longer one of two times: to compute at the peak rate, and to move the bytes from or to memory.
        return None if peak is None else max(flops / (peak * 1e6), least_bytes / (self.hbm_gbs * 1e3))


@cache
def devices() -> tuple[Device, ...]:
    """Return every GPU whose peak rates are known, in the order of ``devices.csv``."""
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
    """Return the GPU model that a machine's facts describe, or None if it is not in ``devices.csv``.

    The marketing name decides first, then the architecture and the number of compute units.
    """
    arch, cus = facts.get("arch", "").partition(":")[0], facts.get("cu_count", "")
    words = f" {' '.join(_split_words(facts.get('device', '')))} "
    # The fact ``device`` holds the marketing name. If several known names fit, the longest decides: "RX 9070 XT" is not
    # read as "RX 9070".
    named = sorted((x for x in devices() if f" {x.name} " in words), key=lambda x: -len(x.name))
    alike = (x for x in devices() if x.arch == arch and str(x.cu_count) == cus)
    return next(chain(named, alike), None)


def _split_words(name: str) -> list[str]:
    return name.replace("-", " ").replace("_", " ").split()


_SAME_CHIP = frozenset({"amd", "nvidia", "instinct", "radeon", "oam", "vf"})
"""Words in the name of a GPU that do not tell its model: the vendor, the series, the module and a virtual function."""


def same_model(one: str, other: str) -> bool:
    """Return True if two marketing names may be of the same GPU model.

    =========================  =========================  ======
    one                        other                      result
    =========================  =========================  ======
    ``AMD Instinct MI300X``    ``MI300X OAM``             True
    ``NVIDIA H100``            ``H100 80GB HBM3``         True
    ``H100 PCIe``              ``H100 80GB HBM3``         False
    ``Radeon RX 9070``         ``Radeon RX 9070 XT``      False
    =========================  =========================  ======

    If ``devices.csv`` has the model, a name may state more than the other, but not something else.
    """
    left, right = ({x.lower() for x in _split_words(name)} - _SAME_CHIP for name in (one, other))
    mine, theirs = (device_of({"device": name}) for name in (one, other))
    if mine is None or theirs is None:
        # Nothing is known of the model, so the names must have the same words.
        return one == other or (bool(left) and left == right)
    return mine == theirs and (left <= right or right <= left)


def is_nvidia(facts: Mapping[str, str]) -> bool:
    """Return True if a machine's facts (arch, backend or device name) describe an NVIDIA GPU."""
    known = device_of(facts)
    arch = facts.get("arch") or (known.arch if known else "")
    return arch.startswith("sm_") or (not arch and facts.get("backend") == "CUDA")


_FOUR_BIT = frozenset({"gfx950", "sm_100", "sm_103", "sm_120", "sm_121"})
"""GPU architectures that multiply 4-bit types twice as fast as 8-bit types."""
_CLOCKS, _LATER = 1.1, 4
"""How far a measured rate may exceed the peak of the data sheets before it is taken for an error.

The first factor is for a known GPU or architecture.  The second is for an unknown GPU, whose rate is compared with the
largest of all known peaks.
"""


def too_fast(flops: float | None, time_us: float | None, facts: Mapping[str, str]) -> str:
    """Explain why a measured time is too short for this GPU to compute a matrix product in it.

    ``facts`` describe the GPU. Returns an empty text if the time is possible, or if it or the number of operations is
    unknown.
    """
    if not flops or time_us is None or not time_us > 0:
        return ""
    most, name = _find_highest_rate(*(facts.get(x, "") for x in DESCRIBE))
    # A time in µs is impossible if the rate exceeds what the GPU reaches in any precision.
    rate = flops / time_us / 1e6
    if rate <= most:
        return ""
    return f"{time_us:g} µs would be {rate:,.0f} Tflop/s, but {name} does less than {most:,.0f} in any precision"


def most_tflops(facts: Mapping[str, str]) -> float:
    """Return the rate in Tflop/s that the GPU of these facts exceeds in no precision (see ``too_fast``)."""
    return _find_highest_rate(*(facts.get(x, "") for x in DESCRIBE))[0]


DESCRIBE = ("device", "arch", "cu_count")
"""The names of the facts that describe a GPU."""


@cache
def _find_highest_rate(*values: str) -> tuple[float, str]:
    """Return the rate (Tflop/s) that no precision of a GPU exceeds, and the GPU's name. ``values``: of ``DESCRIBE``."""
    facts = dict(zip(DESCRIBE, values, strict=True))
    known, arch = device_of(facts), facts["arch"].partition(":")[0]
    alike = [known] if known else [x for x in devices() if x.arch == arch]
    most = max(rate for x in alike or devices() for rate in x.peaks.values())
    most *= (_CLOCKS if alike else _LATER) * (2 if (known.arch if known else arch) in _FOUR_BIT else 1)
    return most, "/".join(x.name for x in alike) if alike else "any device"
