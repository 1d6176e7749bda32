"""Run logparse in this process, for tests that are not about processes.

Starting a process takes most of a test's time.
"""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from logparse.cli import main
from logparse.output import Answer, options


@dataclass(frozen=True)
class Done:
    """Exit code and outputs of a run of the program."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str, columns: int | None = None) -> Done:
    """Run ``logparse WORD…`` and return its outputs. They are as wide as without a terminal, or ``columns`` wide."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.delenv("COLUMNS", raising=False)
        if columns is not None:
            patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "argv", ["logparse", *words])
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


def asked(*words: str) -> tuple[Done, list[Answer]]:
    """Run a subcommand and return its outputs and its answers, for tests that print an answer in several ways.

    The list of answers is empty if the subcommand failed.
    """
    answers: list[Answer] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "show", lambda answer, *_args, **_words: answers.append(answer))
        return run(*words), answers
