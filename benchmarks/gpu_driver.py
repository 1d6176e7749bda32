"""Ask NVIDIA's driver about itself."""

from __future__ import annotations

import contextlib
import subprocess


def driver() -> str:
    """Return the version of the NVIDIA driver, or an empty text without one."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        done = subprocess.run(query, check=False, capture_output=True, text=True, timeout=30)
        return done.stdout.split("\n")[0].strip()
    return ""
