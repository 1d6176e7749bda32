"""Estimate how far each traced GEMM and convolution is from the GPU's limits, and how fast it could be.

All results are estimates. The time of a call is the mean time of its kernels in the traces. Its efficiency is (roofline
time) / (time of the call), where the roofline uses the data sheet's peaks (``roofline_us``).

No kernel reaches these peaks. So each GEMM or convolution is compared with comparable ones in the same traces. They
have the same operation and direction, the same type, the same bound (arithmetic or memory), and a roofline time that
differs by a factor of at most ``NEAR``. The upper quartile of their efficiencies is assumed to be possible. If fewer
than ``ENOUGH`` are comparable, ``WITHIN_REACH`` is used instead.

The two gradients of a convolution (B and W) may have only one common time in a trace. Then neither can be replayed, and
the convolution is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.evidence.joins import facts_by_source
from analyzers.job.gpu_time import traced_calls
from logparse.devices import device_of
from logparse.model import ConvProblem, Problem, problem_from_text
from logparse.roofline import input_type, roofline_us

Floats: TypeAlias = npt.NDArray[np.float64]
NEAR = 4.0
"""Two GEMMs or convolutions are compared only if their ideal times (roofline) differ by at most this factor."""
ENOUGH = 4
"""Smallest number of comparable GEMMs or convolutions from which the possible efficiency is estimated.

With fewer of them, ``WITHIN_REACH`` is used.
"""
WITHIN_REACH = 0.5
"""Efficiency (fraction of the roofline) that is assumed to be possible if there are too few others to compare with.

Libraries reach it on GEMMs and convolutions of a usual shape. They never reach the roofline itself.
"""
FAR = 2.0
"""A call is reported as slow if it takes more than this many times as long as seems possible."""
LEAST_US = 8.0
"""Shortest time that any call is assumed to need, µs: the launch, prologue and last wave of one kernel."""


def efficiencies(kernels: pd.DataFrame, calls: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """Return for each GEMM and convolution in the traces the time that it takes and the time that seems possible.

    GEMMs and convolutions without a known ideal time (roofline) are left out. If one ran on several devices, the device
    on which it took the most time is used. Columns:

    * ``problem, source_id, device``: the text of the GEMM or convolution, the file, and the device.
    * ``calls``, ``total_us``, ``now_us``: calls in the traces, their time, and the mean time of a call, µs.
    * ``least_us``: the roofline time of a call, µs.
    * ``comparable``: how many others it was compared with.
    * ``reach``: the efficiency that is assumed to be possible (fraction of the roofline).
    * ``within_us``: the time at that efficiency, µs.
    * ``far``: True if ``now_us`` is more than ``FAR`` times ``within_us``.
    """
    if not kernels["problem"].notna().any():
        return _NONE
    rows = _rows(traced_calls(kernels, calls), facts_by_source(facts))
    rows["comparable"], rows["reach"] = 0, WITHIN_REACH
    for places in rows.groupby("group").indices.values():
        group = rows.iloc[places]
        held = [
            _estimate_efficiency(group["least_us"].to_numpy(), group["efficiency"].to_numpy(), i)
            for i in range(len(group))
        ]
        rows.loc[group.index, "comparable"] = [count for count, _ in held]
        rows.loc[group.index, "reach"] = [reach for _, reach in held]
    rows["within_us"] = (rows["least_us"] / rows["reach"]).clip(lower=LEAST_US)
    rows["far"] = rows["now_us"] > FAR * rows["within_us"]
    return rows


_NONE = pd.DataFrame({"problem": [], "now_us": [], "within_us": [], "far": np.zeros(0, dtype=bool)})
"""An empty table, which ``efficiencies`` returns if there is no trace. It has the columns that callers read."""


def _rows(calls: pd.DataFrame, facts: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Return a table of the job's GEMMs and convolutions that shows how close each comes to the speed of the hardware.

    The times are from traces, summed for each kind of GPU. GEMMs and convolutions whose ideal time is unknown are left
    out. The table has these columns in addition to the number of calls and their time:

    * ``least_us``: the ideal time (roofline), µs.
    * ``efficiency``: (ideal time) / (time of a call).
    * ``group``: GEMMs or convolutions that can be compared with each other have the same text here.
    """
    device = {str(source): _device(facts.get(str(source), {})) for source in calls["source_id"].unique()}
    known = calls.assign(device=calls["source_id"].map(device))
    known = known[known["device"].notna()].sort_values(["source_id", "problem"])
    sums = known.groupby(["device", "problem"]).agg(
        source_id=("source_id", "first"), total_us=("total_us", "sum"), calls=("calls", "sum")
    )
    rows = sums.reset_index().sort_values(["total_us", "device"]).drop_duplicates("problem", keep="last")
    rows = rows.sort_values("problem", ignore_index=True)
    rows["now_us"] = rows["total_us"] / rows["calls"]
    held = [
        _find_ideal_time(problem_from_text(x), facts.get(s, {}))
        for x, s in zip(rows["problem"], rows["source_id"], strict=True)
    ]
    rows["least_us"] = np.array([least for least, _ in held], dtype="float64")
    rows["group"] = [f"{device} {group}" for device, (_, group) in zip(rows["device"], held, strict=True)]
    rows["efficiency"] = rows["least_us"] / rows["now_us"]
    return rows[rows["least_us"].notna()].reset_index(drop=True)


def _device(facts: Mapping[str, str]) -> str | None:
    device = device_of(facts)
    return None if device is None else device.name


def _find_ideal_time(problem: Problem, facts: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the ideal time (roofline, µs) of a GEMM or convolution, and the name of its group for comparison.

    None and an empty name if the ideal time is unknown.
    """
    least, device = roofline_us(problem, facts), device_of(facts)
    if isinstance(problem, ConvProblem) and problem.direction == "B+W":
        return None, ""
    if least is None or device is None or not problem.bytes:
        return None, ""
    bound = "memory" if problem.bytes / (device.hbm_gbs * 1e3) >= least else "arithmetic"
    grouped = "" if not isinstance(problem, ConvProblem) else f"{problem.direction} {(problem.groups or 1) > 1}"
    # The members of a group have the same operation, direction, type and bound (memory or arithmetic).
    return least, f"{problem.kind} {grouped} {input_type(problem, facts)} {bound}"


def _estimate_efficiency(least_us: Floats, efficiency: Floats, i: int) -> tuple[int, float]:
    """Estimate the efficiency (0 to 1) that GEMM or convolution number ``i`` could reach, from similar ones.

    Also returns how many were used.
    """
    # Another one is used if the ideal times of both differ by at most the factor NEAR. The estimate is the upper
    # quartile of their efficiencies.
    near = (least_us >= least_us[i] / NEAR) & (least_us <= least_us[i] * NEAR)
    near[i] = False
    count = int(near.sum())
    if count < ENOUGH:
        return count, WITHIN_REACH
    return count, min(float(np.quantile(efficiency[near], 0.75)), 1.0)  # A device may clock above its data sheet.
