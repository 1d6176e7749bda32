"""Sample folders of one format are what their script writes."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.conftest import SAMPLES

FOLDERS = ("aiter", "graph", "inductor", "moe", "rocpd")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_script_writes_the_samples(folder: str, tmp_path: Path) -> None:
    script = tmp_path / f"make_{folder}.py"
    script.write_bytes((SAMPLES / script.name).read_bytes())
    assert not re.search(rb"^(?:from|import) logparse", script.read_bytes(), re.MULTILINE)
    runpy.run_path(str(script), run_name="__main__")
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p != script}
    kept = {
        p.relative_to(SAMPLES): p.read_bytes()
        for p in (SAMPLES / folder).rglob("*")
        if p.is_file() and p.name != "README.md"
    }
    assert written == kept
