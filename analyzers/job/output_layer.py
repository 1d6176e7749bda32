"""Find a job's output layer if its number of outputs makes matrix products slow, such as GPT-2's vocabulary of 50,257.

A number of outputs that is no multiple of 64 is called odd here. If its bytes are no multiple of 16, the rows of the
layer begin at addresses that are not aligned, and the library cannot use its wide kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from logparse.model import GemmProblem, OperatorProblem, Problem

MULTIPLE = 64
_LEAST = 256
"""A layer with fewer outputs than this is not padded, because the gain is not worth a change of the model."""
_PER_FLOP = 1e-12
"""Weight of a floating-point operation if the time of a call is unknown."""


def round_up_size(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


def is_layer(problem: Problem) -> bool:
    """Tell whether a matrix product may be the forward pass y = x·Wᵀ of a linear layer. A batched product is not."""
    # In the column-major form of the libraries, such a product has m = outputs, k = inputs and a transposed A.
    return isinstance(problem, GemmProblem) and problem.trans_a == "T" and problem.batch_count == 1


def odd_output(work: Sequence[tuple[Problem, float | None, float | None]]) -> int | None:
    """Return the number of outputs of the job's output layer, but only if it is no multiple of 64. Else None.

    ``work`` has the operators of the job: each problem with its number of calls and the time of all calls in µs. None
    is an unknown number or time. The layer is found by its matrix products:

    * If several sizes are possible, the size whose products take the most time is returned.
    * A size that is also the inner size (k) of another layer's product is left out, because such outputs are the inputs
      of that layer.
    * A size of three times the layer's inputs is left out, because such outputs are queries, keys and values, whose
      heads cannot be padded.
    * If a log-softmax runs over the outputs of some layers, only these layers are considered.
    """
    layers = [(p, calls, us) for p, calls, us in work if isinstance(p, GemmProblem) and is_layer(p) and p.m is not None]
    inner = {p.k for p, _, _ in layers}
    classes = _classes([p for p, _, _ in work], {p.m for p, _, _ in layers})
    time: dict[int, float] = {}
    for p, calls, us in layers:
        if p.m is None or p.m % MULTIPLE == 0 or p.m < _LEAST:
            continue
        if p.m not in inner and p.m != 3 * (p.k or 0) and (not classes or p.m in classes):
            time[p.m] = time.get(p.m, 0.0) + (us or 0.0) + (calls or 1.0) * (p.flops or 0) * _PER_FLOP
    return max(sorted(time), key=lambda size: time[size], default=None)


def _classes(problems: Sequence[Problem], outputs: Collection[int | None]) -> frozenset[int]:
    """Find the layers whose outputs go into a log-softmax, as in the loss of a classifier. Returns their sizes.

    The size of a layer is its number of outputs.
    """
    operators = [p for p in problems if isinstance(p, OperatorProblem)]
    tensors = [x for p in operators if p.name == "aten::_log_softmax" for x in p.tensors[:1]]
    return frozenset(x.sizes[-1] for x in tensors if x.sizes and x.sizes[-1] in outputs)
