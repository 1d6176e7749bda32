"""Tests of how busy the GPU was, with kernels that overlap and kernels that were launched before the trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.torch_profiler.busy import Marked, Timeline, busy, collectives, mark_launched_before
from logparse.model import Fact

NAMES = ["gemm", "ncclDevKernel_Generic"]


def timeline(*rows: tuple[float, float], names: str = "", launched: str = "", devices: str = "") -> Timeline:
    """Make a timeline of GPU kernels from the start and end times in ``rows``.

    ``names``, ``launched`` and ``devices`` have one character per kernel. For example, c is a collective operation.
    """
    # In names, a c marks a collective operation. In launched, a dot marks a kernel that was launched before the trace
    # began. In devices, the digit is the number of the GPU.
    start, end = (np.array(x, dtype=np.float64) for x in zip(*rows, strict=True))
    return Timeline(
        start=start,
        us=end - start,
        device=np.array([int(x) for x in devices or "0" * len(rows)], dtype=np.int64),
        launched=np.array([x != "." for x in launched or "x" * len(rows)], dtype=bool),
        name=np.array([int(x == "c") for x in names or "-" * len(rows)], dtype=np.int64),
    )


def facts(
    kernels: Timeline,
    steps_end: float | None = None,
    copies_us: float = 0.0,
    steps_begin: float | None = None,
    left_out: tuple[tuple[float, float], ...] = (),
) -> dict[str, float]:
    marked = Marked(steps_begin, steps_end, left_out)
    return {x.name: float(x.value) for x in busy(kernels, NAMES, copies_us, marked) if isinstance(x, Fact)}


def test_streams_overlap_and_the_last_step_ends_later() -> None:
    found = facts(timeline((10, 20), (15, 30), (40, 50), (42, 44)), steps_end=70)
    assert found == {"gpu_window_us": 60, "gpu_busy_us": 30, "gpu_compute_us": 30}
    assert facts(timeline((10, 20), (15, 30)), steps_end=5)["gpu_window_us"] == 20  # the GPU ends after the host


def test_a_marked_step_begins_where_it_is_marked() -> None:
    late = timeline((70, 80), (90, 100))
    assert facts(late, 110, steps_begin=10) == {"gpu_window_us": 100, "gpu_busy_us": 20, "gpu_compute_us": 20}
    assert facts(late, 110)["gpu_window_us"] == 40, "no step is marked, or the device was still busy"
    assert facts(late, 110, steps_begin=75)["gpu_window_us"] == 40, "a kernel that ran before the first mark counts"


def test_a_step_begins_when_the_device_is_done_with_the_step_before() -> None:
    kernels = timeline((0, 30), (70, 80), launched=".x")
    assert facts(kernels, 80, steps_begin=10) == {"gpu_window_us": 50, "gpu_busy_us": 10, "gpu_compute_us": 10}
    assert facts(kernels, 80, steps_begin=40)["gpu_window_us"] == 40


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 20)), max_size=3),
)
def test_the_time_of_a_step_never_depends_on_its_kernels(
    rows: list[tuple[int, int]], cuts: list[tuple[int, int]]
) -> None:
    kernels = timeline(*((float(start), float(start + us)) for start, us in rows))
    assert facts(kernels, 100, steps_begin=-10)["gpu_window_us"] == 110
    found = facts(kernels, 100, steps_begin=-10, left_out=tuple((float(a), float(a + us)) for a, us in cuts))
    assert found["gpu_window_us"] + found.get("gpu_left_out_us", 0.0) == pytest.approx(110)
    idle = {t for a, us in cuts for t in range(a, a + us)} - {t for a, us in rows for t in range(a, a + us)}
    assert found.get("gpu_left_out_us", 0.0) == pytest.approx(len(idle & {*range(-10, 100)}))


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
    assert mark_launched_before(kernels).tolist() == [True, True, False, False]
    assert facts(kernels) == {"gpu_window_us": 14, "gpu_busy_us": 12, "gpu_compute_us": 12}
    assert not mark_launched_before(timeline((0, 10), (20, 30), launched="..")).any()


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
