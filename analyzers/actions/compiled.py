"""Fewer launches where the GPU waits for the host: torch.compile of the model, alone and with CUDA graphs.

The GPU time that fused kernels save beside that is not timed: no replay runs a whole model.
"""

from __future__ import annotations

from analyzers.actions.action import Action, Application
from analyzers.actions.job import Job


def _application(job: Job, line: str) -> Application | None:
    if not job.is_gpu or job.idle_us is None:
        return None
    return Application(
        line=line,
        model=(line,),
        by_hand="put what repeats into torch.cuda.graph, make the batch larger, or feed the model faster",
    )


COMPILED = Action(
    name="compiled",
    kind="program",
    about="let torch.compile join kernels, so that the host launches fewer",
    change=lambda work, job: None,
    application=lambda job: _application(job, "model.compile()"),
    excludes="compile",
    needs="sizes that do not vary (each new size is compiled again, for seconds to minutes), and a look at the step's "
    "time before and after: on an H200 the steps of four models took from 17% less to 31% more",
    waits=True,
)
GRAPHS = Action(
    name="cuda_graphs",
    kind="program",
    about="let torch.compile record the model's kernels as graphs, each launched at once",
    change=lambda work, job: None,
    application=lambda job: _application(job, 'model.compile(mode="reduce-overhead")'),
    contains=("compiled",),
    excludes="compile",
    needs="sizes that do not vary, and outputs that are not kept from one call to the next (clone them); on an H200 a "
    "step of DenseNet-121 went from 58 to 22 ms",
    waits=True,
)
ALL = (COMPILED, GRAPHS)
