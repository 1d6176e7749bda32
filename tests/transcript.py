"""Write the session that README.md shows: five commands and their real output, between two marker lines."""

# The commands run in a folder that README.md's own commands make from the samples, in a terminal of 120 columns. Of
# each output only the lines that match a pattern are kept. … replaces the other lines.

from __future__ import annotations

import glob
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from logparse import cli
from tests.conftest import SAMPLES

BEGIN, END = "<!-- transcript begins -->", "<!-- transcript ends -->"
COLUMNS = 120
FILES = re.compile(r"^```sh\n(mkdir (?:-p )?session\S* && cd session.*?\n.*?)^```$", re.MULTILINE | re.DOTALL)
"""Pattern that finds README.md's commands which make the folder ``session`` beside ``sample_logs``."""
SHOWN = (
    ("logparse ingest *.log *.txt *.csv --run before", r"^( file| ─|.*\.(log|txt|csv)\b|run:)"),
    ("logparse top --by time -n 2", r"^( calls| ─| +\d)"),
    ("logparse recommend --target tunableop_results0.csv", r"^(?!     NT | *rest|not used)"),
    ("logparse lint overrides/*/hipblaslt_tuning.txt", r""),
    (
        "logparse verify before after/hipblaslt_rank0_4300.log overrides/*/hipblaslt_tuning.txt",
        r"^(?!  TN|  NT)",
    ),
)
"""The commands of the session, each with a pattern of the output lines that README.md shows."""


def files_of_session(text: str, folder: Path) -> Path:
    """Run the commands of README.md that make the files for its example session.

    Returns the folder with these files.
    """
    (folder / "sample_logs").symlink_to(SAMPLES)
    found = FILES.search(text)
    assert found is not None, "README has no commands that make the folder `session`"
    subprocess.run(["sh", "-euc", found[1]], cwd=folder, check=True)
    return folder / "session"


def session(folder: Path) -> Iterator[str]:
    """Run the commands of README.md's example session in ``folder``, and yield each command with its output."""

    def output(command: str) -> str:
        words = [name for word in shlex.split(command) for name in (sorted(glob.glob(word)) or [word])]
        printed = io.StringIO()
        with mock.patch.object(sys, "argv", words), redirect_stdout(printed):
            try:
                cli.main()
            except SystemExit as ended:
                if ended.code:
                    raise RuntimeError(f"{command}: exit code {ended.code}") from None
        return printed.getvalue()

    with mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS)}):
        os.environ.pop("LOGPARSE_STORE", None)
        here = Path.cwd()
        os.chdir(folder)
        try:
            yield from _commands(folder, output)
        finally:
            os.chdir(here)


def _commands(folder: Path, output: Callable[[str], str]) -> Iterator[str]:
    for command, kept in SHOWN:
        lines = output(command).replace(f"{folder}/", "$PWD/").splitlines()
        yield "\n".join([f"$ {command}", *shortened(lines, kept)])


def shortened(lines: Iterable[str], kept: str) -> Iterator[str]:
    """Yield the lines that match the pattern, wrapped if they are long. ``…`` replaces each series of other lines."""
    left_out = False
    for line in lines:
        if not re.search(kept, line):
            left_out = True
            continue
        if left_out:
            yield "…"
        left_out = False
        yield from (
            textwrap.wrap(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
            if len(line) > COLUMNS
            else [line]
        )
    if left_out:
        yield "…"


def renewed(text: str) -> str:
    """Return the text of README.md with up-to-date output of the commands in its example session."""
    with tempfile.TemporaryDirectory() as folder:
        lines = "\n\n".join(session(files_of_session(text, Path(folder))))
    block = f"{BEGIN}\n```console\n{lines}\n```\n{END}"
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, text, flags=re.DOTALL)
