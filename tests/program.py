"""The program in this process, for tests that are not about processes: starting one takes most of their time."""

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
    """What a process that ended has left."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str, columns: int | None = None) -> Done:
    """``logparse WORD…`` with its outputs, as wide as they are where no terminal is, or ``columns``."""
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
    """The answer of a verb, not printed, for tests that print it in several ways; no answer where it failed."""
    answers: list[Answer] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "show", lambda answer, *_args, **_words: answers.append(answer))
        return run(*words), answers
