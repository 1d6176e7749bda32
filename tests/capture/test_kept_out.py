"""Tests that logparse says why its code does not reach the job's Python, if the job's command shows the reason."""

from __future__ import annotations

import pytest

from logparse.capture.kept_out import reason

ANEW = "the command sets PYTHONPATH anew"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["python", "-sE", "train.py"], "Python was started with -E"),
        (["env", "PYTHONPATH=src", "python", "train.py"], ANEW),
        (["sh", "-c", "cd src; PYTHONPATH=. exec python train.py"], ANEW),
        (["bash", "-c", "export PYTHONPATH=/src && torchrun train.py"], ANEW),
        (["env", "-i", "HOME=/root", "python", "train.py"], "`env -i` removes PYTHONPATH"),
        (["nice", "/usr/bin/env", "-", "python", "train.py"], "`env -i` removes PYTHONPATH"),
    ],
)
def test_a_command_that_keeps_logparse_out_is_named(command: list[str], why: str) -> None:
    assert reason(command).startswith(why)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "-E", "-i"],
        ["python", "-m", "train", "-I"],
        ["sh", "-c", "PYTHONPATH=src:$PYTHONPATH python train.py"],
        ["sh", "-c", "PYTHONPATH=src:${PYTHONPATH:-} python train.py"],
        ["sh", "-c", "MY_PYTHONPATH=src python train.py"],
        ["env", "SIZE=2", "python", "train.py", "-i"],
    ],
)
def test_other_commands_have_no_such_reason(command: list[str]) -> None:
    assert reason(command) == ""
