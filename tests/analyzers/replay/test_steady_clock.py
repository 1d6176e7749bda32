"""Tests that kernels are measured only while the GPU's clock frequency is steady. The GPUs are simulated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from analyzers.replay.confirm import interleave
from analyzers.replay.drift import SteadyClock, UnsettledError, idle_facts, noise
from analyzers.replay.results import Method
from analyzers.replay.trial import ConfirmTask, WorkerContext
from logparse.libraries.kinds.backend import Place
from tests.analyzers.replay.problems import gemm
from tests.analyzers.replay.test_trial import COPY, PICK, ColdAfterRefresh


def scripted(*readings_us: float) -> SteadyClock:
    """Return a check of the GPU's clock frequency (``SteadyClock``) that gets the given readings one after another.

    A reading is the time of a fixed piece of work in µs.
    """
    # The first reading is taken as the steady one. Each later reading is repeated three times, because a check takes
    # three readings.
    left = [x for reading in readings_us[1:] for x in [reading] * 3]
    seconds = iter(range(100))
    clock = SteadyClock(lambda: left.pop(0), lambda: float(next(seconds)))
    clock._reference_us = readings_us[0]
    return clock


def test_the_idle_clock_is_not_the_steady_one() -> None:
    """The clock frequency of an idle GPU is not taken for the steady one, although it does not change for 0.3 s.

    The first readings are at the idle frequency of 345 MHz, and all later ones at 1,980 MHz.
    """
    seconds = [0.0]

    def reading() -> float:
        seconds[0] += 0.01
        return 287.0 if seconds[0] < 0.3 else 50.0

    clock = SteadyClock(reading, lambda: seconds[0])
    clock.settle()
    assert clock.held(reading) == 50.0
    assert clock._reference_us == 50.0


def test_a_device_that_is_warm_is_not_warmed_again() -> None:
    seconds = [0.0]

    def reading() -> float:
        seconds[0] += 0.01
        return 50.0

    clock = SteadyClock(reading, lambda: seconds[0])
    clock.ready()
    assert seconds[0] >= 0.5
    warm = seconds[0]
    clock.ready()
    assert seconds[0] == warm
    seconds[0] += 1.5
    clock.ready()
    assert seconds[0] > warm + 1.9


def test_samples_around_a_change_of_the_clock_are_discarded_and_taken_again() -> None:
    samples = [130.0, 100.0, 101.0]
    assert scripted(50.0, 65.0, 50.0, 50.5).held(lambda: samples.pop(0)) == 101.0
    assert scripted(50.0, 51.0).held(lambda: 100.0) == 100.0


def test_a_new_steady_clock_under_load_is_accepted() -> None:
    samples = [110.0, 120.0]
    clock = scripted(50.0, 60.0, 60.5)
    assert clock.held(lambda: samples.pop(0)) == 120.0


def test_a_device_that_does_not_settle_is_refused() -> None:
    turn = [0]

    def reading() -> float:
        turn[0] += 1
        return 50.0 * 1.1 ** (turn[0] // 3 % 5)

    with pytest.raises(UnsettledError, match="did not settle in 5 s"):
        SteadyClock(reading, lambda: turn[0] * 0.01).settle()
    with pytest.raises(UnsettledError, match="during each of 3 tries"):
        scripted(50.0, *(50.0 * 1.1**n for n in range(1, 40))).held(lambda: 100.0)


def test_a_repeated_measurement_is_checked_too() -> None:
    """If a time is discarded because the GPU's frequency changed, the repeated measurement is checked, too."""
    # The frequency falls during two measurements, so both must be discarded. The second one must be checked although
    # the last check was less than 0.1 s ago.
    reference_us, sampled, seconds = [50.0, 55.0, 60.5, 60.5], [0], [0.0]

    def sample() -> int:
        sampled[0] += 1
        return sampled[0]

    clock = SteadyClock(lambda: reference_us[sampled[0]], lambda: seconds[0])
    clock._reference_us = 50.0
    assert clock.held(sample) == 3, "55 is not 50 and 60.5 is not 55"
    reference_us.append(70.0)
    assert clock.held(sample) == 4, "within 0.1 s of a check nothing is read"


def test_a_block_with_a_changed_clock_is_repeated() -> None:
    """If the GPU's frequency changes during a block of measurements that compare two kernels, the block is repeated.

    Every block is checked, even if the last check was less than 0.1 s ago.
    """
    taken: list[tuple[str, int]] = []
    clock = scripted(50.0, 50.0, 60.0, 60.0, *[60.0] * 20)
    clock._now = lambda: 0.0

    def sample(solution: str, block: int) -> float:
        taken.append((solution, block))
        return 100.0 if solution == "pick" else 90.0

    pairs = interleave("pick", "winner", sample, blocks=3, held=lambda block: clock.held(block, every_s=0.0))
    assert len(pairs.pick_us) == 3
    assert [block for _, block in taken] == [0] * 4 + [1] * 8 + [2] * 4


class Falling(ColdAfterRefresh):
    """A fake GPU that gets slower with every execution."""

    def prepare(self, *given: object) -> object:  # type: ignore[override]
        runnable = super().prepare(*given)  # type: ignore[arg-type]
        self.count = 0

        def sample_us(count: int) -> float:
            self.count += 1
            return 100.0 * 1.05**self.count

        runnable.sample_us = sample_us  # type: ignore[method-assign]
        return runnable


def test_nothing_is_confirmed_on_a_device_that_does_not_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]

    def now() -> float:
        seconds[0] += 0.05
        return seconds[0]

    monkeypatch.setattr("analyzers.replay.drift.time.monotonic", now)
    backend = Falling({PICK: 100.0, COPY: 90.0})
    monkeypatch.setattr(SteadyClock.__init__, "__defaults__", (now,))
    context = WorkerContext({"x": backend}, Place(device="cuda:0"), Method(), lambda what: None)  # type: ignore[dict-item]
    with pytest.raises(UnsettledError):
        context.run(ConfirmTask(problem=gemm(), pick=PICK, winner=COPY))


def test_a_throttled_start_is_remarked() -> None:
    assert noise({"throttle": "0x0000000000000001"}) == [], "idle"
    assert len(noise({"throttle": "0x0000000000000068"})) == 1


@pytest.mark.parametrize(
    ("variables", "device", "asked"),
    [
        ({}, "cuda:1", "1"),
        ({"CUDA_VISIBLE_DEVICES": "3,2"}, "cuda:0", "3"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937, GPU-d72c"}, "cuda:1", "GPU-d72c"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "cuda:1", "none"),
    ],
)
def test_clock_and_temperature_are_of_the_used_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], device: str, asked: str
) -> None:
    """The stored frequency and temperature come from the GPU that the process really uses.

    nvidia-smi numbers all GPUs of the machine. A job on a shared machine may see only some of them, numbered from 0.
    """
    command = tmp_path / "nvidia-smi"
    command.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/asked\necho "1980, 0, 35, 0x0"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert idle_facts(device)["clock_mhz"] == "1980"
    assert (tmp_path / "asked").read_text().split() == [f"--id={asked}"] * 2
