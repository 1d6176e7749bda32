"""Hints of the library: which problems they speak of."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.analyzer import Settings, Tables
from analyzers.library_hint import find
from logparse.ingest import ingest
from logparse.model import GemmProblem
from logparse.store import Store
from tests.analyzers.build import call, message, tables, work
from tests.conftest import CORPUS, needs_corpus

SIZES = {"trans_a": "T", "trans_b": "N", "batch_count": 1, "a_type": "bf16_r"}
MEANT, OTHER = GemmProblem(m=5, n=11, k=21, **SIZES), GemmProblem(m=8, n=16, k=32, **SIZES)


def hint(matrix: str, what: str, size: int) -> dict[str, object]:
    return message(
        "hints", text=f"The number of {what} in matrix {matrix} ({size}) is not 8 aligned. Consider padding."
    )


def planted(matrix: str = "D", what: str = "rows", size: int = 5) -> Tables:
    """A hint about a size that one of two problems has."""
    return tables(
        messages=[hint(matrix, what, size)],
        calls=[call(MEANT.text), call(OTHER.text)],
        workload=[work(MEANT.text, 40), work(OTHER.text, 40)],
    )


@pytest.mark.parametrize(
    ("matrix", "what", "size"),
    [
        ("A", "rows", 21),
        ("A", "columns", 5),
        ("B", "rows", 21),
        ("B", "columns", 11),
        ("D", "rows", 5),
        ("C", "columns", 11),
    ],
)
def test_the_size_decides_which_problem_is_meant(matrix: str, what: str, size: int) -> None:
    (finding,) = find(planted(matrix, what, size), Settings())
    assert finding.problem == MEANT.normal
    assert finding.calls == 40
    assert finding.advice == f"Pad {size} to {-(-size // 8) * 8}, a multiple of 8, and measure both."


def test_a_hint_that_fits_no_problem_is_about_the_run() -> None:
    (finding,) = find(tables(messages=[hint("D", "rows", 7)]), Settings())
    assert finding.problem is None
    assert "not 8 aligned" in finding.message


@needs_corpus
def test_the_three_hints_of_gpt2_are_about_its_vocabulary(store: Store) -> None:
    ingest([str(Path(CORPUS) / "h200" / "cublaslt_mask31_588.log.gz")], store)
    found = find(Tables(run=store.latest_run(), **store.frames()), Settings())
    hints = set(store.query("select text from messages where category = 'hints'")["text"])
    assert len(hints) == 3
    assert all(any(repr(hint) in finding.message for finding in found) for hint in hints)
    assert len({finding.problem for finding in found}) == len(found) == 3, "one remedy of one problem is reported once"
    assert {finding.advice for finding in found} == {"Pad 50257 to 50264, a multiple of 8, and measure both."}
    for finding in found:
        assert isinstance(finding.problem, GemmProblem)
        assert 50257 in (finding.problem.m, finding.problem.n, finding.problem.k)
        assert finding.advice is not None
        assert "50264" in finding.advice
