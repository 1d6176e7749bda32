"""Fake libraries of C, compiled and loaded into this process."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest


def loaded(source: Path, built: Path) -> Path:
    """Compile ``source`` to ``built``, whose name is also its soname, and load it; returns ``built``."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    flags = ("-O2", "-w", "-shared", "-fPIC", f"-Wl,-soname,{built.name}")
    subprocess.run([compiler, *flags, "-o", str(built), str(source), "-lm"], check=True)
    ctypes.CDLL(str(built))
    return built
