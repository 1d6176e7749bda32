"""The shell script with which MIOpen searches for the fastest solvers: ``tune_miopen.sh``."""

from __future__ import annotations

from pathlib import Path

from logparse.libraries.kinds.search_script import SearchScript
from logparse.libraries.miopen.driver import command
from logparse.model import ConvProblem

SEARCH_SCRIPT = SearchScript(
    "tune_miopen.sh",
    "miopen",
    ConvProblem,
    command,
    Path(__file__).with_name("tune_miopen.sh.in"),
    results=("miopen-tuning-db/*.ufdb.txt", "miopen-tuning-db/tune.log"),
)
