"""Short tests that feed random text to the readers of log lines (fuzzing).

``make nightly`` has a longer run for each reader. Runs of hours are started by hand (see ``fuzz_lines``).
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat
from tests.conftest import ROOT, sized

RUNS = sized(200, 3000)
LANGUAGES = [pytest.param(f.name, marks=pytest.mark.nightly) for f in FORMATS if not isinstance(f, FileFormat)]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")


@pytest.mark.parametrize("language", ["stream", *LANGUAGES])
def test_nothing_raises(language: str, tmp_path: Path) -> None:
    options = [
        f"-runs={RUNS}",
        "-max_total_time=60",
        "-seed=1",
        f"-artifact_prefix={tmp_path}/",
        "-print_final_stats=1",
    ]
    command = [sys.executable, "-m", "tests.fuzz.fuzz_lines", language, *options]
    out = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=ROOT)
    assert out.returncode == 0, out.stderr[-4000:]
    executed = re.search(r"stat::number_of_executed_units: (\d+)", out.stderr)
    assert executed is not None
    assert int(executed[1]) > 100
