"""Compare the machine on which a kernel's time was measured with the machine that will use the kernel (the target).

A time from another GPU model is not used.
"""

# Override files (lists of kernels for a library) are written for the target. ``libraries/builds.py`` compares the
# builds of the libraries.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import TypeAlias

from logparse.model import FACTS

Facts: TypeAlias = Mapping[str, str]
Device: TypeAlias = str
"""A GPU model as text: its architecture and number of compute units.  It is empty if both are unknown."""


def arch(facts: Facts) -> str | None:
    """Return the GPU architecture without its features, for example ``gfx942`` for ``gfx942:sramecc+:xnack-``.

    Returns None if it is unknown.
    """
    return facts.get("arch", "").partition(":")[0] or None


_LARGEST = """
gfx1010 20, gfx1011 20, gfx1012 12, gfx1030 40, gfx1031 20, gfx1032 16, gfx1033 4, gfx1034 8, gfx1035 6, gfx1036 1,
gfx1100 48, gfx1101 30, gfx1102 16, gfx1103 6, gfx1150 8, gfx1151 20, gfx1152 4, gfx1200 16, gfx1201 32
"""
_MOST_WGPS: Mapping[str, int] = {name: int(count) for name, count in map(str.split, _LARGEST.split(","))}
"""For each RDNA architecture, the number of workgroup processors (pairs of compute units) of its largest GPU.

The numbers are from AMD's data.
"""
_COUNT = re.compile("[0-9]{1,9}")
_PAIRS_CUS = re.compile(r"gfx1(?!2[5-9])\d{2}[0-9a-f]")


def counts_wgps(arch: str) -> bool:
    """Return True if HIP counts pairs of compute units (workgroup processors) on this GPU architecture.

    HIP does so from gfx10 on, except on gfx125x, unless ``GPU_ENABLE_WGP_MODE=0`` is set.  Source: ROCm/clr
    ``rocclr/device/rocm/rocsettings.cpp`` (``Settings::create``: ``enableWgpMode_``) and ``rocdevice.cpp``
    (``Device::populateOCLDeviceConstants``: ``maxComputeUnits_``).
    """
    return _PAIRS_CUS.fullmatch(arch.partition(":")[0]) is not None


def hip_count(units: int, arch: str) -> int:
    """Return how many compute units HIP reports for a GPU of this architecture.

    ``units`` is the number that the HSA runtime reports (rocminfo, rocprof, rocpd).  On RDNA, HIP reports half of it.
    """
    return units // 2 if counts_wgps(arch) else units


def as_hip_counts(facts: Facts) -> dict[str, str]:
    """Return the facts of a machine with the number of compute units replaced by the number that HIP would report.

    On RDNA, rocminfo and data sheets count compute units (64 on gfx1201), but HIP counts pairs of them (32 on gfx1201),
    and so do MIOpen, PyTorch and hipBLASLt.  A number that is too large for pairs on this architecture is halved.  If
    ``wgp_mode`` is 0, HIP counts single units there, so nothing is halved.  The result can be wrong only for a GPU that
    is cut down to half.
    """
    units, most = facts.get("cu_count", ""), _MOST_WGPS.get(arch(facts) or "")
    counts_cus = most is not None and _COUNT.fullmatch(units) and int(units) > most and facts.get("wgp_mode") != "0"
    return dict(facts) | ({"cu_count": str(int(units) // 2)} if counts_cus else {})


def same_value(name: str, one: str, other: str) -> bool:
    """Return True if two values of the fact ``name`` may mean the same thing. One value may only have more detail.

    ``2.9.1`` and ``2.9.1+rocm7.0`` may mean the same, and so may ``gfx942`` and ``gfx942:sramecc+:xnack-``.
    ``gfx942:xnack-`` and ``gfx942:xnack+`` differ.
    """
    if name == "arch":
        (mine, *features), (theirs, *others) = one.split(":"), other.split(":")
        opposite = {x[:-1] + {"+": "-", "-": "+"}[x[-1]] for x in features if x[-1:] in ("+", "-")}
        return mine == theirs and not opposite & set(others)
    left, right = (re.split(r"[.\-+ ]", _spell_version(name, x)) for x in (one, other))
    return all(a == b for a, b in zip(left, right, strict=False))


_RUNTIME = 10_000_000
"""Smallest number that is a version of the HIP runtime: major·10⁷ + minor·10⁵ + patch.

A smaller number is major·100 + minor, which is the form in PyTorch's tuning files.  MIOpen's logs write the version
with dots.
"""


def _spell_version(name: str, text: str) -> str:
    """Write a version of HIP or hipBLASLt with dots. For example, hipBLASLt's number 1201 becomes ``0.12.1``.

    A version of HIP gets the form ``major.minor``, and a version of hipBLASLt ``major.minor.patch``.  Any text that is
    not a single number is returned unchanged.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        return text
    number = int(text)
    if name == "hip_version":
        number = number // 100_000 if number >= _RUNTIME else number
        return f"{number // 100}.{number % 100}"
    if name == "hipblaslt_version":
        return f"{number // 100_000}.{number // 100 % 1000}.{number % 100}"
    return text


def same_device(one: Facts, other: Facts) -> bool | None:
    """Return True if two machines have the same GPU model: equal architectures and equal numbers of compute units.

    Returns None if an architecture is unknown and the numbers do not differ.
    """
    # If a machine does not state its number, only the architectures are compared.
    if any(name in one and name in other and one[name] != other[name] for name in ("cu_count",)):
        return False
    left, right = arch(one), arch(other)
    return None if left is None or right is None else left == right


def device_of_file(facts: Facts) -> Device:
    """Return a text that names the GPU model on which a file was made, from the facts in the file."""
    return " ".join(x for x in (arch(facts), facts.get("cu_count")) if x)


def several_devices(machines: Iterable[Facts]) -> bool:
    """Return True if two of the machines certainly have different GPU models."""
    return any(same_device(one, other) is False for one, other in combinations(machines, 2))


def different_devices(facts: Mapping[str, Facts], own: Iterable[str]) -> set[tuple[Device, Device]]:
    """Return pairs of GPU models whose times must not be mixed.

    In each pair, the first model is from a log with calls and the second is from a file with times. A time of the
    second must not be used for calls on the first, because the models differ, or because it is unknown whether they
    differ. ``facts`` holds the facts of every file by its id, and ``own`` names the files of the run (one execution of
    the job). The result is empty unless the run's files name two different GPU models.
    """
    stated = {device_of_file(x): x for x in facts.values()}
    here = {device_of_file(x): x for x in (facts.get(source, {}) for source in own)}
    if not several_devices(here.values()):
        return set()
    return {
        (log, time)
        for log, mine in {"": {}, **here}.items()
        for time, other in stated.items()
        if same_device(mine, other) is False or (arch(mine) is None and arch(other) is not None)
    }


def machine(facts: Facts) -> dict[str, str]:
    """Return those facts that identify a machine and its libraries. Facts about one file or process are left out."""
    return {name: x for name, x in facts.items() if name != "pid" and (name in FACTS or name.startswith("validator:"))}


def machine_of_files(facts: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Combine what several files say about one machine. Facts on which files disagree are left out.

    ``facts`` are rows (id of the file, name, value).
    """
    values: dict[str, set[str]] = {}
    sets: dict[str, set[tuple[str, str]]] = {}
    for source, name, value in facts:
        values.setdefault(name, set()).add(value)
        if name.startswith("validator:"):
            sets.setdefault(source, set()).add((name, value))
    # Validators (versions that PyTorch writes into its tuning files) are kept only if all files that have validators
    # have the same ones.
    if len(set(map(frozenset, sets.values()))) > 1:
        values = {name: x for name, x in values.items() if not name.startswith("validator:")}
    return machine({name: min(x) for name, x in sorted(values.items()) if len(x) == 1})


def seen_by(gpus: int, facts: Facts) -> dict[str, str]:
    """Return a machine's facts with one more fact ``gpus``: how many GPUs a process of the job sees.

    That number is the argument ``gpus`` if the argument is above 1, otherwise the number in ``facts``, otherwise 1.
    """
    return {"gpus": "1", **facts} | ({"gpus": str(gpus)} if gpus > 1 else {})
