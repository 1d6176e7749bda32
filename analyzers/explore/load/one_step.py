"""Read one step of a run's traces for the timeline, and the kernels of the whole run by time.

The device is idle while no kernel runs, as in the remark about the run (``libraries/torch_profiler/gaps.py``). A copy
is no kernel. The row of a trace (``logparse/libraries/torch_profiler/timeline.py``) keeps the work of the device and
the calls of the runtime, but no operators. So the reason of an idle gap is one of four, and ``host`` is the sum of two
reasons of the remark:

================  ====================================================================================================
queued            The next work had been launched before the gap began: the device is late, or waits for an event.
data loading      A batch of a loader was under way for half of the gap or more.
synchronisation   A call that waits for the device took half of the gap or more, or was under way when it began.
host              Anything else: the host launches work, or runs code of its own.
================  ====================================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from analyzers.job.gpu_time import part_of
from logparse.lazy import duckdb
from logparse.libraries.torch_profiler.busy import BEFORE
from logparse.libraries.torch_profiler.coverage import Coverage
from logparse.libraries.torch_profiler.searches import SEARCH
from logparse.libraries.torch_profiler.timeline import CALL_KINDS
from logparse.text import duration

WHYS = ("queued", "data loading", "synchronisation", "host")
"""Reasons why the GPU may be idle. If several reasons fit, the first in this order is used."""
COPY = "copy or fill"
MOST = 20_000
"""Largest number of kernels and copies in the timeline of a trace that marks no steps."""
_BLOCKING = tuple(CALL_KINDS.index(x) for x in ("device", "stream", "event", "copy"))
_GRAPH = CALL_KINDS.index("graph")
_LAUNCHES = tuple(CALL_KINDS.index(x) for x in ("launch", "graph", "copy", "copied"))
_WAITED_US = 20.0
"""A call of the CUDA or HIP runtime that takes less than this (µs) did not really wait."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """The GPU's work in one step of one trace. Times are µs since its first kernel or copy.

    * ``works``: kernels and copies, with ``start, us, stream, kind, kernel, op, problem``
    * ``gaps``: periods without a kernel, with ``start, us, why``
    * ``host``: the host's calls of the CUDA or HIP runtime in this time, with ``start, us, does``
    * ``launched``: a sentence about when the host launched the step's work. Empty if the trace does not show it
    """

    title: str
    works: pd.DataFrame
    gaps: pd.DataFrame
    host: pd.DataFrame
    launched: str = ""


def one_step(con: duckdb.DuckDBPyConnection, run: str) -> Step | None:
    """Return the GPU's work in one typical step of the run, or None if no trace of the run has a kernel.

    * ``con``: a database with the stored views.
    """
    first = "select * from timelines where run = $run and len(works) > 0 order by rank, source_id, unit_window limit 1"
    found = con.sql(first, params={"run": run}).to_arrow_table()
    if not found.num_rows:
        return None
    works, calls, loads = (_columns(found, x) for x in ("works", "calls", "loads"))
    identities = _columns(found, "identities")
    asked = _find_launch_times(works, calls)
    # The step has the median duration in the first trace. If the trace marks no steps, a part of it is used.
    chosen, title, own = _window(works, asked, _columns(found, "units"))
    devices = works["device"][chosen]
    common = np.unique(devices, return_counts=True)
    chosen &= works["device"] == common[0][np.argmax(common[1])]
    order = np.flatnonzero(chosen)[np.argsort(works["start"][chosen], kind="stable")]
    start, us = works["start"][order], np.maximum(works["us"][order], 0.0)
    begin = float(start[0])
    known, talks = works["identity"][order], works["ranks"][order] >= 0
    kernels_ = known >= 0
    gaps = _gaps(
        start[kernels_], us[kernels_], _find_launch_times(works, calls, ends=True)[order][kernels_], calls, loads
    )
    stream = works["stream"][order]
    frame = pd.DataFrame({"start": start - begin, "us": us, "stream": [f"stream {x}" for x in stream.tolist()]})
    names = {x: [str(y or "") for y in identities[x].tolist()] for x in ("op", "kernel", "problem")}
    for name, other in (("op", ""), ("kernel", COPY), ("problem", "")):
        frame[name] = [names[name][i] if i >= 0 else other for i in known.tolist()]
    frame["kind"] = [
        "communication" if talk else part_of(op, kernel, problem) if i >= 0 else "transposes and copies"
        for talk, i, op, kernel, problem in zip(
            talks.tolist(), known.tolist(), frame["op"], frame["kernel"], map(_library, frame["problem"]), strict=True
        )
    ]
    frame["kind"] = ["convolutions" if x.startswith("convolution ") else x for x in frame["kind"]]
    rank = int(found["rank"][0].as_py())
    host = _host_calls(calls, begin, float((start + us).max()))
    title = f"{title}, rank {rank}" if rank else title
    launched = _say_launched(asked[own & chosen], begin, only_waits=set(host["does"]) == {"wait"})
    return Step(title, frame, gaps.assign(start=gaps["start"] - begin), host, launched)


def _say_launched(asked: Floats, begin: float, *, only_waits: bool) -> str:
    """Say how long the host took to launch a step's work, and how long before the first kernel it began.

    * ``asked``: the times of the launches, µs.
    * ``begin``: the time of the first kernel, µs.
    * ``only_waits``: True if the host does nothing but wait for the GPU from then on.
    """
    known = asked[np.isfinite(asked)]
    if not len(known):
        return ""
    first, last = float(known.min()), float(known.max())
    if only_waits and last <= begin:
        return (
            f"The host runs ahead: it launched this step's work in {duration(last - first)}, beginning "
            f"{duration(begin - first)} before the step's first kernel, and only waits in the time shown here."
        )
    # The first kernel may have been launched before the trace.
    ahead = f", beginning {duration(begin - first)} before the first kernel" if first <= begin else ""
    return f"The host launched this work within {duration(last - first)}{ahead}."


def _library(problem: str) -> str:
    """Return the operator's text if it is a GEMM or convolution, and an empty text for another operator."""
    return "" if problem.startswith("operator ") else problem


def _columns(row: pa.Table, name: str) -> dict[str, npt.NDArray[Any]]:
    """Read a column of a stored trace, and return one array for each field.

    The column is a list of records. For example, each record of ``works`` has a start, a duration and a kernel.
    """
    lists = row[name].combine_chunks()
    values = (lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists).flatten()
    return {field.name: values.field(field.name).to_numpy(zero_copy_only=False) for field in values.type}


def _find_launch_times(
    works: dict[str, npt.NDArray[Any]], calls: dict[str, npt.NDArray[Any]], *, ends: bool = False
) -> Floats:
    """Return the time at which the host launched each kernel or copy. It is NaN if the trace lacks the launch.

    * ``ends``: return the end of the launch call instead of its beginning.
    """
    out = np.full(len(works["start"]), np.nan)
    if not len(calls["correlation"]):
        return out
    order = np.argsort(calls["correlation"], kind="stable")
    keys = calls["correlation"][order]
    place = np.minimum(np.searchsorted(keys, works["correlation"]), len(keys) - 1)
    same = keys[place] == works["correlation"]
    # The first kernels of a graph run before its launch ends. So its beginning is used in both cases.
    at = np.where(calls["kind"] == _GRAPH, calls["start"], calls["end"]) if ends else calls["start"]
    out[same] = at[order][place[same]]
    return out


def _window(
    works: dict[str, npt.NDArray[Any]], asked: Floats, units: dict[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[np.bool_], str, npt.NDArray[np.bool_]]:
    """Choose one step of a trace. Returns a mask of its kernels and copies, its title, and a mask of its own work.

    A step begins on the device with the first work that the host launched in it. It ends where the next step begins.
    Until then the device may still do work of the step before, which is shown, too, but is not the step's own work. If
    the launch of a kernel or copy is unknown, it may have been launched before the trace. So it marks the beginning of
    a step only if no launch is known at all.
    """
    start = works["start"]
    at = start if np.isnan(asked).all() else asked
    lengths = units["end"] - units["start"]
    begins = []
    for left, right in zip(units["start"].tolist(), units["end"].tolist(), strict=True):
        launched = start[(at >= left) & (at < right)]
        begins.append(float(launched.min()) if len(launched) else math.nan)
    ends = [*begins[1:], float((start + works["us"]).max())]
    for i in np.argsort(np.abs(lengths - np.median(lengths)), kind="stable").tolist() if len(lengths) else ():
        chosen: npt.NDArray[np.bool_] = (start >= begins[i]) & (start < ends[i])
        if chosen.any():
            own = (at >= units["start"][i]) & (at < units["end"][i])
            return chosen, f"Step {i + 1} of {len(lengths)} of one trace, the one of median duration", own
    every = np.ones(len(at), dtype=bool)
    if len(at) <= MOST:
        return every, "The whole trace, because it marks no steps", every
    middle = np.argsort(works["start"], kind="stable")[(len(at) - MOST) // 2 :][:MOST]
    chosen = np.zeros(len(at), dtype=bool)
    chosen[middle] = True
    return chosen, f"{MOST:,} works from the middle of a trace that marks no steps", every


def _gaps(
    start: Floats, us: Floats, asked: Floats, calls: dict[str, npt.NDArray[Any]], loads: dict[str, npt.NDArray[Any]]
) -> pd.DataFrame:
    """Return the periods in which no kernel ran, with the reason of each.

    ``start`` and ``us`` are the begins and durations of the kernels, in ascending order.
    """
    until = np.maximum.accumulate(start + us)
    after = np.flatnonzero(start[1:] > until[:-1]) + 1
    begin, end = until[after - 1], start[after]
    half = 0.5 * (end - begin)
    with np.errstate(invalid="ignore"):
        queued = asked[after] <= begin
    long = np.isin(calls["kind"], _BLOCKING) & (calls["end"] - calls["start"] >= _WAITED_US)
    blocked, loading = (
        Coverage(calls["start"][long], calls["end"][long]),
        Coverage(loads["start"].astype(np.float64), loads["end"].astype(np.float64)),
    )
    at_begin = blocked.within(begin, np.minimum(begin + 1.0, end)) > 0
    fits = [queued, loading.within(begin, end) >= half, at_begin | (blocked.within(begin, end) >= half)]
    why = np.select(fits, list(WHYS[:3]), WHYS[3])
    return pd.DataFrame({"start": begin, "us": end - begin, "why": why.astype(object)})


def _host_calls(calls: dict[str, npt.NDArray[Any]], begin: float, end: float) -> pd.DataFrame:
    """Return the parts of the host's runtime calls, of all threads, that lie between two times (µs).

    ``does`` is ``wait`` for a call that waited for the GPU, else ``launch`` or ``other``. ``start`` counts from
    ``begin``.
    """
    left, right = np.maximum(calls["start"], begin), np.minimum(calls["end"], end)
    waits = np.isin(calls["kind"], _BLOCKING) & (calls["end"] - calls["start"] >= _WAITED_US)
    does = np.select([waits, np.isin(calls["kind"], _LAUNCHES)], ["wait", "launch"], "other")
    order = np.argsort(left, kind="stable")
    order = order[(right > left)[order]]
    return pd.DataFrame(
        {"start": (left - begin)[order], "us": (right - left)[order], "does": does[order].astype(object)}
    )


def kernels(con: duckdb.DuckDBPyConnection, run: str, steps: float | None) -> pd.DataFrame:
    """Return the kernels in the run's traces, the longest first. Numbers are per step if ``steps`` is known.

    The columns are ``kernel, op, operator, problem, kind, calls, us``.
    """
    rows = con.execute(
        f"""select kernel, coalesce(op, '') as op, coalesce(operator, '') as operator, coalesce(problem, '') as problem,
                   sum(calls)::double as calls, sum(total_us) as us
            from kernels where run = ? and op not in ('{BEFORE}', '{SEARCH}') group by all
            order by us desc, kernel, op, problem""",
        [run],
    ).df()
    per = steps if steps and math.isfinite(steps) else 1.0
    kinds = [
        part_of(op, kernel, problem)
        for op, kernel, problem in zip(rows["op"], rows["kernel"], rows["problem"], strict=True)
    ]
    kinds = ["convolutions" if x.startswith("convolution ") else x for x in kinds]
    return rows.assign(kind=kinds, calls=rows["calls"] / per, us=rows["us"] / per)


def write(con: duckdb.DuckDBPyConnection, run: str, database: str) -> None:
    """Write the tables of the web page's timeline into a database: ``kernels``, ``works``, ``gaps``, ``host`` and
    ``step``.

    ``step`` has the title of the shown step. The number of steps is read from the table ``steps_``, which
    ``point_table.build`` made.
    """
    ((steps,),) = con.execute("select steps from steps_").fetchall()
    step = one_step(con, run)
    nothing = Step("", _NO_WORKS, _NO_GAPS, _NO_HOST)
    made = step or nothing
    tables = {"kernels": kernels(con, run, steps), "works": made.works, "gaps": made.gaps, "host": made.host}
    about = {"title": [made.title], "launched": [made.launched], "per_step": [bool(steps)]}
    tables["step"] = pd.DataFrame(about).astype({"title": "object", "launched": "object"})
    for name, frame in tables.items():
        con.register("given_", pa.Table.from_pandas(frame, preserve_index=False, schema=_SCHEMAS[name]))
        con.execute(f"create or replace table {database}.{name} as select * from given_")
        con.unregister("given_")


_TEXT, _REAL = pa.string(), pa.float64()
_SCHEMAS = {
    "kernels": pa.schema(
        {**dict.fromkeys(("kernel", "op", "operator", "problem", "kind"), _TEXT), "calls": _REAL, "us": _REAL}
    ),
    "works": pa.schema(
        {"start": _REAL, "us": _REAL, **dict.fromkeys(("stream", "kind", "kernel", "op", "problem"), _TEXT)}
    ),
    "gaps": pa.schema({"start": _REAL, "us": _REAL, "why": _TEXT}),
    "host": pa.schema({"start": _REAL, "us": _REAL, "does": _TEXT}),
    "step": pa.schema({"title": _TEXT, "launched": _TEXT, "per_step": pa.bool_()}),
}
_NO_WORKS, _NO_GAPS, _NO_HOST = (_SCHEMAS[x].empty_table().to_pandas() for x in ("works", "gaps", "host"))
