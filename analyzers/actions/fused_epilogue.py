"""Changes that compute the bias, ReLU or GELU after a matrix product in the kernel of the product itself.

The BLAS library can do this in the last part of its kernel, the epilogue. The epilogue writes only its result. That is
enough for the gradients of a bias and of ReLU. But the gradient of GELU needs GELU's input, so in training a GELU
remains a kernel of its own. If the model writes a GELU out as a formula of many kernels, another change replaces them
by one kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzers.actions.action import Action, Application, Change, definitions
from analyzers.actions.job import Job, Work
from analyzers.job.epilogues import Epilogue
from logparse.quoting import Python, python_line

HELPERS = definitions("epilogue")
_LINE = {
    "none": "torch.nn.functional.linear(x, weight, bias) instead of adding the bias after the matrix product",
    "relu": 'apply.linear(x, weight, bias, "relu") instead of relu(linear(x, weight, bias))',
    "gelu": 'apply.linear(x, weight, bias, "gelu") instead of gelu(linear(x, weight, bias))',
}

_ONE_GELU = Application(
    line=(
        'torch.nn.functional.gelu(x, approximate="tanh") instead of the formula that the model writes out (in '
        'transformers: set activation_function or hidden_act to "gelu_pytorch_tanh")'
    ),
    model=(Python("model = use_one_kernel_gelu(model)"),),
    helpers=(definitions("gelu"),),
)


def can_fuse_exactly(tail: Epilogue, job: Job) -> bool:
    """Tell whether the matrix product's own kernel can also compute the bias and activation, with the same result.

    In training this is impossible for GELU, because the gradient of GELU needs GELU's input, which such a kernel does
    not write.
    """
    return not tail.exact and (tail.asked.activation != "gelu" or not job.trains)


def _tanh(tail: Epilogue, job: Job) -> bool:
    """Tell whether to propose a kernel with an approximate GELU although the job computes the exact GELU.

    The answer is False for a job that trains a model, because the results change slightly.
    """
    # The library can fuse a GELU into the matrix product, but only with the tanh approximation.
    return tail.exact and not job.trains


def _to(
    suits: Callable[[Epilogue, Job], bool], solution: Callable[[Epilogue], str]
) -> Callable[[Work, Job], Change | None]:
    """Return a function that gives, for a call, the kernel that replaces a matrix product and the kernels after it.

    * ``suits``: one kernel can do all the work of the call.
    * ``solution``: its name.
    """

    def change(work: Work, job: Job) -> Change | None:
        # None means that the call stays as it is.
        return Change(work.problem, solution(work.tail)) if work.tail and suits(work.tail, job) else None

    return change


def _activations(job: Job, suits: Callable[[Epilogue, Job], bool]) -> list[str]:
    tails = [x.tail for x in job.pairs if x.tail is not None and suits(x.tail, job)]
    return sorted({x.asked.activation or "none" for x in tails})


def _make_fusing_application(
    job: Job, suits: Callable[[Epilogue, Job], bool], approximate: tuple[str, ...]
) -> Application | None:
    found = _activations(job, suits)
    if not found:
        return None
    in_model = found != ["none"]
    return Application(
        line="; ".join(_LINE[x] for x in found),
        model=(python_line(Python("model = fuse_epilogues(model, {})"), approximate),) if in_model else (),
        helpers=(HELPERS,) if in_model else (),
    )


EPILOGUE = Action(
    name="fused_epilogue",
    kind="program",
    about=(
        "compute the bias and the activation in the kernel of the matrix product (its epilogue), not in separate "
        "kernels"
    ),
    change=_to(can_fuse_exactly, lambda tail: tail.in_library),
    application=lambda job: _make_fusing_application(job, can_fuse_exactly, ("tanh",)),
    works=lambda job: job.pairs,
    excludes="epilogue",
)
TANH = Action(
    name="fused_gelu_tanh",
    kind="program",
    about="compute GELU by its tanh approximation in the kernel of the matrix product (its epilogue)",
    change=_to(_tanh, lambda tail: tail.in_library),
    application=lambda job: _make_fusing_application(job, _tanh, ("none", "tanh")),
    works=lambda job: job.pairs,
    excludes="epilogue",
    exact=False,
    needs="a model that tolerates the tanh approximation of GELU, which differs from the exact GELU by up to 5e-4",
)
ONE_KERNEL = Action(
    name="one_kernel_gelu",
    kind="program",
    about=(
        "compute a GELU that the model writes out as a formula in one kernel, and the gradient of this GELU in "
        "another kernel"
    ),
    change=lambda work, job: Change(work.problem),
    application=lambda job: _ONE_GELU if _activations(job, lambda tail, _: tail.form == "written") else None,
    works=lambda job: job.gelus,
    excludes="epilogue",
)
ALL = (EPILOGUE, TANH, ONE_KERNEL)
