"""Tests of the text that ``logparse verify`` prints by default. Each case is compared with a reviewed text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.compare import actions, proof_text, verify
from analyzers.overrides.lint import inspect
from logparse.libraries.hipblaslt import tuning_file
from logparse.model import Override, Solution
from logparse.output import Answer
from logparse.text import LINES, line_width
from tests.analyzers.build import call, facts, tables, work
from tests.analyzers.compare import test_actions, test_verify
from tests.analyzers.example import gemm
from tests.golden import Goldens

GOLDEN = Path(__file__).parent / "golden"
SLOW, FAST = (1000.0, 500.0), (800.0, 400.0)
MANY = [gemm(64 * n) for n in range(1, 31)]


def of_files(one: tuple[str, str], two: tuple[str, str], times: tuple[float, float]) -> Answer:
    """Return what ``verify`` prints for an override file (the user's choice of kernels) with two matrix products.

    * ``one`` and ``two`` are the kernels of the products without and with the file.
    * ``times`` are their times with the file.
    """
    before, after = test_verify.run("a", *one, SLOW), test_verify.run("b", *two, times)
    return verify.answer(verify.verify(before, after, [test_verify.file()], {test_verify.ONE.text: 25.0}))


def many(fast: float) -> Answer:
    """Return what ``verify`` prints for an override file (the user's choice of kernels) with thirty lines.

    For the last ten matrix products the file had no effect: another kernel ran. ``fast`` is the time of the kernel that
    the file names.
    """
    wanted = [Override(problem=p, solution=Solution("hipblaslt", "7"), target=test_verify.HERE) for p in MANY]
    file = inspect("tuning.txt", tuning_file.write(wanted, test_verify.HERE)[0].data, test_verify.HERE)
    runs = [
        tables(
            label,
            calls=[
                call(p.text, f"hipblaslt:{7 if label == 'b' and n < 20 else 1}", 10, run=label)
                for n, p in enumerate(MANY)
            ],
            workload=[work(p.text, 10, run=label) for p in MANY],
            kernels=[
                {"source_id": "t", "run": label, "device": 0, "op": "mm", "calls": 10}
                | {"problem": p.text, "kernel": "k", "total_us": us * (n + 1)}
                for n, p in enumerate(MANY)
            ],
            facts=facts("log", **test_verify.HERE),
        )
        for label, us in (("a", 100.0), ("b", fast))
    ]
    return verify.answer(verify.verify(*runs, [file]))


def of_action(conv_us: float, wall: float, talk_us: float = 0.0) -> Answer:
    before = test_actions.simple("before", 1000, test_actions.steady(2500), talk_us=900.0)
    after = test_actions.simple("after", conv_us, test_actions.steady(wall), talk_us=talk_us)
    return proof_text.answer(actions.verify_actions(before, after, ["cudnn_benchmark"]))


def untimed() -> Answer:
    before, after = (replace(test_verify.run(x, y, y, SLOW), kernels=tables().kernels) for x, y in ("a1", "b7"))
    return verify.answer(verify.verify(before, after, [test_verify.file()], {test_verify.ONE.text: 25.0}))


CASES: Mapping[str, Callable[[], Answer]] = {
    "applied and faster": lambda: of_files(("1", "1"), ("7", "7"), FAST),
    "applied, no time": untimed,
    "another solution ran": lambda: of_files(("1", "1"), ("1", "7"), FAST),
    "slower": lambda: of_files(("1", "1"), ("7", "7"), (1200.0, 400.0)),
    "many rows": lambda: many(80.0),
    "action, faster": lambda: of_action(800.0, 2300.0, 900.0),
    "action, not faster": lambda: of_action(800.0, 2600.0, 400.0),
}


def print_case(case: str) -> list[str]:
    return [str(x) for x in CASES[case]().text]


@pytest.mark.parametrize("case", CASES)
def test_the_default_output(case: str, golden: Goldens) -> None:
    lines = print_case(case)
    assert lines[0].startswith("verify: ")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= line_width()
    golden.check(GOLDEN / f"{case}.txt", "\n".join(lines) + "\n")


def test_no_golden_is_left_over(golden: Goldens) -> None:
    golden.check_names(GOLDEN, (GOLDEN / f"{case}.txt" for case in CASES))
