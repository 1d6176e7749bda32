"""Whole files through the line reader: nothing that bears a marker is foreign, and every line is accounted for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from logparse.formats.format import BlockFormat, LineFormat
from logparse.formats.hipblaslt import bench, bench_output, log, preamble, profile
from logparse.ingest.lines import LineReader
from tests.conftest import CORPUS, ROOT
from tests.formats.hipblaslt.texts import SAMPLES
from tests.formats.reading import units_of

FORMATS: tuple[LineFormat | BlockFormat, ...] = (
    log.FORMAT,
    bench.FORMAT,
    profile.FORMAT,
    bench_output.FORMAT,
    preamble.FORMAT,
)
STREAMS = [
    path
    for path in (*sorted(SAMPLES.rglob("*.*")), *sorted((CORPUS / "hipblaslt").glob("*.log")))
    if path.suffix != ".md" and "tuning_" not in path.name and "rocblas" not in path.name
]
REJECTS = {"mixed.log": 4, "profile_mask64_pr2003_one_line_truncated.log": 1}


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_every_line_is_accounted_for(path: Path) -> None:
    data = path.read_bytes()
    reader = LineReader(FORMATS, head=data)
    reader.feed(data, 0)
    got = reader.take()
    units = units_of(got)
    assert sum(units.values()) == got.lines + got.splits
    marked = [line for line in data.split(b"\n") if any(m in line for f in FORMATS for m in f.markers)]
    assert units["foreign"] + units["blank"] <= got.lines - len(marked)
    assert units["reject"] == REJECTS.get(path.name, 0)


def test_samples_are_what_their_maker_writes(tmp_path: Path) -> None:
    maker = ROOT / "sample_logs" / "make_hipblaslt.py"
    assert "import logparse" not in maker.read_text()
    assert "from logparse" not in maker.read_text()
    shutil.copy(maker, tmp_path)
    subprocess.run([sys.executable, "make_hipblaslt.py"], cwd=tmp_path, check=True)
    made = {p.relative_to(tmp_path / "hipblaslt"): p.read_bytes() for p in (tmp_path / "hipblaslt").rglob("*.*")}
    assert made == {p.relative_to(SAMPLES): p.read_bytes() for p in SAMPLES.rglob("*.*") if p.suffix != ".md"}
