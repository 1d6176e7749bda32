"""Run the program logparse inside the test's own process, for tests that need no process of their own.

Starting a process would take most of such a test's time.
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
    """Exit code and printed output of one call of the program."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str, columns: int | None = None) -> Done:
    """Run ``logparse WORD…`` in this process, and return its exit code and output.

    The output has the width that it has without a terminal, or a width of ``columns``.
    """
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


def run_with_answers(*words: str) -> tuple[Done, list[Answer]]:
    """Run ``logparse WORD…``, and return its output, and the answers as objects that a test can print.

    A test can print an answer in several formats. The list of answers is empty if the subcommand failed.
    """
    answers: list[Answer] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "show", lambda answer, *_args, **_words: answers.append(answer))
        return run(*words), answers
