"""Find the time that savings are a part of: a step, a run, or the whole trace, and divide it by kind of work.

The times are those of traces, in µs, and not those of the simulated step. Two constants state which fractions of the
whole are too small for the user.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.job.gpu_time import COMMUNICATION, GpuTime, Part
from analyzers.recommend.ranking import Recommendation

LEAST = 0.01
"""Two times count as equal, and a gain as nothing, if they differ by less than this fraction (0 to 1)."""
A_RUN = "a run"
"""Name of the whole for savings per run, used if no trace states the time of the run."""
NEGLIGIBLE = 1e-3
"""A thing to do is not listed if its gain is below this fraction of the step (0 to 1)."""


@dataclass(frozen=True)
class Share:
    """A kind of work in a step (for example ``GEMM``), and the time that it takes, µs."""

    name: str
    us: float


def whole_of(found: Recommendation) -> str:
    """Return what a saving per run is a part of, such as ``a run`` (``Verdict.whole``)."""
    if found.gpu_time is not None and not found.gpu_time.steps:
        return "all traces" if found.gpu_time.traces > 1 else "the whole trace"
    return A_RUN


def whole_us(time: GpuTime | None) -> float | None:
    """Return the time of a step, µs. If the traces mark no steps, it is the time of all traces.

    If the time that the traces cover is unknown, the sum of the kernels' times takes its place.
    """
    if time is None:
        return None
    return (time.window_us or time.kernels_us) / (time.steps or 1.0)


def kind_name(part: Part, time: GpuTime) -> str:
    """Return the name of a kind of work for the user, for example ``GEMM``.

    Communication becomes ``exposed communication`` if its time is only the time in which nothing else runs.
    """
    return f"exposed {part.name}" if part.name == COMMUNICATION and time.alone_us is not None else part.name


def divide_step(time: GpuTime | None) -> tuple[Share, ...]:
    """Return how a step's time is divided among kinds of work, the longest first and idle time last.

    All convolutions are one kind.
    """
    if time is None:
        return ()
    sums: dict[str, float] = {}
    for part in time.parts:
        name = "convolutions" if part.name.startswith("convolution ") else kind_name(part, time)
        sums[name] = sums.get(name, 0.0) + part.us
    if time.idle_us:
        sums["idle"] = time.idle_us
    per = time.steps or 1.0
    order = sorted(sums, key=lambda x: (x == "idle", -sums[x], x))
    return tuple(Share(name, sums[name] / per) for name in order if sums[name] > 0)
