"""Tests of the documents: every command in them runs, or at least parses, and their lists are complete."""

from __future__ import annotations

import glob
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import logparse
from logparse.cli import app
from logparse.libraries import FORMATS
from tests import transcript
from tests.conftest import ROOT, SAMPLES
from tests.golden import Goldens

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM: Any = typer.main.get_command(app)
UsageError = typer.BadParameter.__mro__[1]
FENCE = re.compile(
    r"(?:^<!-- (?P<note>not run: [^>]+|exit code \d) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHELL = re.compile(r"[|<>;&]|^\s*(?!logparse\b)\S")
"""Pattern of commands that need a shell: commands with a pipe or a redirection, and programs other than logparse."""


@dataclass(frozen=True)
class Block:
    """A block of code between fences (```) in a document.

    ``note`` is the HTML comment before the block. It states which result the commands must have.
    """

    document: Path
    line: int
    language: str
    note: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Return the commands of a block, one per line.

        In a console session, these are the lines after a prompt (``$``). In a script, these are all lines except for
        comments.
        """
        joined = self.text.replace("\\\n", " ")
        if self.language == "console":
            return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]

    @property
    def runs(self) -> bool:
        return not self.note.startswith("not run")

    @property
    def exit_code(self) -> int:
        return int(self.note.rpartition(" ")[2]) if self.note.startswith("exit code") else 0


def blocks_of(document: Path) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(document, line, found["language"], found["note"] or "", found["text"])


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]


def words_of(command: str) -> list[str]:
    """Return the arguments of a logparse command: its words without ``logparse`` itself.

    Comments are dropped, and patterns such as ``*.log`` are expanded as a shell would do.
    """
    words = shlex.split(command, comments=True)[1:]
    return [found for word in words for found in (sorted(glob.glob(word)) or [word])]


def parse(words: Sequence[str]) -> None:
    """Check the options and arguments of a logparse command without running it.

    Raises the error that the program would show if they are wrong.
    """
    context = PROGRAM.make_context("logparse", [words[0]])
    name, verb, rest = PROGRAM.resolve_command(context, list(words))
    verb.make_context(name, rest, parent=context)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files that the commands in the documentation use.

    These files are copies of the samples, override files (the user's choice of kernels), and a store (Parquet folder)
    with the runs ``before`` and ``after``.
    """
    folder = tmp_path_factory.mktemp("job")
    for name in (
        *(SAMPLES / "hipblaslt").glob("hipblaslt_rank*.log"),
        SAMPLES / "hipblaslt" / "bench_output.txt",
        SAMPLES / "tunableop" / "tunableop_results0.csv",
        *(SAMPLES / "miopen").glob("gfx942*db.txt"),
        SAMPLES / "miopen" / "miopen_cmd_4242.log",
        SAMPLES / "capture" / "facts.json",
    ):
        shutil.copy(name, folder)
    (folder / "sample_logs").symlink_to(SAMPLES)
    after = (folder / "hipblaslt_rank0_4242.log").read_text(encoding="utf-8")
    for old, new in (("91033", "91077"), ("91104", "91131"), ("91201", "91266"), ("104002", "104377")):
        after = after.replace(f"index {old}", f"index {new}")
    (folder / "after").mkdir()
    (folder / "after" / "hipblaslt_rank0_4300.log").write_text(after, encoding="utf-8")
    (folder / "bin").mkdir()
    (folder / "bin" / "logparse").write_text(f'#!/bin/sh\nexec {sys.executable} -m logparse "$@"\n', encoding="utf-8")
    (folder / "bin" / "logparse").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("LOGPARSE_STORE", raising=False)
        for command in (
            "logparse ingest after/*.log --run after",
            "logparse ingest hipblaslt_*.log bench_output.txt miopen_cmd_4242.log gfx942130.HIP.fdb.txt"
            " tunableop_results0.csv --run before",
            "logparse recommend --run before --target tunableop_results0.csv --out overrides",
        ):
            result = CliRunner().invoke(app, words_of(command))
            assert result.exit_code == 0, result.output
    shutil.copytree(folder / "logparse-store", folder / "other-store")
    return folder


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_runs(document: Path, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands of a document run without an error, one after the other, in a new folder."""
    folder = tmp_path / "job"
    shutil.copytree(job, folder, symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("LOGPARSE_STORE", raising=False)
    environment = os.environ | {"PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for block in blocks_of(document):
        if not block.runs or block.language not in ("sh", "console"):
            continue
        for command in block.commands:
            where = f"{document.name}:{block.line}: {command}"
            if SHELL.search(re.sub(r"'[^']*'|\"[^\"]*\"|\s#.*", "", command)):
                done = subprocess.run(
                    ["sh", "-euc", command], env=environment, capture_output=True, text=True, check=False
                )
                code, output = done.returncode, done.stdout + done.stderr
            else:
                result = CliRunner().invoke(app, words_of(command))
                code, output = result.exit_code, f"{result.output}{result.exception or ''}"
            assert code == block.exit_code, f"{where}\n{output}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_in_documents_runs(document: Path, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job)
    for block in blocks_of(document):
        if block.language == "python":
            exec(compile(block.text, f"{document.name}:{block.line}", "exec"), {})


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if not block.runs], ids=lambda block: f"{block.document.name}:{block.line}"
)
def test_what_cannot_run_here_parses(block: Block, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job)
    for command in block.commands:
        if command.startswith("logparse "):
            parse(words_of(command))


def test_an_option_that_does_not_exist_fails_to_parse() -> None:
    with pytest.raises(UsageError):
        parse(["replay", "--no-such-option"])


def test_inline_commands_name_verbs_and_options_that_exist() -> None:
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        text = FENCE.sub("", document.read_text(encoding="utf-8"))
        for span in re.findall(r"`logparse ([^`]+)`", text):
            verb, *rest = re.sub(r'"[^"]*"', "TEXT", span).split()
            if verb.startswith("-"):
                continue
            command = PROGRAM.commands[verb.rstrip(",")]
            known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            known |= {"--help", "-h", "--"}
            assert {word for word in rest if word.startswith("-") and len(word) > 1} <= known, (document.name, span)


def test_every_block_names_its_language() -> None:
    """Every block of code in the documents is between fences (```) that name its language.

    The other tests would overlook the commands in an indented block, or in a block without a language.
    """
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        assert not re.search(r"\n\n    \S", FENCE.sub("", text)), f"{document.name} has an indented block"
        assert text.count("\n```") + text.startswith("```") == 2 * len(list(blocks_of(document))), document.name


TABLES: Any = runpy.run_path(str(ROOT / "docs" / "tables.py"))
"""The names that ``docs/tables.py`` defines, as a dictionary.

``docs/tables.py`` writes tables for the documents from the descriptions of log formats, libraries and findings.
"""


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: path.name)
def test_tables_of_members_are_theirs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == TABLES["renewed"](text), "run make docs"


def test_every_generated_table_is_in_one_document() -> None:
    """Every table that ``docs/tables.py`` can write is in exactly one document.

    This includes, for each library, the table that explains how to produce the library's log files.
    """
    names = [name for page in DOCUMENTS for name in TABLES["names_in"](page.read_text(encoding="utf-8"))]
    libraries = [folder for name in names if name.startswith("formats ") for folder in name.split(" ")[1:]]
    assert sorted(libraries) == sorted(TABLES["rooms"]())
    assert sorted(name for name in names if not name.startswith("formats ")) == sorted(TABLES["TABLES"])


def test_a_table_that_is_not_the_members_own_is_written_anew() -> None:
    page = "a\n<!-- table: backends -->\n| old |\n<!-- table ends -->\nb\n"
    new = TABLES["renewed"](page)
    assert new.startswith("a\n<!-- table: backends -->\n| backend | what it times |\n|---|---|\n| `torch` | ")
    assert new.endswith(" |\n<!-- table ends -->\nb\n")
    assert "old" not in new
    with pytest.raises(ValueError, match="no table is called 'backend'"):
        TABLES["renewed"](page.replace("backends", "backend"))


@pytest.mark.parametrize("cell", ["", "a | b", "a\nb"])
def test_a_cell_that_would_break_a_table_is_refused(cell: str) -> None:
    with pytest.raises(ValueError, match="in the row of x"):
        TABLES["table"](("a", "b"), [("x", cell)])


def test_formats_describe_themselves() -> None:
    assert {f.name for f in FORMATS if not (f.seen and f.example and f.gives)} == set()


def test_views_are_all_described() -> None:
    from logparse.store.schema import VIEWS

    text = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    described = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", text, re.MULTILINE))
    assert set(described) == set(VIEWS)


def test_columns_of_views_exist(job: Path) -> None:
    """All columns that docs/sql.md lists for an SQL view really exist in the view.

    The document writes ``…`` and ``*`` for several columns. The test skips them.
    """
    text = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    store = logparse.open(job / "logparse-store")
    for view, columns in re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", text, re.MULTILINE):
        held = set(store.query(f"select * from {view} limit 0").columns)
        promised = {x.strip() for x in re.sub(r"\([^)]*\)", "", columns).split(",")}
        assert {x for x in promised if x.isidentifier()} <= held, view


def test_verbs_and_their_options_are_all_described() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(PROGRAM.commands) <= set(sections)
    for verb, command in PROGRAM.commands.items():
        described = sections["For all commands"] + sections[verb]
        options = {x for p in command.params if p.opts[0].startswith("-") for x in (*p.opts, *p.secondary_opts)}
        missing = {x for x in options if not re.search(rf"(?<![\w-]){re.escape(x)}(?![\w-])", described)}
        assert not missing, f"docs/commands.md, {verb}"


def test_the_session_of_the_first_page_is_what_the_program_prints(golden: Goldens) -> None:
    readme = ROOT / "README.md"
    golden.check(readme, transcript.renewed(readme.read_text(encoding="utf-8")))


def test_the_five_commands_work_as_they_are_printed(tmp_path: Path) -> None:
    """The five commands of the session in README.md run in a shell, in order, and print what README.md shows.

    Other commands in README.md, before the session, make the files that the five commands read.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    session = text.partition(transcript.BEGIN)[2].partition(transcript.END)[0]
    typed = re.findall(r"^\$ (.*)", session, re.MULTILINE)
    assert len(typed) == 5
    folder = transcript.files_of_session(text, tmp_path)
    shell = f'logparse() {{ "{sys.executable}" -m logparse "$@"; }}'
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    environ.pop("LOGPARSE_STORE", None)
    script = "\n".join(["set -eu", shell, *(f"echo '=====' && {x}" for x in typed)])
    out = subprocess.run(["sh", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert (out.returncode, out.stderr) == (0, "")
    *_, recommended, _, verified = out.stdout.split("=====\n")
    assert recommended.startswith(
        "recommend: use 4 faster GEMM solutions: their calls 140 → 57 ms a run (sum of 2 processes), "
    )
    assert "1 more thing to do, larger but less sure" in recommended
    assert "measured" in recommended, "evidence is kept where the terminal is 100 columns wide"
    assert verified.startswith("verify: took effect: 4 applied (problems with a row)")


def test_the_first_page_is_short_and_narrow() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 220
    assert len(text.split()) <= 1800


def test_no_prose_is_wider_than_120_columns() -> None:
    """No line of prose in the documents is wider than 120 columns.

    Rows of tables and lines of code may be wider, but not in README.
    """
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        prose = text if document.name == "README.md" else re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        wide = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
        assert wide == [], document.name


def test_links_lead_somewhere() -> None:
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", document.read_text(encoding="utf-8")):
            page = document.parent / target if target else document
            assert target.startswith("http") or page.exists(), f"{document.name}: {target}"
            if heading and page.suffix == ".md":
                assert heading in headings(page), f"{document.name}: {target}#{heading}"


def test_each_view_of_the_page_has_a_picture_and_each_picture_is_shown() -> None:
    from analyzers.explore.selection import VIEWS

    script = (ROOT / "docs" / "screenshots.py").read_text(encoding="utf-8")
    taken = dict(re.findall(r'"([\w-]+)": \("(?:light|dark)", "\?view=(\w+)', script))
    assert set(taken.values()) == set(VIEWS)
    assert {path.stem for path in (ROOT / "docs" / "images").iterdir()} == set(taken)
    shown = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert [name for name in taken if f"images/{name}.png)" not in shown] == []


def headings(document: Path) -> set[str]:
    """Return the names by which links lead to the headings of a document."""
    found = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", x.lower()).replace(" ", "-") for x in found}
