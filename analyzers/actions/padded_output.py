"""An output layer (a vocabulary) padded to a multiple of 64: aligned rows let the library use its wide kernels.

Every product and every other operator with that size changes.  The added columns are zero weights at first: as in every
model whose vocabulary was padded, the softmax runs over them too, and training makes them improbable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyzers.actions.action import Action, Application, Change
from analyzers.actions.job import Job, Work, mapped
from analyzers.analyzer import once
from logparse.formats.traces.torch.inputs import contiguous_strides
from logparse.model import GemmProblem, Operand, OperatorProblem

MULTIPLE = 64
_LEAST = 256
"""A smaller output layer takes no time worth a change of the model."""
_SIZES = ("m", "n", "k", "lda", "ldb", "ldc", "ldd")


@once
def odd_output(job: Job) -> int | None:
    """The output layer's size that is no multiple of 64 and whose products take most time; None without one.

    y = x·Wᵀ is a column-major product with m = outputs, and A transposed.
    """
    time: dict[int, float] = {}
    for work in job.work:
        p = work.problem
        if not isinstance(p, GemmProblem) or p.trans_a != "T" or p.m is None or p.batch_count != 1:
            continue
        if p.m % MULTIPLE and p.m >= _LEAST:
            time[p.m] = time.get(p.m, 0.0) + (work.us or 0.0) + (work.calls or 1.0) * (p.flops or 0) * 1e-12
    return max(sorted(time), key=lambda size: time[size], default=None)


def padded(size: int) -> int:
    """The next multiple."""
    return -(-size // MULTIPLE) * MULTIPLE


def _change(work: Work, job: Job) -> Change | None:
    size, problem = odd_output(job), work.problem
    if size is None:
        return None
    if isinstance(problem, GemmProblem):
        if problem.members or size not in (problem.m, problem.n, problem.k):
            return None
        grown: dict[str, Any] = {x: padded(size) for x in _SIZES if getattr(problem, x) == size}
        return Change(replace(problem, **grown))
    if not isinstance(problem, OperatorProblem):
        return None
    after = mapped(problem, lambda operand: _grown(operand, size))
    return None if after == problem else Change(after)


def _grown(operand: Operand, size: int) -> Operand:
    if size not in operand.sizes or list(operand.strides) != contiguous_strides(operand.sizes):
        return operand
    sizes = tuple(padded(size) if x == size else x for x in operand.sizes)
    return Operand(operand.dtype, sizes, tuple(contiguous_strides(sizes)))


def _application(job: Job) -> Application | None:
    size = odd_output(job)
    if size is None:
        return None
    return Application(
        line=f"give the output layer {padded(size):,} outputs instead of {size:,}",
        model=(f"model = _padded_output(model, {size}, {padded(size)})",),
        by_hand=f"set the vocabulary in the model's configuration to {padded(size)} (targets stay below {size})",
    )


ACTION = Action(
    name="padded_output",
    kind="program",
    about=f"pad the output layer to a multiple of {MULTIPLE}",
    change=_change,
    application=_application,
    needs="a checkpoint whose output layer (and tied embedding) is padded likewise",
)
