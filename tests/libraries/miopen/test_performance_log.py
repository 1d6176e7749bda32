"""Tests of reading MIOpen's performance log, whose lines do not say for which convolution they are.

logparse must find it out from the lines around them. Damaged lines are rejected.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from logparse.ingest import ingest
from logparse.libraries.kinds.format import Line
from logparse.libraries.miopen.performance_log import Reader
from logparse.model import Measurement, Message, Reject
from logparse.store import Store
from tests.conftest import SAMPLES

SIZES = "MIOpenDriver conv -n 16 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1"
LOGGED = "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/"


def record(solver: str = "GemmWrwUniversal", *times: float, **more: Any) -> str:
    names = ("time_ms", "time_std_ms", "time_min_ms", "time_max_ms")
    configs = [dict.fromkeys(names, x) | {"config_name": "k", "exec_number": 1} for x in times or (0.5,)]
    values = {"solution": solver, "solver_id": 1, "workspace_bytes": 96, "phase": "solver_tuning"}
    return json.dumps(values | {"performance_configs": configs} | more, separators=(",", ":"))


def read(*lines: str) -> list[Measurement | Message | Reject]:
    reader = Reader()
    outcomes = [reader.take(Line(x, 0)) for x in lines]
    return [x for outcome in outcomes if outcome is not None for x in outcome.records]  # type: ignore[misc]


def read_times(*lines: str) -> list[tuple[str, str, float | None, int | None]]:
    rows = [x for x in read(*lines) if isinstance(x, Measurement)]
    return [(x.problem.direction, x.solution.id, x.time_us, x.workspace_bytes) for x in rows]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "command", [f'{{"command":"{SIZES} -F 4 -t 1"}}', f"./bin/{SIZES} -F 4 -t 1", f"{SIZES} -F 4 -t 1"]
)
def test_a_record_belongs_to_the_command_before_it(command: str) -> None:
    assert read_times(command, record()) == [("W", "GemmWrwUniversal", 500.0, 96)]
    assert read_times(command, record("ConvBinWinogradRxSf2x3g1", 0.25)) == [
        ("W", "ConvBinWinogradRxSf2x3g1", 250.0, 96)
    ]


def test_of_several_configurations_the_fastest_counts_and_none_without_executions() -> None:
    command = f"{SIZES} -F 4"
    assert read_times(command, record("GemmWrwUniversal", 0.5, 0.0, 0.25)) == [("W", "GemmWrwUniversal", 250.0, 96)]
    (row,) = read(command, record("GemmWrwUniversal", 0.0))
    assert isinstance(row, Measurement)
    assert (row.status, row.time_us, row.error) == (
        "no_time",
        None,
        "MIOpen executed and timed nothing for this solver",
    )


def test_of_several_passes_the_solver_names_its_own_or_none() -> None:
    command = f"{SIZES} -F 0"
    assert read_times(command, record("GemmFwdRest"), record("GemmBwdRest"), record()) == [
        ("F", "GemmFwdRest", 500.0, 96),
        ("B", "GemmBwdRest", 500.0, 96),
        ("W", "GemmWrwUniversal", 500.0, 96),
    ]
    (row,) = read(command, record("ConvBinWinogradRxSf2x3g1"))
    assert isinstance(row, Message)
    assert row.text == "ConvBinWinogradRxSf2x3g1 of an unknown problem, 0.5 ms (solver_tuning)"


@pytest.mark.parametrize("before", [[], [f"{LOGGED}{SIZES} -F 4"], [f"{SIZES} -F 4", f"{LOGGED}{SIZES} -F 4"]])
def test_times_in_a_job_are_not_taken_for_the_last_convolution(before: list[str]) -> None:
    """A time in MIOpen's performance log is not given to the convolution that the log names before it.

    MIOpen prints the time only when it measures the next solver. By then the job may run another convolution.
    """
    (row,) = read(*before, record())
    assert isinstance(row, Message)
    assert "of an unknown problem" in row.text


@pytest.mark.parametrize(
    "damaged",
    [
        record()[:-1],
        record()[:40],
        record(performance_configs=[]),
        record(performance_configs=[{"time_ms": 1}]),
        record(performance_configs=7),
        record("GemmWrwUniversal", -1.0),
        record("GemmWrwUniversal", float("nan")),
        record(workspace_bytes="many"),
        record(workspace_bytes=-1),
        record(workspace_bytes=True),
        record(solution=""),
        record(solution=7).replace("7", '"'),
        '{"solution":"' + "[" * 100_000,
    ],
)
def test_damage_is_a_reject(damaged: str) -> None:
    (row,) = read(f"{SIZES} -F 4", damaged)
    assert isinstance(row, Reject)
    assert row.reason.startswith("this performance record of MIOpen cannot be read: ")


def test_the_sample(store: Store) -> None:
    (result,) = ingest([str(SAMPLES / "miopen/forms/performance.log")], store, run="r")
    assert (result.format, result.lines) == ("miopen-driver+miopen-performance-log", 9)
    assert dict(result.units) | {} == result.units
    assert {name: count for name, count in result.units.items() if count} == {
        "call": 2,
        "measurement": 5,
        "message": 1,
        "reject": 1,
    }
    rows = store.sql("select solution, status, time_us from measurements order by all")
    assert rows.astype(object).where(rows.notna(), None).to_numpy().tolist() == [
        ["miopen:ConvDirectNaiveConvWrw", "ok", pytest.approx(3000.0)],
        ["miopen:ConvHipImplicitGemmGroupWrwXdlops", "ok", pytest.approx(200.0)],
        ["miopen:ConvHipImplicitGemmGroupWrwXdlops", "ok", pytest.approx(205.0)],
        ["miopen:GemmFwdRest", "ok", pytest.approx(700.0)],
        ["miopen:GemmWrwUniversal", "no_time", None],
    ]
