"""Linear layers whose activation (ReLU or GELU) is computed by the same kernel as the matrix product."""

from __future__ import annotations

from typing import Any

import torch


class LinearReluFunction(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """A linear layer and the ReLU after it, computed by one kernel, as a function with a gradient.

    The gradient needs only the result of ReLU.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Compute a linear layer followed by ReLU, and keep the result for the backward pass."""
        out = torch._addmm_activation(bias, x, weight.t())
        ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the input, the weight and the bias of the linear layer."""
        x, weight, out = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        return grad @ weight if to_x else None, grad.t() @ x if to_weight else None, grad.sum(0) if to_bias else None


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "relu"
) -> torch.Tensor:
    """Compute a linear layer and its activation, ReLU or GELU (tanh approximation), in one kernel.

    If a gradient is needed, GELU is computed by a kernel of its own.
    """
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
        out = LinearReluFunction.apply(rows, weight, bias)
    return out.reshape(*x.shape[:-1], -1)


class LinearRelu(torch.nn.Linear):  # type: ignore[misc]  # torch has no types here
    """A linear layer that also computes the ReLU after it, in the same kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the linear layer and ReLU in one kernel."""
        return linear(x, self.weight, self.bias, "relu")


class LinearGelu(torch.nn.Linear):  # type: ignore[misc]  # torch has no types here
    """A linear layer that also computes the GELU after it (tanh approximation), in the same kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the linear layer and GELU in one kernel."""
        return linear(x, self.weight, self.bias, "gelu")


def fuse_epilogues(model: torch.nn.Module, approximate: tuple[str, ...]) -> torch.nn.Module:
    """Combine each linear layer with the ReLU or GELU after it in a torch.nn.Sequential, so that one kernel does both.

    ``approximate`` names the forms of GELU to replace (``tanh``, ``none``). Warns if nothing was replaced.
    """
    import copy

    changed = 0
    for parent in [x for x in model.modules() if isinstance(x, torch.nn.Sequential)]:
        children = list(parent._modules.items())  # named_children leaves out a module that comes again
        for place in range(len(children) - 1):
            (layer, first), (name, second) = children[place : place + 2]
            gelu = isinstance(second, torch.nn.GELU) and second.approximate in approximate
            if type(first) is torch.nn.Linear and (gelu or isinstance(second, torch.nn.ReLU)):
                fused = copy.copy(first)  # has the same parameters; another use of the layer stays as it is
                fused.__class__ = LinearGelu if gelu else LinearRelu
                parent._modules[layer], parent._modules[name] = fused, torch.nn.Identity()
                changed += 1
    if not changed:
        import warnings

        missing = (
            "apply.py fused no epilogue, because no torch.nn.Sequential of the model contains a Linear and its "
            "activation; call apply.linear in the model instead"
        )
        warnings.warn(missing, stacklevel=2)
    return model
