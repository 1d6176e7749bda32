"""Find the operator of each kernel that has no ``External id``, by the time and thread of its launch.

The kernel's ``correlation`` names the runtime call (``cudaLaunchKernel``, ``hipLaunchKernel`` …) that launched it.  The
kernel belongs to the innermost operator that was open on the same thread at that time.  For launches of graphs see
``graphs``.

Some traces of ROCm have no ``correlation``.  Their kernels and runtime calls have it as ``External id``, which is then
no id of an operator (AMD-AGI/TraceLens, traces ``gemm_01`` to ``gemm_04``)::

    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "args": {"External id": 2, …}}
    {"ph": "X", "cat": "cuda_runtime", "name": "hipExtModuleLaunchKernel", "args": {"External id": 2, …}}
    {"ph": "X", "cat": "kernel", "name": "Cijk_Ailk_Bljk_…", "args": {"External id": 2}}

The fact ``graph_launches_without_kernels`` counts launches of graphs for which the profiler kept no kernel.  The time
of such kernels looks like idle time (AMD-AGI/TraceLens issue 728).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from logparse.libraries.kinds.format import Source
from logparse.libraries.kinds.marker_ranges import innermost
from logparse.libraries.torch_profiler.graphs import GRAPHS, LAUNCH, ReadBeside, join
from logparse.libraries.torch_profiler.records import Columns, Ints
from logparse.model import Fact


def take_ids_for_correlations(columns: Columns) -> None:
    """Change ``columns`` if the ``External id`` of kernels is the number of their launch, not of their operator.

    Only kernels and runtime calls without a ``correlation`` are considered.  Their ids are numbers of launches if no
    two calls have the same id, and at least half of the kernels have the id of a call.  (Some operators make several
    calls, which would all have the operator's id.)  A kernel without such a call then has no operator.
    """
    kernels, calls = (
        [at for at, (id, correlation) in enumerate(zip(ids, correlations, strict=True)) if id >= 0 > correlation]
        for ids, correlations in (
            (columns.kernel_id, columns.kernel_correlation),
            (columns.call_id, columns.call_correlation),
        )
    )
    call_of = {columns.call_id[at]: at for at in calls}
    launched = [at for at in kernels if columns.kernel_id[at] in call_of]
    if not launched or len(call_of) < len(calls) or 2 * len(launched) < len(kernels):
        return
    for at in calls:
        columns.call_correlation[at] = columns.call_id[at]
    for at in launched:
        columns.kernel_correlation[at] = columns.kernel_id[at]
    for at in kernels:
        columns.kernel_id[at] = -1
    columns.without_id += len(kernels)


def operators_by_time(
    source: Source, columns: Columns, beside: ReadBeside, header: Mapping[str, Any]
) -> tuple[Ints, list[Fact]]:
    """Find the operator that launched each kernel, by the time and thread of the launch.

    Returns the index of each kernel's operator in ``columns`` (-1 if unknown), and facts about replayed CUDA graphs.
    """
    found = np.full(len(columns.kernel_id), -1, dtype=np.int64)
    call_of = {correlation: i for i, correlation in enumerate(columns.call_correlation) if correlation >= 0}
    replays = {name for name in set(columns.call_name) if LAUNCH.match(columns.names[name])}
    graphs = {correlation for correlation, call in call_of.items() if columns.call_name[call] in replays}
    asked = [i for i, correlation in enumerate(columns.kernel_correlation) if correlation in call_of]
    calls: Ints = np.array([call_of[columns.kernel_correlation[i]] for i in asked], dtype=np.int64)
    threads: Ints = np.array(columns.op_thread, dtype=np.int64)
    starts, us = np.array(columns.op_start), np.array(columns.op_us)
    known = np.isfinite(starts) & np.isfinite(us)  # an operator without a time cannot contain the time of a launch
    starts, ends = np.where(known, starts, -1.0), np.where(known, starts + us, -2.0)
    at, at_threads = np.array(columns.call_start)[calls], np.array(columns.call_thread, dtype=np.int64)[calls]
    found[asked] = innermost(starts, ends, threads, at, at_threads)
    columns.launched = np.zeros(len(found), dtype=bool)
    columns.launched[asked] = True
    graph_of = [correlation if correlation in graphs else -1 for correlation in columns.kernel_correlation]
    marks = _match_launches(columns, call_of, graphs, header.get(GRAPHS))
    joined = join(source, columns, graph_of, marks, found, header, beside)
    lost = graphs - {*columns.kernel_correlation, *columns.copy_correlation}
    return found, [*joined, *([Fact("graph_launches_without_kernels", str(len(lost)))] if lost else [])]


def _match_launches(columns: Columns, call_of: Mapping[int, int], graphs: set[int], marks: object) -> dict[int, str]:
    """Return which captured CUDA graph ran at each launch of a graph, by the correlation number of the launch.

    ``marks`` lists the graphs in the order of their launches.  If its length differs, the result is empty.
    """
    if not isinstance(marks, list) or len(marks) != len(graphs):
        return {}
    order = sorted(graphs, key=lambda x: (columns.call_start[call_of[x]], columns.call_thread[call_of[x]]))
    return dict(zip(order, map(str, marks), strict=True))
