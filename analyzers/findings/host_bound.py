"""A GPU that waits for the host: less GPU time may not show in the step.

The busy share is the union of the kernels in a trace over its window, the marked steps where there are any
(``logparse/libraries/torch_profiler/busy.py``), or over the time that these steps take without the profiler, if that is
known.  The finding is about the run and is shown before everything else: where the host is the limit, a faster kernel
only makes the GPU wait longer.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    "Let the host launch less: torch.compile(mode='reduce-overhead') or CUDA graphs (torch.cuda.graph) for what "
    "repeats, a larger batch, a data loader with workers and pinned memory; look for synchronisation (.item(), .cpu(), "
    "printing)."
)
BEYOND_GRAPHS = (
    "Graphs are launched already, the gaps lie between them: batch more requests or tokens per launch, and look at "
    "what the host does between two launches (scheduling, sampling, synchronisation)."
)
LOADER = (
    "Let data arrive sooner: more workers of the loader (num_workers, persistent_workers, prefetch_factor) and pinned "
    "memory, or less work for each sample: decode and resize once, augment on the GPU."
)
_WAITS = "waits for the host"


def of_data(remark: Finding) -> Finding:
    """The remark of a step that waits for its data, as its simulation shows, and not for what launches kernels."""
    message = remark.message.replace(_WAITS, "waits for data")
    remedy = Advise("feed the GPU with data sooner", "the loader: workers, what each does")
    return replace(remark, message=message, remedy=remedy, advice=LOADER)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding, or none: without a trace's window nothing is known."""
    time = gpu_time(tables)
    share = time.busy_share if time else None
    launches = sum(x.kernels for x in time.parts) if time else 0  # 0: a trace whose kernels no row counts
    if time is None or share is None or not time.waits or not launches:
        return []
    return [
        Finding(
            analyzer=NAME,
            message=_message(time, share, launches),
            evidence=Evidence(at_most_us=time.idle_us, waits_for="host", details={"busy_share": share}),
            remedy=Advise("keep the GPU busy", "the program: CUDA graphs, batch, loader"),
            advice=BEYOND_GRAPHS if launches_graphs(tables) else GRAPHS,
        )
    ]


def _message(time: GpuTime, share: float, launches: int) -> str:
    steps = time.steps or 1.0
    each = f" per {time.word}" if time.steps else ""
    unmarked = "" if time.steps else " No steps are marked: pauses between requests count as waiting."
    profiled = ""
    if time.profiled:
        timed = f"time a {time.word} without it first (`logparse capture --trace` does)"
        timed = "name what to time without it (`logparse capture --unit`)" if time.word == WINDOW else timed
        profiled = f" The profiler slows the host: {timed}."
    return (
        f"the GPU runs kernels in {share:.1%} of the time ({duration((time.busy_us or 0.0) / steps)} of "
        f"{duration((time.window_us or 0.0) / steps)}{each}) and {_WAITS} in the rest: less GPU time may "
        f"not show in the {time.word}. {launches / steps:,.0f} kernels{each} take {time.kernels_us / launches:,.1f} µs "
        f"each on average.{unmarked}{profiled}"
    )


ANALYZER = Analyzer(name=NAME, about="GPUs that wait for the host, by the gaps between a trace's kernels", find=find)
