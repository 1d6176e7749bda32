"""Tests of the logparse commands that logparse prints as advice.

If a user copies such a command, it must work on the store (Parquet folder) that the user just used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from logparse.cli import app
from logparse.store import command_line, open_store
from tests.conftest import ROOT

VERBS = {name: {x for p in verb.params for x in p.opts} for name, verb in typer.main.get_command(app).commands.items()}  # type: ignore[attr-defined]
COMMAND = re.compile(rf"logparse ({'|'.join(VERBS)})\b([^`\n]*)")
VALUE = "\0"
"""Text that the test puts in place of every inserted value (``{…}``) of an f-string."""
PLACEHOLDER = re.compile(r"[A-Z0-9#\[\]…-]+")


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a module, without docstrings. ``VALUE`` replaces the inserted values of f-strings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(x.value) if isinstance(x, ast.Constant) else VALUE for x in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | parts:
            yield re.sub(r"\{\w+\}", VALUE, node.value)  # text of a template


def printed() -> Iterator[tuple[str, str, str, bool]]:
    """Yield each logparse command that a string in the source code contains.

    An item is (module, subcommand, further words, quoted). ``quoted`` is True if a backquote before the command marks
    it as one.
    """
    for path in (path for package in ("logparse", "analyzers") for path in sorted((ROOT / package).rglob("*.py"))):
        if path.name == "cli.py":  # its examples belong to the help, which also explains --store
            continue
        for text in texts(path):
            for found in COMMAND.finditer(text):
                yield path.name, found[1], found[2].split("</")[0], text[: found.start()].endswith("`")


def test_a_command_with_values_of_a_store_is_made_where_its_store_is_added() -> None:
    found = list(printed())
    assert len(found) > 30
    assert [x for x in found if VALUE in x[2]] == [], "command_line() makes these"


def test_a_command_without_values_begins_with_an_option_or_a_placeholder() -> None:
    marked = [(verb, rest.split(), name) for name, verb, rest, is_marked in printed() if is_marked and rest.strip()]
    assert len(marked) > 5
    assert [x for x in marked if not (x[1][0] in VERBS[x[0]] or PLACEHOLDER.fullmatch(x[1][0]))] == []
    assert [x for x in marked if not VERBS[x[0]] >= {word for word in x[1] if word.startswith("--")} - {"--"}] == []


def test_the_store_is_named_where_the_command_would_take_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGPARSE_STORE", raising=False)
    assert command_line(None, "forget", "a b") == command_line("logparse-store", "forget", "a b")
    assert command_line("s3://b/s", "forget", "a b") == "logparse forget --store s3://b/s 'a b'"
    monkeypatch.setenv("LOGPARSE_STORE", "s3://b/s")
    assert command_line("s3://b/s", "status") == "logparse status"
    assert command_line("logparse-store", "status") == "logparse status --store logparse-store"


def test_an_empty_store_and_an_unknown_name_state_commands_with_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "my store", create=True)
    assert f"(`logparse ingest --store '{store.url}' PATH…`)" in store.empty
    with pytest.raises(Exception, match=re.escape(f"`logparse sql --store '{store.url}' 'select path from sources'`")):
        store.forget("nothing")
