"""Measure the CPU time of each command on small samples, and count the modules that the command imports.

    python benchmarks/starts.py                              # this checkout
    python benchmarks/starts.py --against ../other           # beside another checkout, by turns in one run

Each command runs in a process of its own on samples. Python has compiled the modules before. Its figure is the median
of user and system seconds (``getrusage`` of the child). Two checkouts take turns, so that the machine's noise affects
both alike. ``modules`` is the number of logparse's own modules.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
LOG = SAMPLES / "hipblaslt" / "hipblaslt_rank0_4242.log"
TUNED = SAMPLES / "tunableop" / "tunableop_results0.csv"
STORED = (LOG, SAMPLES / "hipblaslt" / "bench_output.txt", SAMPLES / "miopen" / "gfx942130.HIP.fdb.txt", TUNED)
VERBS: tuple[Sequence[str], ...] = (
    ("--help",),
    ("ingest", "--help"),
    ("ingest", str(LOG), "--store", "{new}"),
    ("status", "--store", "{store}"),
    ("top", "--store", "{store}"),
    ("sql", "from sources", "--store", "{store}"),
    ("recommend", "--store", "{store}", "--target", str(TUNED), "--out", "{new}"),
    ("merge", str(TUNED), str(TUNED), "--out", "{new}"),
    ("lint", str(TUNED)),
    ("diff", "{store}", "{store}"),
    ("replay", "--dry-run", "--store", "{store}"),
)
MODULES = """
import contextlib, io, sys
from logparse.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    with contextlib.suppress(SystemExit):
        main()
print([name for name in sys.modules if name.partition(".")[0] in ("logparse", "analyzers")])
"""


def main() -> int:
    """Read the command line, measure the checkouts in turns, and print one line per command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, with its native modules built")
    parser.add_argument("--count", type=int, default=9, help="processes per verb and checkout")
    parser.add_argument("--verb", action="append", help="only these")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against.resolve()] if options.against else [])]
    verbs = [words for words in VERBS if not options.verb or words[0] in options.verb]
    with tempfile.TemporaryDirectory() as place:
        runs = [Runs(checkout, Path(place) / str(number)) for number, checkout in enumerate(checkouts)]
        print(f"{'CPU in ms, median of ' + str(options.count):44}", *(f"{x.checkout.name:>22}" for x in runs))
        for words in verbs:
            modules = [x.modules(words) for x in runs]
            times = list(zip(*([x.cpu_seconds(words) for x in runs] for _ in range(options.count)), strict=True))
            medians = [statistics.median(x) for x in times]
            cells = [f"{m * 1e3:8.0f} ({n:3} modules)" for m, n in zip(medians, modules, strict=True)]
            ratios = [here / there for here, there in zip(times[0], times[-1], strict=True)]
            change = f"  {statistics.median(ratios) - 1:+.1%}" if len(runs) > 1 else ""
            print(f"{' '.join(x if len(x) < 20 else Path(x).name for x in words)[:44]:44}", *cells, change, flush=True)
    return 0


class Runs:
    """Runs commands of logparse from one checkout of the source code, on small sample data."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.checkout, self.folder, self._number = checkout, folder, 0
        for package in ("logparse", "analyzers"):
            compileall.compile_dir(checkout / package, quiet=2)
        self.cpu_seconds(("ingest", *map(str, STORED), "--store", "{store}", "--run", "samples"))

    def _words(self, words: Sequence[str]) -> list[str]:
        self._number += 1
        return [x.format(store=self.folder / "store", new=self.folder / f"new{self._number}") for x in words]

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.checkout), "PYTHONDONTWRITEBYTECODE": ""}

    def cpu_seconds(self, words: Sequence[str]) -> float:
        """Return the user and system seconds of ``logparse WORD…``. Raises RuntimeError if the command fails."""
        command = [sys.executable, "-m", "logparse", *self._words(words)]
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "said").open("w+b") as said:
            child = subprocess.Popen(command, stdout=said, stderr=said, cwd=self.folder, env=self._environment)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                said.seek(0)
                raise RuntimeError(f"{self.checkout}: {' '.join(command)}: {said.read().decode()}")
        for made in self.folder.glob("new*"):
            shutil.rmtree(made)
        return usage.ru_utime + usage.ru_stime

    def modules(self, words: Sequence[str]) -> int:
        """Return how many of logparse's own modules ``logparse WORD…`` imports."""
        command = [sys.executable, "-c", MODULES, *self._words(words)]
        out = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, env=self._environment, check=True
        )
        return len(ast.literal_eval(out.stdout))


if __name__ == "__main__":
    sys.exit(main())
