"""Compare machines: the target (the machine that will read the overrides) and the machine of a measurement.

A time from another device is left out.  ``libraries/builds.py`` compares the builds of the libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import TypeAlias

from logparse.model import FACTS

Facts: TypeAlias = Mapping[str, str]
Device: TypeAlias = str
"""Text of arch and CU count from the facts of a file.  It is empty if the file states neither."""


def arch(facts: Facts) -> str | None:
    """Return the arch without its features: ``gfx942`` for ``gfx942:sramecc+:xnack-``.  Return None if it is
    unknown.
    """
    return facts.get("arch", "").partition(":")[0] or None


_LARGEST = """
gfx1010 20, gfx1011 20, gfx1012 12, gfx1030 40, gfx1031 20, gfx1032 16, gfx1033 4, gfx1034 8, gfx1035 6, gfx1036 1,
gfx1100 48, gfx1101 30, gfx1102 16, gfx1103 6, gfx1150 8, gfx1151 20, gfx1152 4, gfx1200 16, gfx1201 32
"""
_MOST_WGPS: Mapping[str, int] = {name: int(count) for name, count in map(str.split, _LARGEST.split(","))}
"""Workgroup processors (pairs of CUs) of the largest device of an RDNA arch, from AMD's specifications."""
_COUNT = re.compile("[0-9]{1,9}")
_PAIRS_CUS = re.compile(r"gfx1(?!2[5-9])\d{2}[0-9a-f]")


def counts_wgps(arch: str) -> bool:
    """Tell whether HIP counts workgroup processors (WGPs) on an arch.  A WGP has two CUs.

    HIP does from gfx10 on, except on gfx125x, unless ``GPU_ENABLE_WGP_MODE=0``.  Source: ROCm/clr
    ``rocclr/device/rocm/rocsettings.cpp`` (``Settings::create``: ``enableWgpMode_``) and ``rocdevice.cpp``
    (``Device::populateOCLDeviceConstants``: ``maxComputeUnits_``).
    """
    return _PAIRS_CUS.fullmatch(arch.partition(":")[0]) is not None


def hip_count(units: int, arch: str) -> int:
    """Return HIP's count for ``units`` CUs.

    ``units`` is a count of the HSA runtime (rocminfo, rocprof, rocpd), which always counts CUs.
    """
    return units // 2 if counts_wgps(arch) else units


def as_hip_counts(facts: Facts) -> dict[str, str]:
    """Return the facts with ``cu_count`` as HIP counts.  A number that is too large for WGPs is halved.

    A person reads the number from rocminfo or a data sheet, which count CUs (64 on gfx1201).  MIOpen, PyTorch and
    hipBLASLt ask HIP, which counts WGPs (32 on gfx1201).  The two ranges never overlap on one arch, except for devices
    that are cut down to half.  If ``wgp_mode`` is 0, HIP counts CUs there, so nothing is halved.
    """
    units, most = facts.get("cu_count", ""), _MOST_WGPS.get(arch(facts) or "")
    counts_cus = most is not None and _COUNT.fullmatch(units) and int(units) > most and facts.get("wgp_mode") != "0"
    return dict(facts) | ({"cu_count": str(int(units) // 2)} if counts_cus else {})


def same_value(name: str, one: str, other: str) -> bool:
    """Tell whether two values of the fact ``name`` may mean the same: they are equal, or one of them gives more detail.

    Examples: ``2.9.1`` and ``2.9.1+rocm7.0`` may mean the same, and so may ``gfx942`` and ``gfx942:sramecc+:xnack-``.
    ``gfx942:xnack-`` and ``gfx942:xnack+`` do not.
    """
    if name == "arch":
        (mine, *features), (theirs, *others) = one.split(":"), other.split(":")
        opposite = {x[:-1] + {"+": "-", "-": "+"}[x[-1]] for x in features if x[-1:] in ("+", "-")}
        return mine == theirs and not opposite & set(others)
    left, right = (re.split(r"[.\-+ ]", _spelled(name, x)) for x in (one, other))
    return all(a == b for a, b in zip(left, right, strict=False))


_RUNTIME = 10_000_000
"""Smallest number that is a version of the HIP runtime, major·10⁷ + minor·10⁵ + patch.

A smaller number is major·100 + minor, as in PyTorch's validator.  MIOpen's logs write the version with dots.
"""


def _spelled(name: str, text: str) -> str:
    """Spell a version of HIP or hipBLASLt that is one number as ``major.minor`` or ``major.minor.patch``.

    Other texts stay.
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
    """Tell whether two machines have the same GPU arch and, if both state a CU count, the same CU count.

    Return None if an arch is unknown and the CU counts do not differ.
    """
    if any(name in one and name in other and one[name] != other[name] for name in ("cu_count",)):
        return False
    left, right = arch(one), arch(other)
    return None if left is None or right is None else left == right


def device_of_file(facts: Facts) -> Device:
    """Return the device that the facts of a file name, as one text (``Device``)."""
    return " ".join(x for x in (arch(facts), facts.get("cu_count")) if x)


def different_devices(facts: Mapping[str, Facts], own: Iterable[str]) -> set[tuple[Device, Device]]:
    """Return the pairs (device of a log, device of a time) whose time must not be used for the log's calls.

    The two devices differ, or it is unknown whether they differ.  ``facts`` holds the facts of every source.  ``own``
    names the sources of the run.  The result leaves out pairs of equal devices.  It is empty unless the run's sources
    name two different devices.
    """
    stated = {device_of_file(x): x for x in facts.values()}
    here = {device_of_file(x): x for x in (facts.get(source, {}) for source in own)}
    if all(same_device(one, other) is not False for one, other in combinations(here.values(), 2)):
        return set()
    return {
        (log, time)
        for log, mine in {"": {}, **here}.items()
        for time, other in stated.items()
        if same_device(mine, other) is False or (arch(mine) is None and arch(other) is not None)
    }


def machine(facts: Facts) -> dict[str, str]:
    """Return the facts that identify a machine and its libraries.  Facts about one file or process are left out."""
    return {name: x for name, x in facts.items() if name != "pid" and (name in FACTS or name.startswith("validator:"))}


def machine_of_files(facts: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return the facts of a machine on which all files agree, from rows (source, name, value).

    Validators are kept only if all files with validators have the same set of validators.
    """
    values: dict[str, set[str]] = {}
    sets: dict[str, set[tuple[str, str]]] = {}
    for source, name, value in facts:
        values.setdefault(name, set()).add(value)
        if name.startswith("validator:"):
            sets.setdefault(source, set()).add((name, value))
    if len(set(map(frozenset, sets.values()))) > 1:
        values = {name: x for name, x in values.items() if not name.startswith("validator:")}
    return machine({name: min(x) for name, x in sorted(values.items()) if len(x) == 1})


def seen_by(gpus: int, facts: Facts) -> dict[str, str]:
    """Return the facts with ``gpus``, the number of devices that a process sees.

    The number is the argument if it is above 1, else the number in the facts, else 1.
    """
    return {"gpus": "1", **facts} | ({"gpus": str(gpus)} if gpus > 1 else {})
