"""Find a GPU that waits for the host, so that faster kernels may not make a step shorter.

The busy share is (time in which at least one kernel runs) / (time of the trace). If the trace marks steps, only the
time of the steps is taken (``logparse/libraries/torch_profiler/busy.py``), or the time that they take without the
profiler if it is known. The finding is about the run. It is shown before everything else, because a faster kernel only
makes the GPU wait longer if the host is the limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from analyzers.evidence.joins import launches_graphs
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import WINDOW
from analyzers.findings.finding import Analyzer
from analyzers.job.gpu_time import GpuTime, gpu_time
from logparse.model import Advise, Evidence, Finding
from logparse.text import duration

NAME = "host-bound"
GRAPHS = (
    "Reduce the host's work per kernel: first try torch.compile(mode='reduce-overhead'), which uses CUDA graphs, or "
    "torch.cuda.graph for repeated work. Then try a larger batch, or a data loader with workers and pinned memory. "
    "Look for calls that make the host wait for the GPU (.item(), .cpu(), printing)."
)
BEYOND_GRAPHS = (
    "The job already launches graphs, and the GPU is idle between them. Batch more requests or tokens per launch, "
    "and look at what the host does between two launches (scheduling, sampling, synchronisation)."
)
LOADER = (
    "Load data faster: use more workers of the data loader (num_workers, persistent_workers, prefetch_factor) and "
    "pinned memory, or do less work per sample: decode and resize once, augment on the GPU."
)
WAIT = (
    "Look at the code that waits or copies while the GPU is idle (.item(), .cpu(), a copy without non_blocking, "
    "synchronize()). Move this code out of the step, or copy without waiting, from and to pinned memory."
)
CODE = (
    "The host loaded or compiled the code of kernels, which it does at the first call of each kernel. Warm the job up "
    "before you trace or time it. Keep the caches of compiled kernels between starts (TORCHINDUCTOR_CACHE_DIR, "
    "TRITON_CACHE_DIR, MIOPEN_CUSTOM_CACHE_DIR)."
)
PYTHON = (
    "The host runs no operator in most of the idle time. Look with a Python profiler at what the program does "
    "between two operators (Python code, scheduling of requests, logging, another process that takes the CPU)."
)
FIRST = (
    "The first kernel of the step comes late. Look at what the host does before this kernel (loading and preparing "
    "the batch, logging, a checkpoint, scheduling of requests)."
)
QUEUED = (
    "The GPU did not begin work that was already launched. Look at what its stream waits for (another stream, a "
    "collective, another process on the GPU)."
)
_LOADS = "change the data loader: more workers, less work per sample"
WORDS: Mapping[str, tuple[str, str, str]] = {
    "launching": (
        "while the host launched kernels",
        "change the program: first torch.compile(mode='reduce-overhead'), then a larger batch",
        GRAPHS,
    ),
    "synchronisation": ("while the host waited or copied data", "change the code that waits or copies", WAIT),
    "data loading": ("while a batch was loaded", _LOADS, LOADER),
    "loading code": (
        "while code of kernels was loaded or compiled",
        "warm up, and keep caches of compiled kernels",
        CODE,
    ),
    "nothing": ("while the host ran no operator", "change the Python code between operators", PYTHON),
    "first": ("before the first kernel", "change the code that runs before the first kernel", FIRST),
    "queued": ("with launched work waiting", "look at what the GPU's streams wait for", QUEUED),
}
"""Maps each cause of idle time to three texts: when the GPU was idle, what to change, and the advice.

The causes come from ``logparse/libraries/torch_profiler/gaps.py``.
"""
_IDLE = "is idle in the rest"
_WORTH = 0.01
"""Idle time is reported if it is at least this fraction of the trace's time (0 to 1)."""
_FEW = 0.05
"""A cause of idle time is only mentioned if it explains at least this fraction of the idle time (0 to 1)."""


def of_data(remark: Finding, time: GpuTime | None, share: float) -> Finding:
    """Rewrite the remark that the GPU is often idle, after a simulation showed that it waits for the data loader.

    The new text advises to load data sooner. It claims only the time that the step waits for data. ``share`` is the
    fraction of the step (0 to 1) that the simulation attributes to data loading.
    """
    # Without the simulation, the remark says that the GPU waits for kernel launches.
    idle = time.idle_us if time is not None else None
    most, message = remark.evidence.at_most_us, remark.message.replace(_IDLE, "waits for data in the rest")
    if time is not None and idle and time.window_us and share * time.window_us < (1 - _FEW) * idle:
        loads = share * time.window_us
        each = f" per {time.word}" if time.steps else ""
        part = f"is idle in the rest, {duration(loads / (time.steps or 1.0))}{each} of it because it waits for data"
        message = remark.message.replace(_IDLE, part)
        most = None if most is None else min(most, loads)
    remedy = Advise("feed the GPU with data sooner", _LOADS)
    return replace(
        remark, message=message, evidence=replace(remark.evidence, at_most_us=most), remedy=remedy, advice=LOADER
    )


def changes(time: GpuTime) -> str:
    """Tell in a few words what to change so that the GPU waits less, like "the loader: workers, work per sample"."""
    single = time.gaps.single if time.gaps else None
    # A single gap is described if it is so long that the rest does not matter.
    if single is not None and _at_most_us(time) is None:
        return f"look at the gap of {duration(single.us)}{single.place}"
    # The cause of most of the idle time decides.
    return WORDS[_main(time)][1]


def _main(time: GpuTime) -> str:
    """Return the cause of most of the idle time, without a single long gap if only the rest is reported."""
    gaps = time.gaps
    if gaps is None:
        return "launching"
    rest = gaps.rest if _at_most_us(time) is not None else {}
    return max(rest, key=lambda x: (rest[x], x), default=gaps.main)


def _at_most_us(time: GpuTime) -> float | None:
    """Return how much of the GPU's idle time could be saved at most, µs. None if it is too little to report.

    If one idle gap is exceptionally long, it is subtracted, because it may not happen again.
    """
    single = time.gaps.single if time.gaps else None
    if single is None or time.idle_us is None:
        return time.idle_us
    rest = max(time.idle_us - single.us, 0.0)
    return rest if rest >= _WORTH * (time.window_us or 0.0) else None


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Report that the GPU often waits for the host, if that is the case.

    Nothing is reported without a trace that shows how long the steps take.
    """
    time = gpu_time(tables, settings.steps)
    share = time.busy_share if time else None
    launches = sum(x.kernels for x in time.parts) if time else 0  # 0 for a trace whose kernels no row counts.
    if time is None or share is None or not time.waits or not launches:
        return []
    return [
        Finding(
            analyzer=NAME,
            message=_message(time, share, launches),
            evidence=Evidence(at_most_us=_at_most_us(time), waits_for="host", details={"busy_share": share}),
            remedy=Advise("relieve the host (CPU)", changes(time)),
            advice=_advice(time, launches_graphs(tables)),
        )
    ]


def _advice(time: GpuTime, graphs: bool) -> str:
    """Return the advice for the cause that explains most of the GPU's idle time.

    A job that already uses CUDA graphs is not advised to use them.
    """
    why = _main(time)
    return BEYOND_GRAPHS if graphs and why == "launching" else WORDS[why][2]


def why_idle(time: GpuTime) -> str:
    """Return sentences for the user about when the GPU was idle, and where its longest gap is. Empty if unknown."""
    gaps, per = time.gaps, time.steps or 1.0
    if gaps is None or not gaps.longest:
        return ""
    total = math.fsum(gaps.us.values())
    shown = sorted((why for why in gaps.us if gaps.us[why] >= _FEW * total), key=lambda x: -gaps.us[x])
    parts = ", ".join(f"{duration(gaps.us[why] / per)} {WORDS[why][0]}" for why in shown)
    longest, single = gaps.longest[0], gaps.single
    one = " No other gap is similar. Such a gap may not happen again, so no saving is estimated." if single else ""
    return f" It is idle {parts}; the longest gap is {duration(longest.us)}{longest.place}.{one}"


def _message(time: GpuTime, share: float, launches: int) -> str:
    steps = time.steps or 1.0
    each = f" per {time.word}" if time.steps else ""
    unmarked = "" if time.steps else " The trace marks no steps, so pauses between steps count as waiting."
    # Without the profiler, the host may be so fast that less GPU time does make a step faster.
    little = "" if time.profiled else f": less GPU time may not make the {time.word} faster"
    profiled, of = "", "time"
    if time.profiled:
        of = "time with the profiler"
        timed = f"time a {time.word} without the profiler first (`logparse capture --trace` does this)"
        timed = (
            "name the function whose calls are timed without the profiler (`logparse capture --unit`)"
            if time.word == WINDOW
            else timed
        )
        profiled = f" The profiler slows the host: {timed}."
    return (
        f"the GPU runs kernels in {share:.1%} of the {of} ({duration((time.busy_us or 0.0) / steps)} of "
        f"{duration((time.window_us or 0.0) / steps)}{each}) and {_IDLE}{little}. "
        f"{launches / steps:,.0f} kernels{each} take {time.kernels_us / launches:,.1f} µs "
        f"each on average.{why_idle(time)}{unmarked}{profiled}"
    )


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "a GPU that waits for the host (CPU): in much of a step's time it runs no kernel. The step's time is the one "
        "without the profiler, if `tune` or `capture --trace` measured it. Otherwise it is the time of the steps that "
        "the trace marks. The finding states [why the GPU waits](#which-traces-are-the-job), and where it waits longest"
    ),
    worth="no saving is stated, because less GPU time may not make the step faster",
    find=find,
    place=1,
)
