"""Turn the trace of one process into one table row, with the data that a simulation of the job's step needs.

The row contains calls of the runtime, work of the device, and marks.  ``analyzers/job/step`` makes its graph from such
rows.  For this graph the rows of all ranks are needed that were traced at the same time, because their clocks and
collectives belong together.  So an answer needs no trace file.

Of the host, only calls that launch, wait or record are kept.  The time between two such calls on a thread is the host's
work.  The names of CUDA's runtime and driver (``cudaLaunchKernel``, ``cuLaunchKernelEx``) and of HIP
(``hipExtModuleLaunchKernel``) differ only in their prefix (``_SHORT``).

Events of Kineto that are read (pytorch/kineto, ``libkineto/src``: ``output_json.cpp``, ``CuptiActivity.cpp``,
``CuptiActivityProfiler.cpp``, ``RoctracerActivity_inl.h``)::

    "cat": "cuda_runtime" | "cuda_driver" | ...   a call; "correlation" names the device's work that it launched
    "cat": "kernel" | "gpu_memcpy" | "gpu_memset" work; "device", "stream", "correlation"; a replayed graph's kernels
                                                  all have the correlation of its launch
    "cat": "cuda_sync", "args": {"cuda_sync_kind": "Stream Wait Event", "stream": 7, "correlation": 91,
        "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 88}
                                                  which event a call waited for; written only if the profiler ran
                                                  with ``enable_cuda_sync_events``, and never by ROCm's
    "cat": "user_annotation", "name": "ProfilerStep#3"
    "cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0"
                                                  a node of the backward pass, which a thread of its own runs
    "name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    "cat": "user_annotation", "name": "step[DECODE bs=32]" | "execute_context_0(0)_generation_32(32)"
                                                  a step of SGLang, and of vLLM
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.busy import COMMUNICATION

if TYPE_CHECKING:
    from logparse.libraries.torch_profiler.records import Columns

RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime"})
UNIT_KINDS, FIRST_UNIT = "logparse_unit_kinds", "logparse_first_unit"
"""Two keys of a trace's header.

* ``UNIT_KINDS``: the kind of each marked step, by the step's number.
* ``FIRST_UNIT``: the number of steps that the process had done before the first step of the trace.
"""

CallKind = Literal["launch", "graph", "device", "allocator", "stream", "event", "copy", "copied", "wait", "record"]
"""The kind of a runtime call.  ``copied`` is the end of a call that copied and waited until the copy was done."""
CALL_KINDS: tuple[CallKind, ...] = (
    *("launch", "graph", "device", "allocator", "stream", "event", "copy", "copied", "wait", "record"),
)
"""All kinds of runtime calls.  A call's kind is stored as its index in this tuple."""

_LAUNCH, _COPY = CALL_KINDS.index("launch"), CALL_KINDS.index("copy")
_SHORT = regex(r"(?:cuda|hip|cu)([A-Z]\w*?)(?:_v\d+|_ptsz|_ptds)*$")
_KINDS: Mapping[str, CallKind] = {
    "GraphLaunch": "graph",
    **dict.fromkeys(("DeviceSynchronize", "CtxSynchronize", "Free"), "device"),
    **dict.fromkeys(("Malloc", "HostAlloc", "HostMalloc", "MallocHost", "HostFree", "FreeHost"), "allocator"),
    "StreamSynchronize": "stream",
    "EventSynchronize": "event",
    "StreamWaitEvent": "wait",
    **dict.fromkeys(("EventRecord", "EventRecordWithFlags"), "record"),
}
_BACKWARD = "autograd::engine::evaluate_function"
MARK = regex(
    r"ProfilerStep#(\d+)\Z|enumerate\(DataLoader\)#_(Multi|Single)Process\w*\.__next__"
    r"|(step\[|execute_(?:new|context|generation|\d))"
)
"""A regular expression for the names of events that mark a step or a batch.

Its groups are the number of a profiler step, the kind of a data loader, and the step of a serving engine.
"""
BACKLOG_US = 500.0
"""The maximum time that an idle device takes to begin work that was launched, in µs."""
_WAITED_US = 500.0
"""Duration from which on a call of a data loader's ``__next__`` really waited for a batch, in µs.

This is for a loader with worker processes.  A shorter call found its batch ready: taking a ready batch out of the queue
takes up to this time.
"""
_HOST_COPY = regex(r"Memcpy (?:DtoH|HtoD).*Pageable|Memcpy (?:DtoH|HtoD) \((?:Device -> Host|Host -> Device)\)")
"""A regular expression for copies between the device and the host's memory.

ROCm's traces do not state whether the host's memory is pageable.
"""

_INT, _PLACE, _REAL, _TEXT = pa.int64(), pa.int32(), pa.float64(), pa.string()


def _rows_of(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field(name, type) for name, type in fields.items()]))


SCHEMA = pa.schema(
    {
        "rank": _INT,
        "unit_window": _TEXT,
        "main": _PLACE,
        "threads": _rows_of(pid=_TEXT, tid=_TEXT),
        "calls": _rows_of(kind=_PLACE, thread=_PLACE, start=_REAL, end=_REAL, correlation=_INT),
        "works": _rows_of(
            device=_INT, stream=_INT, start=_REAL, us=_REAL, correlation=_INT, identity=_PLACE, ranks=_PLACE,
            host_copy=_PLACE,
        ),
        "identities": _rows_of(op=_TEXT, problem=_TEXT, kernel=_TEXT),
        "groups": _rows_of(ranks=_TEXT),
        "waits": _rows_of(correlation=_INT, device=_INT, stream=_INT, wait_on_stream=_INT, record=_INT),
        "units": _rows_of(start=_REAL, end=_REAL, kind=_TEXT),
        "handoffs": _rows_of(at=_REAL, one=_PLACE, other=_PLACE),
        "loads": _rows_of(start=_REAL, end=_REAL, thread=_PLACE, by_workers=_PLACE),
    }
)  # fmt: skip
"""The columns of the table in which a trace is one row.  Times are in µs on the trace's clock.

* ``unit_window``: the name of the traced part of the job.
* ``main``: the thread that runs the job's steps.  It is an index of ``threads``, or -1.  All other threads are given in
  the same way.
* ``identity`` of a kernel: an index of ``identities``.  It is -1 for a copy or fill.
* ``ranks`` of a collective: an index of ``groups``.  It is -1 for other work.
* ``host_copy``: 1 for a copy between the device and the host's memory.
* ``wait_on_stream``: a negative value means that the wait does not state its stream.
"""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class KernelIdentity(NamedTuple):
    """The name of a kernel, its operator and its work. Kernels that agree in all three are the same kernel.

    ``problem`` is the text of the matrix product or convolution, or else of the operator with its inputs.  Unknown
    parts are empty.
    """

    op: str
    problem: str | None
    kernel: str


def timeline(
    columns: Columns, places: Ints, identities: Sequence[KernelIdentity], header: Mapping[str, Any]
) -> pa.Table:
    """Collect from a trace everything that is needed to simulate a step of the job.  Return it as a table with one row.

    ``identities`` lists the different kernels.  ``places`` tells for each launched kernel which of them it is.
    """
    # Damaged events are left out, and so are events that lack a needed field.  The counts of events in a read trace
    # follow the same rule.
    works, groups = _collect_work(columns, places)
    calls = _calls(columns, works["correlation"])
    backward, activity = _of_host(columns)
    steps, loads, marked = _marks(columns)
    main = _main(columns, activity, backward, marked)
    kinds = header.get(UNIT_KINDS)
    kinds = kinds if isinstance(kinds, dict) else {}
    units = sorted((*times, str(kinds.get(number, ""))) for number, times in steps.items())
    handed = handoffs(main, activity.get(main, np.empty(0)).tolist(), backward)
    handed.sort(key=lambda x: (x[0], *(columns.threads[thread] if thread >= 0 else () for thread in x[1:])))
    distributed = header.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    values: dict[str, pa.Array] = {
        "rank": _numbers([rank if type(rank) is int and abs(rank) < 1 << 63 else 0], _INT),
        "unit_window": _texts([str(header.get(FIRST_UNIT, ""))]),
        "main": _numbers([main], _PLACE),
        "threads": columns.threads,
        "calls": calls,
        "works": works,
        "identities": identities,
        "groups": [(ranks,) for ranks in groups],
        "waits": columns.waits,
        "units": units,
        "handoffs": handed,
        "loads": sorted(loads),
    }
    arrays = [x if isinstance(x, pa.Array) else _wrap_in_list(x, SCHEMA.field(name).type) for name, x in values.items()]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _collect_work(columns: Columns, places: Ints) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Return everything that ran on the GPUs (kernels, copies and fills), as columns in the order of the file.

    The second result lists the groups of ranks that exchange data.
    """
    start, us = np.array(columns.kernel_start), np.array(columns.kernel_us)
    talks = np.array([COMMUNICATION.search(name) is not None for name in columns.names], dtype=bool)
    talking = talks[np.array(columns.kernel_name, dtype=np.int64)] if len(start) else np.zeros(0, dtype=bool)
    groups: dict[str, int] = {}
    # This column holds the position of a communication kernel's group in the list, and -1 for other kernels.
    ranks = np.full(len(start), -1, dtype=np.int64)
    for kernel in np.flatnonzero(talking).tolist():
        ranks[kernel] = groups.setdefault(columns.kernel_group.get(kernel, ""), len(groups))
    host_copy = np.array([_HOST_COPY.match(columns.names[name]) is not None for name in columns.copy_name], np.int64)
    none = np.full(len(host_copy), -1, dtype=np.int64)
    pairs: dict[str, tuple[Any, Any]] = {
        "device": (np.array(columns.kernel_device, dtype=np.int64), columns.copy_device),
        "stream": (np.array(columns.kernel_stream), columns.copy_stream),
        "start": (start, columns.copy_start),
        "us": (us, columns.copy_us),
        "correlation": (np.array(columns.kernel_correlation), columns.copy_correlation),
        "identity": (places, none),
        "ranks": (ranks, none),
        "host_copy": (np.zeros_like(ranks), host_copy),
    }
    before = np.array(columns.copy_before, dtype=np.int64)
    kept = np.insert(_has_times(start, us), before, True)
    return {name: np.insert(one, before, other)[kept] for name, (one, other) in pairs.items()}, [*groups]


def _calls(columns: Columns, launched: Ints) -> dict[str, npt.NDArray[Any]]:
    """Return the trace's calls of the GPU runtime (CUDA or HIP) as columns.

    A launch is left out if its kernel or copy is not in the trace.
    """
    start, us = np.array(columns.call_start), np.array(columns.call_us)
    name, correlation = np.array(columns.call_name, dtype=np.int64), np.array(columns.call_correlation)
    known = {i: call_kind(columns.names[i]) for i in set(columns.call_name)}
    kinds = np.zeros(len(columns.names) + 1, dtype=np.int64)
    kinds[[*known]] = [*known.values()]
    kind = kinds[name]
    kept = ((kind != _LAUNCH) & (kind != _COPY)) | np.isin(correlation, launched[launched != -1])
    kept &= _has_times(start, us)
    thread = np.array(columns.call_thread, dtype=np.int64)
    rows = {"kind": kind, "thread": thread, "start": start, "end": start + us, "correlation": correlation}
    return {name: column[kept] for name, column in rows.items()}


def _of_host(columns: Columns) -> tuple[list[tuple[float, float, int]], dict[int, Floats]]:
    """Return the operators of the backward pass (start, end, thread), and when each thread of the host was active."""
    start, us = np.array(columns.op_start), np.array(columns.op_us)
    call_start, call_us = np.array(columns.call_start), np.array(columns.call_us)
    names = [columns.names[name] for name, _, _ in columns.kinds]
    marks = np.array([MARK.match(name) is not None for name in names], dtype=bool)
    nodes = np.array([name.startswith(_BACKWARD) for name in names], dtype=bool)
    events = len(start)  # replays add operators at the end that have no time
    kind = np.array(columns.op_kind, dtype=np.int64)[:events]
    called, timed = _has_times(call_start, call_us), _has_times(start, us)
    timed &= ~marks[kind] if len(kind) else True
    thread = np.array(columns.op_thread, dtype=np.int64)
    threads = np.r_[thread[timed], np.array(columns.call_thread, dtype=np.int64)[called]]
    at = np.r_[start[timed], call_start[called]]
    # The starts of a thread's events show when it was active.
    activity = {one: at[threads == one] for one in np.unique(threads).tolist()}
    mine = np.flatnonzero(timed & nodes[kind]) if len(kind) else np.empty(0, dtype=np.int64)
    backward = zip(start[mine].tolist(), (start + us)[mine].tolist(), thread[mine].tolist(), strict=True)
    return [*backward], activity


def _has_times(start: Floats, us: Floats) -> npt.NDArray[np.bool_]:
    """Return for each event whether it has a beginning and a duration."""
    with np.errstate(invalid="ignore"):
        known: npt.NDArray[np.bool_] = np.isfinite(start) & np.isfinite(us) & (us >= 0)
    return known


def _marks(
    columns: Columns,
) -> tuple[dict[str, tuple[float, float]], list[tuple[float, float, int, int]], int | None]:
    """Find the times of the job's steps, and the times in which a thread loaded or waited for a batch of data.

    Returns the steps by number, the loads, and the thread that marks the steps.
    """
    steps: dict[str, tuple[float, float]] = {}
    loads: list[tuple[float, float, int, int]] = []
    marked = None
    for name, start, us, thread in columns.marks:
        found = MARK.match(name)
        step, loader, _ = found.groups() if found else ("", "", "")
        if step:
            steps[step] = (start, start + us)
            marked = thread
        elif loader == "Single" or (loader and us >= _WAITED_US):
            loads.append((start, start + us, thread, int(loader == "Multi")))
    if not steps and (served := serving_steps(columns)):
        threads = Counter(thread for _, _, thread in served)
        marked = max(threads, key=lambda x: (threads[x], columns.threads[x]))
        steps = {str(i): (start, end) for i, (start, end, thread) in enumerate(served) if thread == marked}
    return steps, loads, marked


def serving_steps(columns: Columns) -> list[tuple[float, float, int]]:
    """Find the steps that a serving engine (vLLM, SGLang) marked, sorted by their beginning.

    A step is returned as its beginning, end (µs) and thread.
    """
    marks = [x for x in columns.marks if (found := MARK.match(x[0])) and found[3] and x[2] > 0]
    out: list[tuple[float, float, int]] = []
    ends: dict[int, float] = {}
    for _, start, us, thread in sorted(marks, key=lambda x: (x[1], -x[2])):
        # The engines mark a step and also its parts. So if a mark lies within another mark, only the outer mark is a
        # step.
        if start >= ends.get(thread, -math.inf):
            out.append((start, start + us, thread))
            ends[thread] = start + us
    return out


def _main(
    columns: Columns, activity: Mapping[int, Floats], backward: Sequence[tuple[float, float, int]], marked: int | None
) -> int:
    """Return the main thread of the job: the thread that marks the steps.

    If no thread marks steps, it is the busiest thread that runs no backward pass.  Returns -1 if there is no thread.
    """
    if marked is not None:
        return marked
    behind = {thread for _, _, thread in backward}
    others = {thread: len(times) for thread, times in activity.items() if thread not in behind}
    return max(others, key=lambda x: (others[x], columns.threads[x]), default=-1)


def handoffs(
    main: int, activity: Sequence[float], backward: Sequence[tuple[float, float, int]]
) -> list[tuple[float, int, int]]:
    """Find the moments at which work passes from the main thread to the thread of the backward pass, or back.

    Each moment is a triple (time, ``one``, ``other``): thread ``other`` continues after thread ``one``.

    ``Engine::execute`` (pytorch, ``torch/csrc/autograd/engine.cpp``) gives the first operator of the backward pass to
    the device's thread.  The thread that called it waits for the result.  So operators of a backward pass that follow
    each other without an event on the main thread belong together.  The first one follows the main thread's last event.
    The main thread goes on after the last one.
    """
    busy = sorted(activity)
    episodes: dict[tuple[int, int], tuple[float, float]] = {}
    for start, end, thread in sorted(backward):
        if thread != main:
            key = (thread, bisect.bisect_right(busy, start))
            first, last = episodes.get(key, (start, end))
            episodes[key] = (first, max(last, end))
    found = [(start, main, thread) for (thread, _), (start, _) in episodes.items()]
    return sorted(found + [(end, thread, main) for (thread, _), (_, end) in episodes.items()])


def call_kind(name: str) -> int:
    """Return the kind of a GPU runtime call, such as a launch or a copy, as an index of ``CALL_KINDS``."""
    short = _SHORT.match(name)
    name = short[1] if short else ""
    return CALL_KINDS.index(_KINDS.get(name) or ("copy" if name.startswith("Memcpy") else "launch"))


# --------------------------------------------------------------------------------------------------- Arrow, no pandas


def _wrap_in_list(rows: Sequence[tuple[Any, ...]] | Mapping[str, npt.NDArray[Any]], type: pa.DataType) -> pa.Array:
    """Make an Arrow column with a single element, which is the list of all ``rows``.

    ``rows`` is a sequence of tuples, or a dictionary from the names of the fields to arrays.
    """
    fields = [*type.value_type]
    columns: list[Any] = [rows[x.name] for x in fields] if isinstance(rows, Mapping) else [*zip(*rows, strict=True)]
    columns = columns or [()] * len(fields)
    arrays = [
        _texts(values) if field.type == _TEXT else _numbers(values, field.type)
        for field, values in zip(fields, columns, strict=True)
    ]
    struct = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.Array.from_buffers(type, 1, [None, _buffer([0, len(columns[0])], np.int32)], children=[struct])


def _numbers(values: Sequence[Any] | npt.NDArray[Any], type: pa.DataType) -> pa.Array:
    dtype = np.float64 if type == _REAL else np.int64 if type == _INT else np.int32
    return pa.Array.from_buffers(type, len(values), [None, _buffer(values, dtype)])


def _texts(values: Sequence[str | None]) -> pa.Array:
    """Convert texts to an Arrow array.

    Arrow cannot hold half of a surrogate pair.  Such a character becomes its JSON escape.
    """
    data = [(x or "").encode("utf-8", "backslashreplace") for x in values]
    present = np.packbits(np.array([x is not None for x in values], dtype=bool), bitorder="little")
    ends = np.cumsum([0, *map(len, data)])
    buffers = [_buffer(present, np.uint8), _buffer(ends, np.int32), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(_TEXT, len(data), buffers)


def _buffer(values: Sequence[Any] | npt.NDArray[Any], dtype: npt.DTypeLike) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values, dtype))
