"""The code that empties instruction caches: large, and of statements that no compiler rolls up."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from analyzers.measure.backend import Place
from analyzers.measure.device.instruction_cache import STATEMENTS, source


def test_a_compiler_leaves_the_code_larger_than_the_caches(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    code = tmp_path / "flush.cpp"
    made = f"template float logparse_flush_{STATEMENTS}<float>(float);"
    code.write_text(f"{source(STATEMENTS)}\n{made}\n", encoding="ascii")
    built = code.with_suffix(".o")
    subprocess.run([compiler, "-O3", "-ffast-math", "-c", str(code), "-o", str(built)], check=True)
    assert built.stat().st_size > 64 << 10
    lines = [line for line in source(STATEMENTS).splitlines() if line.startswith("x = ")]
    assert len(set(lines)) == len(lines) == STATEMENTS


def test_torch_reads_the_code_and_a_cpu_refuses() -> None:
    pytest.importorskip("torch")
    from torch.cuda.jiterator import _CodeParser

    from analyzers.measure.device.torch_device import torch_device

    parsed = _CodeParser(source(STATEMENTS))
    assert (parsed.function_name, parsed.function_params) == (f"logparse_flush_{STATEMENTS}", "(T x)")
    with pytest.raises(RuntimeError, match="on GPUs only"):
        torch_device(Place(flush_instructions=True))
