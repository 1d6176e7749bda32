"""Writes the real output of the demo into README.md, between its two markers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- transcript begins -->", "<!-- transcript ends -->"


def main() -> None:
    """Run the demo against a store of its own and replace the transcript."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"LOGPARSE_STORE": f"{folder}/store", "PATH": path}
        environment.pop("COLUMNS", None)  # whole rows, not a terminal's
        demo = ["sh", str(ROOT / "sample_logs" / "demo.sh")]
        out = subprocess.run(demo, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    text = "\n".join(line.rstrip() for line in out.strip().splitlines())
    text = text.replace(str(ROOT), "$PWD").replace(f"{folder}/", "")
    readme = ROOT / "README.md"
    block = f"{BEGIN}\n```console\n{text}\n```\n{END}"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    readme.write_text(pattern.sub(lambda _: block, readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
