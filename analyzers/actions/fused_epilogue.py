"""Products with what follows them: a bias, ReLU or GELU in the library's epilogue.

The epilogue writes only its result.  That is all that the gradient of a bias and of ReLU needs; that of GELU needs its
input, so in training a GELU stays a kernel of its own; one that is written out as many kernels becomes one.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzers.actions.action import Action, Application, Change
from analyzers.actions.job import Job, Work
from analyzers.job.epilogues import Epilogue
from logparse.quoting import Python, python_line

HELPERS = Python('''
class _Relu(torch.autograd.Function):
    """ReLU of a linear layer in the epilogue of its product; the gradient needs the result alone."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        out = torch._addmm_activation(bias, x, weight.t())
        ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, out = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        return grad @ weight if to_x else None, grad.t() @ x if to_weight else None, grad.sum(0) if to_bias else None


def linear(x, weight, bias=None, activation="relu"):
    """A linear layer with ReLU or GELU (tanh) in the epilogue of its product; GELU there only without a gradient."""
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (x, weight, bias))
    if activation == "gelu" and needs_grad:
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias), approximate="tanh")
    if torch.is_autocast_enabled(x.device.type):
        x, weight, bias = (t.to(torch.get_autocast_dtype(x.device.type)) for t in (x, weight, bias))
    rows = x.reshape(-1, x.shape[-1])
    if activation == "gelu":
        out = torch._addmm_activation(bias, rows, weight.t(), use_gelu=True)
    else:
        out = _Relu.apply(rows, weight, bias)
    return out.reshape(*x.shape[:-1], -1)


class _LinearRelu(torch.nn.Linear):
    def forward(self, x):
        return linear(x, self.weight, self.bias, "relu")


class _LinearGelu(torch.nn.Linear):
    def forward(self, x):
        return linear(x, self.weight, self.bias, "gelu")


def _fused(model, approximate):
    """Linear layers that a torch.nn.Sequential holds right before a ReLU, or a GELU of these forms."""
    import copy

    changed = 0
    for parent in [x for x in model.modules() if isinstance(x, torch.nn.Sequential)]:
        children = list(parent._modules.items())  # named_children leaves out a module that comes again
        for (layer, first), (name, second) in zip(children, children[1:]):
            gelu = isinstance(second, torch.nn.GELU) and second.approximate in approximate
            if type(first) is torch.nn.Linear and (gelu or isinstance(second, torch.nn.ReLU)):
                fused = copy.copy(first)  # of the same parameters; another use of the layer stays as it is
                fused.__class__ = _LinearGelu if gelu else _LinearRelu
                parent._modules[layer], parent._modules[name] = fused, torch.nn.Identity()
                changed += 1
    if not changed:
        import warnings

        warnings.warn("no torch.nn.Sequential holds a Linear and its activation: call apply.linear in the model")
    return model
''')
_LINE = {
    "none": "torch.nn.functional.linear(x, weight, bias) instead of an addition after the product",
    "relu": 'apply.linear(x, weight, bias, "relu") instead of relu(linear(x, weight, bias))',
    "gelu": 'apply.linear(x, weight, bias, "gelu") instead of gelu(linear(x, weight, bias))',
}

_GELU_HELPER = Python('''
def _one_kernel_gelu(model):
    """Modules of transformers that write GELU's tanh approximation out become the one kernel that computes it."""
    written, changed = ("NewGELUActivation", "FastGELUActivation"), 0
    for parent in list(model.modules()):
        for name, module in list(parent._modules.items()):
            if type(module).__name__ in written:
                parent._modules[name] = torch.nn.GELU(approximate="tanh")
                changed += 1
    if not changed:
        import warnings

        warnings.warn("no module that writes GELU out: change the formula in the model")
    return model
''')
_ONE_GELU = Application(
    line='torch.nn.functional.gelu(x, approximate="tanh") instead of the formula (transformers: activation_function or '
    'hidden_act = "gelu_pytorch_tanh")',
    model=(Python("model = _one_kernel_gelu(model)"),),
    helpers=(_GELU_HELPER,),
)


def exact(tail: Epilogue, job: Job) -> bool:
    """Whether the library's epilogue computes what the kernels after the product do."""
    return not tail.exact and (tail.asked.activation != "gelu" or not job.trains)


def _tanh(tail: Epilogue, job: Job) -> bool:
    """Whether only GELU's form differs."""
    return tail.exact and not job.trains


def _to(
    suits: Callable[[Epilogue, Job], bool], solution: Callable[[Epilogue], str]
) -> Callable[[Work, Job], Change | None]:
    """The change of a pair that suits to that solution of the same problem."""

    def change(work: Work, job: Job) -> Change | None:
        return Change(work.problem, solution(work.tail)) if work.tail and suits(work.tail, job) else None

    return change


def _activations(job: Job, suits: Callable[[Epilogue, Job], bool]) -> list[str]:
    tails = [x.tail for x in job.pairs if x.tail is not None and suits(x.tail, job)]
    return sorted({x.asked.activation or "none" for x in tails})


def _fused(job: Job, suits: Callable[[Epilogue, Job], bool], approximate: tuple[str, ...]) -> Application | None:
    found = _activations(job, suits)
    if not found:
        return None
    in_model = found != ["none"]
    return Application(
        line="; ".join(_LINE[x] for x in found),
        model=(python_line(Python("model = _fused(model, {})"), approximate),) if in_model else (),
        helpers=(HELPERS,) if in_model else (),
    )


EPILOGUE = Action(
    name="fused_epilogue",
    kind="program",
    about="let the library's epilogue do what kernels of their own do after a product",
    change=_to(exact, lambda tail: tail.in_library),
    application=lambda job: _fused(job, exact, ("tanh",)),
    works=lambda job: job.pairs,
    excludes="epilogue",
)
TANH = Action(
    name="fused_gelu_tanh",
    kind="program",
    about="let the library's epilogue compute GELU, by its tanh approximation",
    change=_to(_tanh, lambda tail: tail.in_library),
    application=lambda job: _fused(job, _tanh, ("none", "tanh")),
    works=lambda job: job.pairs,
    excludes="epilogue",
    exact=False,
    needs="a model that bears the tanh approximation of GELU, which differs by up to 5e-4",
)
ONE_KERNEL = Action(
    name="one_kernel_gelu",
    kind="program",
    about="let one kernel compute a GELU that is written out, and one its gradient",
    change=lambda work, job: Change(work.problem),
    application=lambda job: _ONE_GELU if _activations(job, lambda tail, _: tail.form == "written") else None,
    works=lambda job: job.gelus,
    excludes="epilogue",
)
ALL = (EPILOGUE, TANH, ONE_KERNEL)
