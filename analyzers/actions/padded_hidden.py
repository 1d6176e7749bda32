"""A hidden or intermediate size padded to a multiple of 64: what one linear layer writes and another one reads.

Forward, input and weight gradients change, and so does every other operator with that size (activations, norms,
residual sums), which is charged.  Rows and columns of zeros leave the model's output as it is where activations of zero
are zero, or their columns in the next weight are.  A norm over the size would count the zeros, so there the model must
be trained with the larger size, and no line of Python does it.
"""

from __future__ import annotations

from analyzers.actions.action import Action, Application, Change
from analyzers.actions.job import Job, Work
from analyzers.actions.padded_output import MULTIPLE, costliest_odd, padded, padded_change, reduced
from analyzers.analyzer import once
from logparse.model import GemmProblem, Operand, OperatorProblem

_HELPER = '''
def _padded_hidden(model, size, padded):
    """Linear layers that write or read so many values get rows or columns of zeros; shared weights stay shared."""
    layers = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            layers.append(module)
        elif any(size in x.shape for x in module.parameters(recurse=False)):
            where = "%s (%s)" % (name, type(module).__name__)
            raise ValueError("%s has the size %d too: change it in the model's configuration" % (where, size))
    if not any(x.out_features == size for x in layers) or not any(x.in_features == size for x in layers):
        raise ValueError("no torch.nn.Linear writes %d values that another one reads" % size)
    for module in layers:
        for tensor in module.parameters(recurse=False):
            zeros = tensor.new_zeros([padded if x == size else x for x in tensor.shape])
            zeros[tuple(slice(x) for x in tensor.shape)] = tensor.detach()
            tensor.data = zeros  # the same parameter: an optimizer has it already
        for name in ("in_features", "out_features"):
            if getattr(module, name) == size:
                setattr(module, name, padded)
    return model
'''


@once
def odd_hidden(job: Job) -> int | None:
    """The size that one layer writes and another reads, no multiple of 64, whose products take most time; or None."""
    inner = reduced(job)
    return costliest_odd(job, lambda p: p.m in inner)


def _change(work: Work, job: Job) -> Change | None:
    size, problem = odd_hidden(job), work.problem
    if size is None or (isinstance(problem, GemmProblem) and problem.batch_count != 1):
        return None
    return padded_change(problem, size, lambda operand: True)


def _normalised(job: Job, size: int) -> bool:
    """Whether a norm runs over the size."""
    operators = [x.problem for x in job.work if isinstance(x.problem, OperatorProblem)]
    norms = [x for x in operators if "norm" in x.name]
    return any(isinstance(y, Operand) and y.sizes and y.sizes[-1] == size for x in norms for y in x.inputs)


def _application(job: Job) -> Application | None:
    size = odd_hidden(job)
    if size is None:
        return None
    line = f"give the layers between which {size:,} values lie {padded(size):,} instead"
    by_hand = f"set the hidden or intermediate size in the model's configuration to {padded(size)}"
    if _normalised(job, size):
        return Application(line=f"{by_hand}: a norm runs over it, so it takes a model trained with that size")
    return Application(
        line=line,
        model=(f"model = _padded_hidden(model, {size}, {padded(size)})",),
        helpers=(_HELPER,),
        by_hand=by_hand,
    )


ACTION = Action(
    name="padded_hidden",
    kind="program",
    about=f"pad a size between two linear layers to a multiple of {MULTIPLE}",
    change=_change,
    application=_application,
    needs="a checkpoint that is padded likewise; sizes that the model derives from this one are timed as they are",
)
