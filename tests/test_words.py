"""Test that searches docstrings for words that make a sentence hard to read (CONTRIBUTING.md, "Words")."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

FOLDERS = ("logparse", "analyzers", "tests", "benchmarks", "docs", "sample_logs")
BEGINS = re.compile(r"(?:Of|What|Those|Whose)\b(?![^.\n]*\?)")
"""Pattern of words with which no docstring may begin. An opening question is allowed."""
WITHIN = re.compile(r"\b[Tt]hose that\b|\b(?:is|are) none\b|\bof these\b(?! [a-zA-Z`])")
"""Pattern of pronouns that lack a noun, for example at the end of a sentence. A pronoun with its noun is allowed."""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each docstring, including strings below a constant or a field."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for x in body if isinstance(body, list) else ():
            if isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant) and isinstance(x.value.value, str):
                yield x.lineno, x.value.value


def comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def faults(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    said = list(docstrings(ast.parse(text)))
    found = [(line, match) for line, words in said if (match := BEGINS.match(words) or WITHIN.search(words))]
    found += [(line, match) for line, words in comments(text) if (match := WITHIN.search(words))]
    yield from (f"{path.relative_to(ROOT)}:{line}: {match[0]!r}" for line, match in found)


def test_docstrings_and_comments_are_read_once() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 500
    assert [fault for path in paths if path != Path(__file__) for fault in faults(path)] == []


def test_the_patterns_are_seen(tmp_path: Path) -> None:
    said = ["Of several overrides the fastest.", "What a call takes.", "Files, those that are read.", "One of these."]
    for words in said:
        assert len(list(docstrings(ast.parse(f'"""{words}"""')))) == 1
        assert BEGINS.match(words) or WITHIN.search(words)
    assert not BEGINS.match("What is searched?  A table.")
