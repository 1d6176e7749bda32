"""Find out why the GPU was idle.  Each gap between kernels gets a class that says what the host did meanwhile.

The first class in this table that fits is taken:

===================  =============================================================================================
first                The gap lies before the first kernel of the marked steps.
queued               The next kernel had been launched before the gap began: the device is late, or waits.
data loading         A batch of a loader was under way for half of the gap or more.
loading code         Calls that load or compile the code of kernels took half of the gap or more.  Such calls are
                     ``hipModuleLoadData`` and others of its kind, ``hiprtcCompileProgram``, and annotations of
                     torch.compile (``async_compile.wait (dynamo_timed)``; pytorch ``torch/_dynamo/utils.py``).
synchronisation      A call that waits for the device, or that copies, took half of the gap or more, or was under way
                     when the gap began.
launching            Operators or calls of the runtime took half of the gap or more.
nothing              Less than that is recorded of the host: its own Python code, or another process.
===================  =============================================================================================

The facts (for several devices the mean)::

    gpu_idle_us    {"launching": 812.5, …}: the idle time of each class, which together are window − busy
    gpu_gaps       [{"us": 463295.4, "why": "synchronisation", "operator": "aten::copy_",
                     "call": "hipMemcpyWithStream", "annotation": "step[DECODE bs=32]"}, …]: the longest gaps
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.busy import Gaps
from logparse.libraries.torch_profiler.coverage import Coverage, Floats
from logparse.libraries.torch_profiler.timeline import CALL_KINDS, MARK, call_kind
from logparse.model import Fact

if TYPE_CHECKING:
    from logparse.libraries.torch_profiler.records import Columns

Why: TypeAlias = Literal[
    "first", "queued", "data loading", "loading code", "synchronisation", "launching", "nothing"
]  # fmt: skip
WHYS: tuple[Why, ...] = get_args(Why)

_CODE = regex(
    r"(?:hip|cuda|cu)(?:Module|Library)(?:Load|GetFunction|GetKernel)|(?:hip|nv)rtc(?:Compile|Link)|.*\(dynamo_timed\)"
)
_BLOCKING = frozenset(CALL_KINDS.index(x) for x in ("device", "stream", "event", "copy"))
_WAITED_US = 20.0
"""The minimum duration of a call that really waited for the GPU, in µs.

A shorter call of a function that can wait found nothing to wait for.
"""
_HALF = 0.5
_AT_BEGIN_US = 1.0
_LISTED = 3


class HostTime:
    """Tells what the host (CPU) was doing at any time, from the operators, runtime calls and marks of a trace."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        start, us = np.array(columns.op_start), np.array(columns.op_us)
        call_start, call_us = np.array(columns.call_start), np.array(columns.call_us)
        with np.errstate(invalid="ignore"):
            self._ops = np.flatnonzero(np.isfinite(start) & (us > 0))
            self._calls = np.flatnonzero(np.isfinite(call_start) & (call_us > 0))
        marks = np.array([MARK.match(columns.names[name]) is not None for name, _, _ in columns.kinds], dtype=bool)
        kinds = np.array(columns.op_kind, dtype=np.int64)[self._ops]
        self._ops = self._ops[~marks[kinds]] if len(kinds) else self._ops
        self._op_start, self._op_end = start[self._ops], (start + us)[self._ops]
        self._call_start, self._call_end = call_start[self._calls], (call_start + call_us)[self._calls]
        known = {i: call_kind(columns.names[i]) in _BLOCKING for i in set(columns.call_name)}
        blocks = np.array([known[columns.call_name[i]] for i in self._calls.tolist()], dtype=bool)
        blocks &= self._call_end - self._call_start >= _WAITED_US
        loads = [(x[1], x[1] + x[2]) for x in columns.marks if (found := MARK.match(x[0])) and found[2]]
        load_start, load_end = (np.array([x[i] for x in loads], dtype=np.float64) for i in (0, 1))
        self._loads = Coverage(load_start, load_end)
        self._code = Coverage(*self._loading_code())
        self._blocked = Coverage(self._call_start[blocks], self._call_end[blocks])
        self._works = Coverage(
            np.r_[self._op_start, self._call_start], np.r_[self._op_end, self._call_end]
        )  # the operators of a loader lie within the loader's mark

    def _loading_code(self) -> tuple[Floats, Floats]:
        """Return when the host loaded or compiled the code of kernels: the beginnings and the ends, in µs."""
        columns = self._columns
        code = np.array([_CODE.match(name) is not None for name in columns.names], dtype=bool)
        called, noted = (np.array(x, dtype=np.int64) for x in (columns.call_name, columns.annotation_name))
        calls, notes = self._calls[code[called[self._calls]]], np.flatnonzero(code[noted])
        start = np.r_[np.array(columns.call_start)[calls], np.array(columns.annotation_start)[notes]]
        return start, start + np.r_[np.array(columns.call_us)[calls], np.array(columns.annotation_us)[notes]]

    def why(self, gaps: Gaps) -> npt.NDArray[np.int64]:
        """Return the reason for each idle time of the GPU, for example ``data loading``.

        The reasons are indices into ``WHYS``.
        """
        begin, end = gaps.begin, gaps.end
        half = _HALF * (end - begin)
        at_begin = self._blocked.within(begin, np.minimum(begin + _AT_BEGIN_US, end)) > 0
        with np.errstate(invalid="ignore"):
            queued = gaps.asked <= begin
        fits = [
            gaps.first,
            queued,
            self._loads.within(begin, end) >= half,
            self._code.within(begin, end) >= half,
            at_begin | (self._blocked.within(begin, end) >= half),
            self._works.within(begin, end) >= half,
            np.ones(len(begin), dtype=bool),
        ]
        found: npt.NDArray[np.int64] = np.argmax(np.stack(fits), axis=0)
        return found

    def above(self, begin: float, end: float) -> dict[str, str]:
        """Tell what the CPU was doing while the GPU was idle from ``begin`` to ``end``.

        Returns the names of the outermost operator, the longest runtime call and the innermost annotation, if they
        cover at least half of the time.
        """
        columns, half = self._columns, _HALF * (end - begin)
        out = {}
        over = np.flatnonzero(np.minimum(self._op_end, end) - np.maximum(self._op_start, begin) >= half)
        if len(over):
            op = over[np.argmax((self._op_end - self._op_start)[over])]
            out["operator"] = columns.names[columns.kinds[columns.op_kind[self._ops[op]]][0]]
        shared = np.minimum(self._call_end, end) - np.maximum(self._call_start, begin)
        if len(shared) and shared.max() >= half:
            out["call"] = columns.names[columns.call_name[self._calls[int(np.argmax(shared))]]]
        start, us = np.array(columns.annotation_start), np.array(columns.annotation_us)
        around = np.flatnonzero(np.minimum(start + us, end) - np.maximum(start, begin) >= half)
        if len(around):
            out["annotation"] = columns.names[columns.annotation_name[around[int(np.argmin(us[around]))]]]
        return out


def idle_facts(each: Sequence[Gaps], host: HostTime) -> Iterator[Fact]:
    """State for how long and for which reasons the GPU was idle, and list the longest idle times.

    ``each`` holds the idle times (gaps) of each GPU.  The total for a reason is the average over the GPUs.
    """
    sums: dict[str, float] = defaultdict(float)
    longest: list[tuple[float, float, float, str]] = []
    for gaps in each:
        whys = host.why(gaps)
        for i, us in enumerate(np.bincount(whys, gaps.us, len(WHYS)).tolist()):
            sums[WHYS[i]] += us / len(each)
        order = np.argsort(-gaps.us, kind="stable")[:_LISTED].tolist()
        longest += [
            (float(gaps.us[i]), float(gaps.begin[i]), float(gaps.end[i]), WHYS[whys[i]])
            for i in order
            if gaps.us[i] > 0
        ]
    known = {why: round(us, 3) for why, us in sums.items() if us > 0}
    if not known:
        return
    yield Fact("gpu_idle_us", json.dumps(known))
    longest.sort(key=lambda x: (-x[0], x[1]))
    listed = [{"us": round(us, 3), "why": why} | host.above(begin, end) for us, begin, end, why in longest[:_LISTED]]
    yield Fact("gpu_gaps", json.dumps(listed))
