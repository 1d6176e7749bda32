"""Test on a virtual GPU that logparse measures even very short kernels.

The time is taken by two events around the kernels. Another kernel keeps the GPU busy until all of them are queued.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.loop import Loop
from tests.conformance.rocm import Rocm


def test_a_short_kernel_is_timed_behind_a_hold(rocm: Rocm, tmp_path: Path) -> None:
    """A very short kernel is measured correctly if another kernel keeps the GPU busy until all launches are queued.

    Otherwise the GPU waits for the host, which needs 2 µs per launch. Then logparse refuses the measured time.
    """
    loop = Loop(rocm, tmp_path)
    loop.plant([(1, "short_kernel")])
    program = str(Path(__file__).parent / "drivers/events.py")
    held, alone = map(json.loads, loop.run(str(rocm.launcher), program, "short_kernel", "64").splitlines())
    assert held == pytest.approx(1)
    assert alone.startswith("not measured, because the host launched the kernels too slowly in each of 3 tries: ")
    assert "the time of 2.0 µs includes" in alone
