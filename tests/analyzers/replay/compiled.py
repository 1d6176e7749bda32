"""Compile fake GPU libraries, written in C, and load them into this process."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from logparse.libraries.kinds.device import torch_device


def loaded(source: Path, built: Path) -> Path:
    """Compile the C file ``source`` to the shared library ``built``, and load it into this process. Returns its path.

    The file name of ``built`` is also the name under which the loader knows the library (its soname).
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    flags = ("-O2", "-w", "-shared", "-fPIC", f"-Wl,-soname,{built.name}")
    subprocess.run([compiler, *flags, "-o", str(built), str(source), "-lm"], check=True)
    ctypes.CDLL(str(built))
    return built


def planted_times(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let measurements read the time from the fake library's variable ``device_us`` instead of a real clock.

    Only the kernels of the fake library advance this variable, so measured times are exact.
    """
    device_us = ctypes.c_double.in_dll(ctypes.CDLL(str(library)), "device_us")
    clock = SimpleNamespace(perf_counter_ns=lambda: int(device_us.value * 1e3))
    monkeypatch.setattr(torch_device, "time", clock)
