"""The change that pads an output layer (for example a vocabulary) to a multiple of 64 outputs.

The padding aligns the layer's rows, so that the library can use its wide kernels. It changes the matrix products of the
layer and the operators that read or write its weights.

The padded layer still returns only its own outputs, as a view of the padded result. So the operators after the layer (a
bias of the model's own, a loss that knows the vocabulary, sampling) stay as before. The view has a cost that is added:
PyTorch copies the gradient of the view into a tensor of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from analyzers.actions.action import Action, Application, Change, definitions
from analyzers.actions.job import OPERAND_TYPES, Job, Work, map_operands
from analyzers.evidence.tables import cached_per_run
from analyzers.job import output_layer
from analyzers.job.output_layer import MULTIPLE, is_layer, round_up_size
from logparse.libraries.torch_profiler.inputs import contiguous_strides
from logparse.model import GemmProblem, Operand, OperatorProblem, Problem
from logparse.quoting import Python, python_line

_SIZES = ("m", "n", "k", "lda", "ldb", "ldc", "ldd")


@cached_per_run
def odd_output(job: Job) -> int | None:
    """Return the number of outputs of the job's output layer, but only if it is no multiple of 64. Else None."""
    return output_layer.odd_output([(x.problem, x.calls, x.us) for x in job.work])


def _change(work: Work, job: Job) -> Change | None:
    size, problem = odd_output(job), work.problem
    if size is None:
        return None
    if isinstance(problem, OperatorProblem) and (read := _reads(problem, job, size)) is not None:
        return Change(map_operands(problem, lambda operand: _view(operand) if operand is read else operand))
    return _padded_change(problem, size)


def _reads(problem: OperatorProblem, job: Job, size: int) -> Operand | None:
    """Find out whether an operator reads the output of a layer that gets padding, and return the tensor that it reads.

    Padding makes the output of a matrix product larger, so operators that read the output become slower. Returns None
    if the operator does not seem to read it.

    * ``size``: the number of outputs of the layer, which is the last dimension of the tensor.
    * Only softmax, log softmax and copies to another type are considered.
    * The tensor is recognised by its type, its last dimension, and its contiguous layout.
    """
    read = {"aten::copy_": slice(1, 2), "aten::_log_softmax": slice(0, 1), "aten::_softmax": slice(0, 1)}
    types = {OPERAND_TYPES.get(x.d_type or "") for x in job.gemms if is_layer(x) and x.m == size}
    for operand in problem.tensors[read.get(problem.name, slice(0))]:
        cast = problem.name != "aten::copy_" or operand.dtype != problem.tensors[0].dtype
        contiguous = list(operand.strides) == contiguous_strides(operand.sizes)
        if cast and contiguous and operand.dtype in types and operand.sizes[1:][-1:] == (size,):
            return operand
    return None


def _view(operand: Operand) -> Operand:
    *rows, size = operand.sizes
    return Operand(operand.dtype, operand.sizes, tuple(contiguous_strides((*rows, round_up_size(size)))))


def _padded_change(problem: Problem, size: int) -> Change | None:
    """Return the operator as it is after a layer's number of outputs (``size``) was padded. None if nothing changes."""
    if isinstance(problem, GemmProblem):
        if problem.members or size not in (problem.m, problem.n, problem.k):
            return None
        # Each of m, n and k that equals the number of outputs is replaced.
        grown: dict[str, Any] = {x: round_up_size(size) for x in _SIZES if getattr(problem, x) == size}
        return Change(replace(problem, **grown))
    if not isinstance(problem, OperatorProblem):
        return None
    # In other operators, only the first dimension of a tensor is replaced.
    after = map_operands(
        problem, lambda operand: _pad_operand(operand, size) if operand.sizes[:1] == (size,) else operand
    )
    return None if after == problem else Change(after)


def _pad_operand(operand: Operand, size: int) -> Operand:
    if size not in operand.sizes or list(operand.strides) != contiguous_strides(operand.sizes):
        return operand
    sizes = tuple(round_up_size(size) if x == size else x for x in operand.sizes)
    return Operand(operand.dtype, sizes, tuple(contiguous_strides(sizes)))


def _gradients(job: Job) -> Iterator[Work]:
    """Yield the additional kernels that a linear layer needs in the backward pass if its outputs are padded.

    Source: PyTorch's ``slice_backward`` (aten/src/ATen/native/TensorShape.cpp).
    """
    size = odd_output(job) if job.trains else None
    if size is None:
        return
    for work in job.work:
        p = work.problem
        if not isinstance(p, GemmProblem) or not is_layer(p) or p.m != size or p.n is None:
            continue
        if (dtype := OPERAND_TYPES.get(p.d_type or "")) is not None:
            # The padded layer returns a view of its outputs. The gradient of a view needs a fill with zeros and a copy,
            # for each matrix product of the layer.
            wide = round_up_size(size)
            whole = Operand(dtype, (p.n, wide), (wide, 1))
            view, source = (Operand(dtype, (p.n, size), (step, 1)) for step in (wide, size))
            yield Work(problem=OperatorProblem("aten::fill_", (whole, "0")), calls=work.calls, us=None)
            yield Work(problem=OperatorProblem("aten::copy_", (view, source, "False")), calls=work.calls, us=None)


def _application(job: Job) -> Application | None:
    size = odd_output(job)
    if size is None:
        return None
    return Application(
        line=f"compute {round_up_size(size):,} outputs in the output layer, and return only the first {size:,}",
        model=(python_line(Python("model = pad_output(model, {}, {})"), size, round_up_size(size)),),
        helpers=(definitions("padding"),),
        by_hand=(
            f"set the vocabulary size in the model's configuration to {round_up_size(size)} (targets stay below "
            f"{size}). Unlike with pad_output, the softmax then also runs over the added outputs, and PyTorch need not "
            "copy the gradient of the outputs"
        ),
    )


ACTION = Action(
    name="padded_output",
    kind="program",
    about=f"pad the output layer to a multiple of {MULTIPLE} outputs",
    change=_change,
    application=_application,
    added=lambda job: tuple(_gradients(job)),
    needs=(
        "a program that loads its checkpoint first and pads the output layer afterwards. Checkpoints that are saved "
        "later contain the padded layer (and the embedding that shares its weight)"
    ),
)
