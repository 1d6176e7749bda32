"""Check that the machine is idle before a measurement, and that its clock is steady during the measurement."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from analyzers.evidence.statistics.intervals import median

T = TypeVar("T")

_QUERY = "clocks.sm,utilization.gpu,temperature.gpu,clocks_event_reasons.active"
_BUSY_PERCENT = 5.0
_READINGS, _EVERY_S, _STALE_S = 8, 0.1, 1.0
_LEAST_S, _MOST_S = 0.5, 5.0
"""Two times in seconds for making the clock of a GPU steady.

* ``_LEAST_S``: an idle GPU is kept busy at least this long.
* ``_MOST_S``: its clock may take this long to become steady. If the clock keeps changing during a measurement, a sample
  is repeated for at most this time.
"""
_LEAST_TRIES = 3
_AGREEING, _MOVED = 0.02, 0.05
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""A bit mask for the reasons that NVML reports for a clock change. The bits in it mean that the GPU is throttled.

The reasons are hardware slowdown, thermal slowdown (by software or hardware), and power brake.
"""


class UnsettledError(Exception):
    """Raised if the clock of the GPU did not become steady, so that times cannot be compared."""


class SteadyClock:
    """Takes measurements only while the clock of the GPU is steady.

    * ``reading``: runs a reference computation and returns its time, µs.
    * ``now``: returns the present time, s.
    """

    def __init__(self, reading: Callable[[], float], now: Callable[[], float] = time.monotonic) -> None:
        # The reference also runs during the measurements. A GPU at its power limit has a lower clock than an idle GPU,
        # and both clocks are steady.
        self._reading, self._now = reading, now
        self._checked_s = -math.inf
        self._reference_us = math.nan

    def settle(self) -> None:
        """Keep the GPU busy with a reference computation until its clock is steady, so that the last times agree.

        Raises UnsettledError if the times do not agree within 5 s.
        """
        started = self._now()
        # The GPU must be busy because an idle clock is steady too, but much too low.
        last = [self._reading()]
        while self._now() - started < _MOST_S:
            last = [*last[-_READINGS + 1 :], self._reading()]
            settled = len(last) == _READINGS and max(last) / min(last) - 1 <= _AGREEING
            if settled and self._now() - started >= _LEAST_S:
                self._reference_us, self._checked_s = median(last), self._now()
                return
        raise UnsettledError(
            f"the GPU's clock did not settle in {_MOST_S:.0f} s: {min(last):.1f} to {max(last):.1f} µs for the "
            "reference kernel"
        )

    def ready(self) -> None:
        """Make sure that the GPU's clock is steady. Raises UnsettledError if it does not become steady.

        Nothing is done if that was checked in the last second.
        """
        if self._now() - self._checked_s > _STALE_S:
            self.settle()

    def held(self, sample: Callable[[], T], *, every_s: float = _EVERY_S) -> T:
        """Repeat a measurement (``sample``) until the GPU's clock did not change during it, and return its result.

        * ``every_s``: how long a check of the clock is valid, s.

        Raises UnsettledError if the clock changes for 5 s, in three or more tries.
        """
        started, tries = self._now(), 0
        while True:
            taken, tries = sample(), tries + 1
            if self._now() - self._checked_s < every_s or self._steady():
                return taken
            every_s = 0.0  # After a result was discarded, the next result is always checked.
            if tries >= _LEAST_TRIES and self._now() - started > _MOST_S:
                raise UnsettledError(
                    f"the GPU's clock changed during each of {tries} tries, in {self._now() - started:.1f} s"
                )

    def _steady(self) -> bool:
        before, self._reference_us = self._reference_us, median([self._reading() for _ in range(3)])
        self._checked_s = self._now()
        return abs(self._reference_us / before - 1) <= _MOVED


def idle_facts(device: str) -> Mapping[str, str]:
    """Return the clock and the load of a device (``cuda:0``, ``cpu``), and how many other processes use it.

    Facts that are unknown are left out.
    """
    if device == "cpu":
        with contextlib.suppress(OSError):
            return {"load": f"{os.getloadavg()[0]:.2f}"}
        return {}
    seen = device.partition(":")[2] or "0"
    hip = _physical(seen, "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    return _nvidia(_physical(seen, "CUDA_VISIBLE_DEVICES")) or _amd(_physical(hip, "ROCR_VISIBLE_DEVICES"))


def _physical(seen: str, *variables: str) -> str:
    """Return the machine's own number or UUID of the GPU that this process sees under the number ``seen``.

    Environment variables such as ``CUDA_VISIBLE_DEVICES`` renumber the GPUs. The first of ``variables`` that is set
    lists the GPUs. Returns "none" if the list is too short. Sources: CUDA C++ Programming Guide, "CUDA Environment
    Variables"; ROCm documentation, "GPU isolation techniques" (ROCR's list is applied first, and HIP's numbers refer to
    the devices of ROCR's list).
    """
    listed = next((value for name in variables if (value := os.environ.get(name)) is not None), None)
    if listed is None or not seen.isdecimal():
        return seen
    devices = [word.strip() for word in listed.split(",")]
    return devices[int(seen)] if int(seen) < len(devices) else "none"


def noise(facts: Mapping[str, str]) -> list[str]:
    """Return reasons why times on this machine may be disturbed, for example that the GPU is busy. Empty if it is idle.

    ``facts`` comes from ``idle_facts``.
    """
    out = []
    if float(facts.get("busy_percent", 0)) > _BUSY_PERCENT:
        out.append(f"the GPU was {facts['busy_percent']} % busy before the measurement")
    if int(facts.get("throttle", "0"), 16) & _SLOWED:
        out.append(f"the GPU was throttled (clock event reasons {facts['throttle']})")
    if int(facts.get("other_processes", 0)) > 0:
        out.append(f"{facts['other_processes']} other process(es) used the GPU")
    if "load" in facts and float(facts["load"]) > 0.5 * (os.cpu_count() or 1):
        out.append(f"the CPU's load average was {facts['load']}")
    return out


def _nvidia(device: str) -> dict[str, str]:
    values = _ask(["nvidia-smi", f"--id={device}", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"])
    words = [word.strip() for word in values.split(",")]
    if len(words) != 4:
        return {}
    pids = _ask(["nvidia-smi", f"--id={device}", "--query-compute-apps=pid", "--format=csv,noheader"]).split()
    others = sum(pid.isdigit() and int(pid) != os.getpid() for pid in pids)
    names = ("clock_mhz", "busy_percent", "temperature_c", "throttle")
    known = {name: word for name, word in zip(names, words, strict=True) if not word.startswith("[")}
    return known | {"other_processes": str(others)}


def _amd(device: str) -> dict[str, str]:
    """Return how busy an AMD GPU is, in percent, as the amdgpu driver states it in sysfs.

    * ``device``: the number of the card. A UUID gives no result.

    Source: kernel documentation, ``gpu_busy_percent``.
    """
    cards = sorted(Path("/sys/class/drm").glob("card*/device/gpu_busy_percent"))
    # ROCR's list of devices may hold UUIDs. The number of the card cannot be read from a UUID.
    if not device.isdecimal() or int(device) >= len(cards):
        return {}
    with contextlib.suppress(OSError):
        return {"busy_percent": cards[int(device)].read_text(encoding="ascii").strip()}
    return {}


def _ask(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
