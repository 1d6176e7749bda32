"""How busy the GPU was: unions of kernels, and kernels that were launched before the trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.torch_profiler.busy import Timeline, before, busy, collectives

NAMES = ["gemm", "ncclDevKernel_Generic"]


def timeline(*rows: tuple[float, float], names: str = "", launched: str = "", devices: str = "") -> Timeline:
    """Kernels from start to end; ``names`` has c for a collective, ``launched`` . for a launch before the trace."""
    start, end = (np.array(x, dtype=np.float64) for x in zip(*rows, strict=True))
    return Timeline(
        start=start,
        us=end - start,
        device=np.array([int(x) for x in devices or "0" * len(rows)], dtype=np.int64),
        launched=np.array([x != "." for x in launched or "x" * len(rows)], dtype=bool),
        name=np.array([int(x == "c") for x in names or "-" * len(rows)], dtype=np.int64),
    )


def facts(kernels: Timeline, steps_end: float | None = None, copies_us: float = 0.0) -> dict[str, float]:
    return {x.name: float(x.value) for x in busy(kernels, NAMES, copies_us, steps_end)}


def test_streams_overlap_and_the_last_step_ends_later() -> None:
    found = facts(timeline((10, 20), (15, 30), (40, 50), (42, 44)), steps_end=70)
    assert found == {"gpu_window_us": 60, "gpu_busy_us": 30, "gpu_compute_us": 30}
    assert facts(timeline((10, 20), (15, 30)), steps_end=5)["gpu_window_us"] == 20  # the GPU ends after the host


def test_communication_that_nothing_hides() -> None:
    found = facts(timeline((0, 10), (5, 25), (30, 40), names="-c-"))
    compute = {"gpu_compute_us": 20}
    assert found == {"gpu_window_us": 40, "gpu_busy_us": 35, "gpu_communication_alone_us": 15} | compute


def test_each_collective_with_what_no_computation_hides_of_it() -> None:
    kernels = timeline((0, 10), (5, 25), (8, 12), (30, 40), (35, 38), (50, 51), names="-c--cc", devices="000001")
    found = [(x.start_us, x.us, x.alone_us, x.ranks, x.device) for x in collectives(kernels, NAMES, {1: "[0, 1]"})]
    assert found == [(5, 20, 13, "[0, 1]", 0), (35, 3, 0, "", 0), (50, 1, 1, "", 1)]


def test_kernels_of_the_step_before() -> None:
    kernels = timeline((0, 10), (5, 12), (20, 30), (32, 34), launched="..x.")
    assert before(kernels).tolist() == [True, True, False, False]
    assert facts(kernels) == {"gpu_window_us": 14, "gpu_busy_us": 12, "gpu_compute_us": 12}
    assert not before(timeline((0, 10), (20, 30), launched="..")).any()


def test_of_several_devices_the_mean() -> None:
    found = facts(timeline((0, 10), (0, 30), devices="01"))
    assert found == {"gpu_window_us": 30, "gpu_busy_us": 20, "gpu_compute_us": 20}


def test_copies_alone() -> None:
    empty = Timeline(*(np.array([], dtype=x) for x in (float, float, np.int64, bool, np.int64)))  # type: ignore[arg-type]
    assert facts(empty, copies_us=3.5) == {"gpu_copies_us": 3.5}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=12))
def test_the_union_is_that_of_every_microsecond(rows: list[tuple[int, int]]) -> None:
    covered = {t for start, us in rows for t in range(start, start + us)}
    found = facts(timeline(*((float(start), float(start + us)) for start, us in rows)))
    assert found["gpu_busy_us"] == pytest.approx(len(covered))
