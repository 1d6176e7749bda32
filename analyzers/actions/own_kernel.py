"""A user's own kernels (``replay --solution``) in place of the library's products, where they win.

They are put in by ``torch.library`` overrides (``kernel_overrides.py``) for exactly the calls that they were timed on.
A product with ReLU is one call of ``aten::_addmm_activation``, which the model makes once its layers are changed as
``fused_epilogue`` changes them.  An override is Python in every call of its operators: what that costs the host is
timed by the same replay, and the whole of it is taken off the saving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TypeAlias

from analyzers.actions import fused_epilogue
from analyzers.actions.action import Action, Application, Change
from analyzers.actions.job import OPERAND_TYPES, Job, Work
from analyzers.actions.ratio import Ratio
from analyzers.times.action_times import HostCost, HostCosts
from logparse.model import GemmProblem, Problem

NAME = "own_kernel"
LIBRARY = "kernel"
"""Of solutions that are a user's own: ``kernel:package.module:callable``."""
_BEGINS = "# ---- copied into apply.py from here on\n"
TimedChange: TypeAlias = Callable[[Work, Change], "tuple[float, Ratio] | None"]
"""The time now (µs per run) of all calls, and the time of what they become over it; None where one is not timed."""


@dataclass(frozen=True)
class Call:
    """A call of PyTorch's products as ``kernel_overrides.OwnKernels.add`` takes it: sizes are (batch,) n, k, m."""

    operator: str
    sizes: tuple[int, ...]
    dtype: str
    x_strides: tuple[int, ...]
    y_strides: tuple[int, ...]


def call_of(problem: Problem) -> Call | None:
    """The call of PyTorch that computes a problem; None where no override can stand for it, or fields are unknown."""
    if not isinstance(problem, GemmProblem) or problem.members or problem.gradient or problem.aux:
        return None
    p = problem.normal
    operator = _operator(p)
    types = {x for x in (p.a_type, p.b_type, p.d_type) if x is not None}
    if operator is None or len(types) != 1 or not types <= OPERAND_TYPES.keys() or p.batch_mode == "pointer":
        return None
    if p.trans_a not in ("N", "T") or p.trans_b not in ("N", "T"):
        return None
    if p.m is None or p.n is None or p.k is None or p.batch_count is None or p.ldd not in (None, p.m):
        return None
    # A column-major matrix is the row-major one of its transpose: x (n × k) is B, y (k × m) is A.
    lda, ldb = p.lda or (p.m if p.trans_a == "N" else p.k), p.ldb or (p.k if p.trans_b == "N" else p.n)
    x, y = ((ldb, 1) if p.trans_b == "N" else (1, ldb)), ((lda, 1) if p.trans_a == "N" else (1, lda))
    sizes, dtype = (p.n, p.k, p.m), OPERAND_TYPES[types.pop()]
    if p.batch_count == 1:
        return Call(operator, sizes, dtype, x, y)
    if p.stride_a is None or p.stride_b is None or p.stride_d not in (None, p.m * p.n):
        return None
    return Call(operator, (p.batch_count, *sizes), dtype, (p.stride_b, *x), (p.stride_a, *y))


def _operator(p: GemmProblem) -> str | None:
    if p.beta == "nonzero":
        return None
    if p.activation in ("relu", "gelu"):
        return p.activation if p.bias and p.batch_count == 1 else None
    if p.activation not in (None, "none"):
        return None
    if p.batch_count != 1:
        return None if p.bias else "bmm"
    return "addmm" if p.bias else "mm"


def candidates(kernels: Sequence[str]) -> tuple[Action, ...]:
    """For ``replay``: each kernel (``package.module:callable``) in place of every product that it may stand for."""
    return tuple(map(_candidate, kernels))


def _candidate(kernel: str) -> Action:
    solution = f"{LIBRARY}:{kernel}"
    return Action(
        name=solution,
        kind="program",
        about="",
        change=lambda work, job: Change(work.problem, solution),
        application=lambda job: Application(line=""),
        works=lambda job: tuple(_products(job)),
    )


def _products(job: Job) -> Iterator[Work]:
    """Products as PyTorch calls them; first those with a bias and ReLU as one call."""
    for work in (*_pairs(job), *job.work):
        problem = work.problem
        if isinstance(problem, GemmProblem) and problem.bias is None:
            # The addend of an addmm is taken to be a bias, as that of a fused pair is.
            problem = replace(problem, bias=True, bias_type=problem.d_type, beta="zero")
        if call_of(problem) is not None:
            yield replace(work, problem=problem, of=work.of or work.problem.text)


def _pairs(job: Job) -> list[Work]:
    """Products with what follows them, which the library's epilogue can do: one call of ``aten::_addmm_activation``."""
    return [x for x in job.pairs if x.tail and fused_epilogue.exact(x.tail, job)]


def action(job: Job, timed: TimedChange, costs: HostCosts) -> Action | None:
    """The kernels of the run's replays for the products on which they win; None where they win on none.

    A kernel wins where its whole interval lies below the time now, and what its calls cost the host is less than the
    saving.
    """
    winners = _winners(job, timed, costs)
    if not winners:
        return None
    fuses = any(work.tail for work in winners)
    pairs = [x for x in _pairs(job) if x.problem.text not in {y.problem.text for y in winners}] if fuses else []
    own = {work.problem.text: change for work, change in winners.items()}
    epilogue = fused_epilogue.EPILOGUE
    return Action(
        name=NAME,
        kind="program",
        about="let kernels of your own compute the products on which they are faster",
        change=lambda work, job: own.get(work.problem.text) or epilogue.change(work, job),
        application=lambda job: _application(job, winners, fuses=fuses),
        works=lambda job: (*winners, *pairs),
        contains=(epilogue.name,) if fuses else (),
        excludes=epilogue.excludes if fuses else None,
        needs="the modules of the kernels on the job's PYTHONPATH",
        host_us=_host_us(job, winners, costs, lambda x: (x.own_us, x.other_us)),
        least_host_us=_host_us(job, winners, costs, lambda x: (x.least_own_us, x.least_other_us)),
    )


def _winners(job: Job, timed: TimedChange, costs: HostCosts) -> dict[Work, Change]:
    """The best kernel of each product.  Where a pair wins all pairs are fused, so that their products do not stay."""
    found: dict[Work, Change] = {}
    fused: set[str] = set()
    for work in _products(job):
        best = None if work.tail is None and work.of in fused else _best(work, timed, costs)
        if best is not None:
            found[work] = best
            fused |= {x.of for x in _pairs(job)} if work.tail else set()
    return found


def _best(work: Work, timed: TimedChange, costs: HostCosts) -> Change | None:
    best: tuple[float, Change] | None = None
    for (problem, solution), cost in costs.items():
        change = Change(work.problem, solution)
        found = timed(work, change) if problem == work.problem.text else None
        if found is None or found[1].high >= 1:
            continue
        saved_us = found[0] * (1 - found[1].value) - (work.calls or 1.0) * cost.own_us
        if saved_us > (best[0] if best else 0.0):
            best = saved_us, change
    return best[1] if best else None


def _host_us(
    job: Job, winners: Mapping[Work, Change], costs: HostCosts, of: Callable[[HostCost], tuple[float, float]]
) -> float:
    """What the overrides cost the host per run, µs: in the calls that they compute, and in every other product.

    ``of`` returns both for one call.
    """
    timed = {work: of(costs[work.problem.text, change.solution]) for work, change in winners.items()}
    own = sum((work.calls or 1.0) * own_us for work, (own_us, _) in timed.items())
    covered = sum(work.calls or 1.0 for work in winners)
    products = sum(work.calls or 1.0 for work in job.work if isinstance(work.problem, GemmProblem))
    return own + max(0.0, products - covered) * max(other_us for _, other_us in timed.values())


def _application(job: Job, winners: Mapping[Work, Change], *, fuses: bool) -> Application:
    entries = [_entry(work, change) for work, change in winners.items()]
    key = "CPU" if job.backend == "CPU" else "CUDA"  # ROCm's too
    count = f"{len(entries):,} {'product' if len(entries) == 1 else 'products'}"
    how = f'{count} by torch.library: apply.settings("{NAME}")'
    epilogue = fused_epilogue.EPILOGUE.application(job) if fuses else None
    return Application(
        line=f'{how}; model = apply.model(model, "{NAME}"), or {epilogue.line}' if epilogue else how,
        settings=(f"own_kernels({key!r}, (", *(f"    {entry!r}," for entry in entries), "))"),
        model=epilogue.model if epilogue else (),
        helpers=(_source(), *(epilogue.helpers if epilogue else ())),
    )


def _entry(work: Work, change: Change) -> tuple[object, ...]:
    call = call_of(work.problem)
    assert call is not None
    return change.solution.removeprefix(f"{LIBRARY}:"), *astuple(call)


def _source() -> str:
    text = Path(__file__).with_name("kernel_overrides.py").read_text(encoding="utf-8")
    return text.partition(_BEGINS)[2].strip()
