"""Tests that the sample logs are exactly what their scripts write. The scripts use nothing of logparse."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.conftest import SAMPLES


@pytest.mark.parametrize("maker", sorted(SAMPLES.glob("make_*.py")), ids=lambda path: path.stem)
def test_the_script_writes_the_samples(maker: Path, tmp_path: Path) -> None:
    script = tmp_path / maker.name
    script.write_bytes(maker.read_bytes())
    assert not re.search(rb"^\s*(?:from|import) logparse", script.read_bytes(), re.MULTILINE)
    runpy.run_path(str(script), run_name="__main__")
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p != script}
    assert written
    kept = {
        p.relative_to(SAMPLES): p.read_bytes()
        for folder in {path.parts[0] for path in written}
        for p in (SAMPLES / folder).rglob("*")
        if p.is_file() and p.name != "README.md"
    }
    assert written == kept
