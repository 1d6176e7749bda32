"""The profilers' command lines, and the program that they run."""

from __future__ import annotations

import shlex

import pytest

from analyzers.measure.plan import Item
from analyzers.measure.profile import TOOLS, main, profile_command, profile_lines
from analyzers.measure.replay import Options
from logparse.errors import InputError
from logparse.model import DEFAULT, Solution, problem_from_text
from tests.analyzers.measure.problems import SMALL_W, gemm

NAMED = Solution("cudnn", "layout=NHWC,stored,eng65_k2=1")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_line_survives_a_shell(tool: str) -> None:
    words = shlex.split(profile_command(SMALL_W, NAMED, backend="cudnn", tool=tool))
    assert words[0] == tool
    at = words.index("-m")
    assert words[at + 1] == "analyzers.measure.profile"
    assert problem_from_text(words[at + 2]) == SMALL_W
    few = ["--count", "2"] if tool == "ncu" else []
    assert words[at + 3 :] == [NAMED.text, "--backend", "cudnn", "--device", "cuda:0", *few]


def test_lines_are_of_the_first_problem_of_the_plan() -> None:
    items = [Item(problem=p, calls=1, time_us=1.0, regret=0.1, solutions=2) for p in (gemm(), SMALL_W)]
    lines = profile_lines(items, "Default", Options(devices=("cuda:1",)))
    assert [line.split()[0] for line in lines] == list(TOOLS)
    assert all(gemm().text in shlex.split(line) and "torch --device cuda:1" in line for line in lines)
    with pytest.raises(InputError, match="empty"):
        profile_lines([], "Default", Options())


def test_a_solution_that_is_not_offered_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    items = [Item(problem=gemm(), calls=1, time_us=1.0, regret=0.1, solutions=2)]
    with pytest.raises(InputError, match=r"torch offers no torch:none for .*: there is Default, "):
        profile_lines(items, "torch:none", Options(devices=("cpu",)))
    assert profile_lines(items, "Default", Options(devices=("cpu",)))
    assert main([gemm().text, "torch:none", "--device", "cpu"]) == 2
    assert "error: torch:none: torch:none is not offered here" in capsys.readouterr().err


def test_what_a_library_raises_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    for solution, device in (("kernel:tests.analyzers.measure.test_profile:broken", "cpu"), ("Default", "cuda:99")):
        assert main([gemm().text, solution, "--device", device]) == 2
        (line, *_) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {solution}: ")
    items = [Item(problem=gemm(), calls=1, time_us=1.0, regret=0.1, solutions=2)]
    with pytest.raises(InputError, match=r"no solution tests\.analyzers\.measure\.test_profile:missing"):
        profile_lines(items, "kernel:tests.analyzers.measure.test_profile:missing", Options(devices=("cpu",)))


def broken(x, y, **_):  # type: ignore[no-untyped-def]
    """A user's own solution that refuses."""
    raise ValueError("no such sizes")


def test_the_program_runs_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert main([gemm().text, DEFAULT.text, "--device", "cpu", "--count", "2"]) == 0
    assert "relative error" in capsys.readouterr().out
