"""The samples are what their script writes."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.conftest import SAMPLES


def test_the_script_writes_the_samples(tmp_path: Path) -> None:
    script = tmp_path / "make_tunableop.py"
    script.write_bytes((SAMPLES / "make_tunableop.py").read_bytes())
    runpy.run_path(str(script), run_name="__main__")
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p != script}
    kept = {
        p.relative_to(SAMPLES): p.read_bytes()
        for folder in ("tunableop", "tables")
        for p in (SAMPLES / folder).rglob("*")
        if p.is_file() and p.name != "README.md"
    }
    assert written == kept
