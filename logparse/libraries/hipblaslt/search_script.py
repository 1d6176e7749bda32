"""The shell script with which hipBLASLt searches for faster kernels: ``tune_hipblaslt.sh``."""

from __future__ import annotations

from pathlib import Path

from logparse.libraries.hipblaslt.bench import command
from logparse.libraries.kinds.search_script import SearchScript
from logparse.model import GemmProblem

SEARCH_SCRIPT = SearchScript(
    "tune_hipblaslt.sh",
    "hipblaslt",
    GemmProblem,
    command,
    Path(__file__).with_name("tune_hipblaslt.sh.in"),
    results=("hipblaslt-tuning.txt", "hipblaslt-tuning.log"),
)
