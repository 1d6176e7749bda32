"""Whether the machine is idle before a measurement, and how a reference drifts during it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from analyzers.evidence.stats import median

_QUERY = "clocks.sm,utilization.gpu,temperature.gpu,clocks_event_reasons.active"
_BUSY_PERCENT = 5.0

VOLATILE = frozenset({"clock_mhz", "busy_percent", "temperature_c", "throttle", "other_processes", "load", "drift"})
"""Facts of a moment: stored, but no part of an environment's identity."""


@dataclass
class Drift:
    """Readings of one reference problem through a session, as ratios to the median of the first three.

    Times from before and after a change of more than ``limit`` are not pooled.
    """

    limit: float = 0.05
    readings_us: list[float] = field(default_factory=list)

    def read(self, time_us: float) -> float:
        """Take a reading; returns it relative to the start (1.0: no drift)."""
        self.readings_us.append(time_us)
        return time_us / median(self.readings_us[:3])

    def moved(self, before: float, after: float) -> bool:
        """Whether two relative readings around a measurement differ too much."""
        return abs(after / before - 1) > self.limit


def idle_facts(device: str) -> Mapping[str, str]:
    """Clock, load and foreign processes of ``device`` (``cuda:0``, ``cpu``), as far as the machine reports them."""
    if device == "cpu":
        with contextlib.suppress(OSError):
            return {"load": f"{os.getloadavg()[0]:.2f}"}
        return {}
    index = int(device.partition(":")[2] or 0)
    return _nvidia(index) or _amd(index)


def noise(facts: Mapping[str, str]) -> list[str]:
    """Reasons why a machine with these facts is not idle; empty where there are none."""
    out = []
    if float(facts.get("busy_percent", 0)) > _BUSY_PERCENT:
        out.append(f"the GPU was {facts['busy_percent']} % busy before the measurement")
    if int(facts.get("other_processes", 0)) > 0:
        out.append(f"{facts['other_processes']} other process(es) held the GPU")
    if "load" in facts and float(facts["load"]) > 0.5 * (os.cpu_count() or 1):
        out.append(f"the CPU's load average was {facts['load']}")
    return out


def _nvidia(index: int) -> dict[str, str]:
    values = _ask(["nvidia-smi", f"--id={index}", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"])
    words = [word.strip() for word in values.split(",")]
    if len(words) != 4:
        return {}
    pids = _ask(["nvidia-smi", f"--id={index}", "--query-compute-apps=pid", "--format=csv,noheader"]).split()
    others = sum(pid.isdigit() and int(pid) != os.getpid() for pid in pids)
    names = ("clock_mhz", "busy_percent", "temperature_c", "throttle")
    known = {name: word for name, word in zip(names, words, strict=True) if not word.startswith("[")}
    return known | {"other_processes": str(others)}


def _amd(index: int) -> dict[str, str]:
    """The amdgpu driver's sysfs files (kernel documentation, ``gpu_busy_percent``), in the order of the cards."""
    cards = sorted(Path("/sys/class/drm").glob("card*/device/gpu_busy_percent"))
    if index >= len(cards):
        return {}
    with contextlib.suppress(OSError):
        return {"busy_percent": cards[index].read_text(encoding="ascii").strip()}
    return {}


def _ask(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
