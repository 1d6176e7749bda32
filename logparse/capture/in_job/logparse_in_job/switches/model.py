"""Switch changes of the job's models on and off, such as the memory layout of their weights.

A change is made by the same functions as in ``apply.py`` (``changes/``). Then the modules are compared with their state
before. ``off`` takes back only the differences. So changes that the job itself made meanwhile stay (values, hooks, its
own attributes).

=========================  =========================================================================================
changed object             ``off`` gives back
=========================  =========================================================================================
parameter, buffer          its size and strides, with the values that it has by then; it stays the same object
gradient, optimizer state  the same, if its parameter was changed; ``on`` first gives it the parameter's new size and
                           strides, because an optimizer whose tensors differ in layout takes another path
child of a module          the child that stood there
hook                       it is removed
attribute                  its value
=========================  =========================================================================================

Parameters are not copied. The rows that ``padded_output`` adds are zeros, so ``off`` can drop them.
"""

from __future__ import annotations

import gc
import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ..changes.epilogue import fuse_epilogues
from ..changes.gelu import use_one_kernel_gelu
from ..changes.layout import turn_images
from ..changes.padding import pad_output
from .base import Job, RefusedError, Switch

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_WRAPPED = {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
_LEAST_OUTPUT, _MULTIPLE = 256, 64
"""A layer is padded only if it has at least ``_LEAST_OUTPUT`` outputs, and then to a multiple of ``_MULTIPLE`` outputs.

``analyzers/actions`` uses the same numbers.
"""


class Shape(NamedTuple):
    """Size and strides of a tensor."""

    size: Tuple[int, ...]
    stride: Tuple[int, ...]


def shape_of(tensor: Any) -> Shape:
    return Shape(tuple(tensor.shape), tuple(tensor.stride()))


def reshape(tensor: Any, to: Shape) -> None:
    """Give a tensor another size and other strides in place.

    Elements that exist in both sizes keep their values. New elements are zeros.
    """
    if shape_of(tensor) == to:
        return
    tensor.data = _copy(tensor.detach(), to)


def forget_accumulator(parameter: Any) -> None:
    """Make autograd forget the old size of a parameter, so that it accepts gradients of the new size."""
    # For each parameter autograd keeps a node that adds up gradients, as long as a loss of the job exists. The node
    # refuses gradients of another size. PyTorch drops the node if the parameter's data get another type, so the data
    # get another type for a moment.
    data = parameter.data
    other = torch.float64 if data.dtype is not torch.float64 else torch.float32
    parameter.data = torch.empty(0, dtype=other, device=data.device)
    parameter.data = data


def _copy(old: Any, to: Shape) -> Any:
    new = torch.empty_strided(to.size, to.stride, dtype=old.dtype, device=old.device)
    if tuple(old.shape) != to.size:
        new.zero_()
    both = tuple(slice(0, min(a, b)) for a, b in zip(old.shape, to.size))
    new[both].copy_(old[both])
    return new


class _Looks:
    """A copy of the state of a module before a change, with which the change can be taken back.

    The state consists of the module's children, hooks, buffers, and attributes that are numbers or texts.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.children = dict(module._modules)
        self.buffers = dict(module._buffers)
        self.hooks = {name: set(getattr(module, name)) for name in _HOOKS}
        self.attributes = {name: value for name, value in vars(module).items() if isinstance(value, (int, str))}

    def undo(self, after: _Looks) -> None:
        """Take back a change of a module. ``after`` is the module's state right after the change.

        Only children, hooks, buffers and attributes that the change has altered are put back.
        """
        module = self.module
        for name, child in after.children.items():
            own = self.children[name]
            if child is not own and module._modules.get(name) is child:
                # The child gets the mode (training or evaluation) of the child that had replaced it.
                own.train(child.training)
                module._modules[name] = own
        for name, hooks in after.hooks.items():
            for number in hooks - self.hooks[name]:
                getattr(module, name).pop(number, None)
        for name, value in self.attributes.items():
            if value != after.attributes.get(name):
                setattr(module, name, value)
        for name, buffer in after.buffers.items():
            own = self.buffers[name]
            if buffer is not own and module._buffers.get(name) is buffer:
                own.data = _copy(buffer, shape_of(own))
                module._buffers[name] = own


class _Tensor(NamedTuple):
    """A parameter of a model with its old and new size and strides: before a change, and after it.

    ``beside`` holds its gradient and optimizer state, each with its size and strides before the change.
    """

    parameter: Any
    before: Shape
    after: Shape
    beside: List[Tuple[Any, Shape]]


class ModelSwitch(Switch):
    """Switches a change of the job's models on and off.

    * ``change`` is the function that changes a model. It returns a text for the user, or an empty text if there was
      nothing to change.
    * ``refused`` is the reason that the user gets if no model was changed.
    * ``touched`` is a function that returns the parameters of a model that get another layout or size.
    * ``resizes`` is True if parameters get another size, and False if they get only another layout.
    """

    def __init__(
        self,
        change: Callable[[Any], str],
        refused: str,
        touched: Callable[[Any], Sequence[Any]] = lambda model: (),
        roundoff: float = 0.0,
        resizes: bool = False,
    ) -> None:
        self._change, self._refused, self._touched = change, refused, touched
        self.roundoff = roundoff
        self._resizes = resizes
        self._job: Optional[Job] = None
        self._looks: List[Tuple[_Looks, _Looks]] = []
        self._changed: List[_Tensor] = []

    def on(self, job: Job) -> None:
        """Change the models. Their gradients and the optimizers' state get the same new sizes and layouts.

        Raises RefusedError if that is not possible, or if there is nothing to change.
        """
        modules = list(dict.fromkeys(x for model in job.models for x in model.modules()))
        _refuse_wrapped(modules)
        touched = list(dict.fromkeys(x for model in job.models for x in self._touched(model)))
        _refuse_shared(touched)
        if self._resizes:
            _refuse_other_sizes(touched, job.optimizers)
            if self._job is None and not self.detail:  # once, because it takes long
                _refuse_held_accumulators(touched)
        held = [(x, shape_of(x), [(y, shape_of(y)) for y in _beside(x, job.optimizers)]) for x in touched]
        looks = [_Looks(x) for x in modules]
        done: List[str] = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # here a warning that nothing was found is only an answer
                done += [x for x in map(self._change, job.models) if x]
        finally:
            self._job, self._looks = job, [(x, _Looks(x.module)) for x in looks]
            found = [_Tensor(x, was, shape_of(x), beside) for x, was, beside in held]
            self._changed = [x for x in found if x.before != x.after]
            for x in self._changed:
                if x.before.size != x.after.size:
                    forget_accumulator(x.parameter)
                for tensor, _ in x.beside:
                    reshape(tensor, x.after)
            if not done:
                self.off()
        if not done:
            raise RefusedError(self._refused)
        self.detail = "; ".join(dict.fromkeys(done))

    def off(self) -> None:
        """Take the change back, in the models, in their gradients and in the optimizers' state."""
        job, self._job = self._job, None
        if job is None:
            return
        for before, after in reversed(self._looks):
            before.undo(after)
        for x in self._changed:
            own = {id(tensor): shape for tensor, shape in x.beside}
            for tensor in list(_beside(x.parameter, job.optimizers)):
                reshape(tensor, own.get(id(tensor), x.before))
            reshape(x.parameter, x.before)
            if x.before.size != x.after.size:
                forget_accumulator(x.parameter)
        self._looks, self._changed = [], []

    def hinders(self) -> str:
        """Return a sentence if the change cannot be switched off at this moment, or an empty text.

        The change has given parameters another size. A backward pass that is still to come needs them in this size.
        """
        resized = [x.parameter for x in self._changed if x.before.size != x.after.size]
        return _IN_USE if any(map(_is_in_use, resized)) else ""

    def disturbed(self) -> str:
        """Return a sentence for the user if the job itself altered a parameter's layout while the change was on.

        The layout consists of size and strides. Otherwise returns an empty text.
        """
        if any(shape_of(x.parameter) != x.after for x in self._changed):
            return "the job itself changes the layout of its parameters"
        return ""


def _beside(parameter: Any, optimizers: Sequence[Any]) -> Iterator[Any]:
    """Yield the tensors that must change together with a parameter.

    They are its gradient, and the tensors of the same size that optimizers keep for it (such as momentum).
    """
    if parameter.grad is not None:
        yield parameter.grad
    for optimizer in optimizers:
        for tensor in optimizer.state.get(parameter, {}).values():
            if torch.is_tensor(tensor) and tensor.shape == parameter.shape:
                yield tensor


def _refuse_wrapped(modules: Sequence[Any]) -> None:
    for module in modules:
        for kind in type(module).__mro__:
            if kind.__name__ in _WRAPPED:
                raise RefusedError(
                    f"the model's parameters are in {kind.__name__}, which watches, flattens or shards them"
                )
        if isinstance(module, torch.jit.ScriptModule):
            raise RefusedError("TorchScript compiled a module of the model")


def _refuse_shared(parameters: Sequence[Any]) -> None:
    """Raise RefusedError if something other than the model uses the memory of a parameter.

    A change gives the parameter new memory, but the other user would go on with the old memory. Other users are, for
    example:

    * parameters that are views of one common buffer;
    * a view or a NumPy array that the job keeps;
    * an autograd graph whose backward pass is still to come;
    * other processes that share the memory.
    """
    for x in parameters:
        storage = x.untyped_storage()
        if storage.nbytes() != x.numel() * x.element_size():
            raise RefusedError(
                "the model's parameters are parts of one buffer, and other objects may hold views of this buffer"
            )
        if storage.device.type == "cpu" and storage.is_shared():
            raise RefusedError("the model's parameters are shared with other processes")
        if _is_in_use(x):
            raise RefusedError(_IN_USE)


def _refuse_other_sizes(touched: Sequence[Any], optimizers: Sequence[Any]) -> None:
    """Raise RefusedError if an optimizer's state for a parameter has another size than the parameter.

    Rows could not be added to such a state or removed from it. Examples are Adafactor (sums over rows) and LBFGS (all
    parameters in one vector).
    """
    for optimizer in optimizers:
        own = {id(x) for group in optimizer.param_groups for x in group["params"]}
        if own.isdisjoint(map(id, touched)):
            continue
        for parameter, state in optimizer.state.items():
            if any(x.numel() > 1 and x.shape != getattr(parameter, "shape", x.shape) for x in _tensors(state)):
                raise RefusedError(
                    f"the optimizer {type(optimizer).__name__} keeps tensors of another size than the parameters have"
                )


def _tensors(state: Any) -> Iterator[Any]:
    """Yield all tensors in the state of an optimizer, including the tensors in lists and dicts."""
    for x in state.values() if isinstance(state, dict) else state:
        if torch.is_tensor(x):
            yield x
        elif isinstance(x, (list, tuple, dict)):
            yield from _tensors(x)


def _refuse_held_accumulators(parameters: Sequence[Any]) -> None:
    """Raise RefusedError if the job has attached hooks to autograd's gradient accumulators, as Megatron does.

    Accumulators are the autograd nodes that add up a parameter's gradients. ``forget_accumulator`` replaces them, so
    the hooks would be lost.
    """
    with torch.inference_mode(False), torch.enable_grad():
        nodes = [x.view_as(x).grad_fn.next_functions[0][0] for x in parameters if x.requires_grad]
    if any(x is not nodes for x in gc.get_referrers(*nodes)):
        raise RefusedError(
            "the job itself uses the autograd nodes that accumulate its parameters' gradients, and this change would "
            "replace the nodes"
        )


_IN_USE = "the job holds a view of its parameters, or an autograd graph whose backward pass has not yet run"


def _is_in_use(parameter: Any) -> bool:
    """Return True if something other than the parameter itself uses the parameter's memory.

    PyTorch counts the uses. How many the parameter itself has depends on PyTorch's version, so the count is compared
    with a new parameter.
    """
    count = getattr(torch._C, "_storage_Use_Count", None)  # PyTorch before 2.5 for CPUs has none
    if count is None:
        return False
    used, usual = (count(x.untyped_storage()._cdata) for x in (parameter, torch.nn.Parameter(torch.empty(1))))
    return bool(used > usual)


# ------------------------------------------------------------------------------------------------------ the changes


def _number(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _images(model: Any) -> Sequence[Any]:
    return [x for x in model.parameters() if x.dim() == 4]


def _channels_last(model: Any) -> str:
    images = _images(model)
    if not images or all(x.is_contiguous(memory_format=torch.channels_last) for x in images):
        return ""
    model.to(memory_format=torch.channels_last)
    model.register_forward_pre_hook(turn_images)
    return _number(len(images), "weight of a convolution", "weights of convolutions")


def odd_output(model: Any) -> Optional[int]:
    """Return the number of outputs of the largest linear layer that could be padded, or None without such a layer.

    The layer has at least 256 outputs, and their number is not a multiple of 64.
    """
    layers = [x for x in model.modules() if isinstance(x, torch.nn.Linear)]
    odd = [x for x in layers if x.out_features >= _LEAST_OUTPUT and x.out_features % _MULTIPLE]
    # The largest layer is the one with the largest weight.
    return max(odd, key=lambda x: x.weight.numel()).out_features if odd else None


def _padded_output(model: Any) -> str:
    size = odd_output(model)
    if size is None:
        return ""
    padded = -(-size // _MULTIPLE) * _MULTIPLE
    pad_output(model, size, padded)
    return f"{size:,} outputs padded to {padded:,}"


def _rows(model: Any) -> Sequence[Any]:
    """Return the parameters that padding makes longer: the weights and biases of the padded layers."""
    size = odd_output(model)
    layers = [x for x in model.modules() if isinstance(x, torch.nn.Linear) and x.out_features == size]
    return [x for layer in layers for x in layer.parameters(recurse=False)]


def _counted(change: Callable[[Any], Any], *what: str) -> Callable[[Any], str]:
    """Wrap a function that replaces modules of a model, so that it returns how many it has replaced, as a text.

    The text is for the user. It is empty if no module was replaced.
    """

    def changed(model: Any) -> str:
        before = {id(x) for x in model.modules()}
        change(model)
        number = sum(id(x) not in before for x in model.modules())
        return _number(number, *what) if number else ""

    return changed


_NO_PAIR = "no torch.nn.Sequential of the model contains a linear layer right before its activation"
KNOWN: Dict[str, Callable[[], ModelSwitch]] = {
    "channels_last": lambda: ModelSwitch(
        _channels_last, "the model has no convolution whose weight is stored in the layout NCHW", _images
    ),
    "padded_output": lambda: ModelSwitch(
        _padded_output,
        f"nothing to pad: every linear layer has fewer than {_LEAST_OUTPUT} outputs, or already a multiple of 64",
        _rows,
        resizes=True,
    ),
    "one_kernel_gelu": lambda: ModelSwitch(
        _counted(use_one_kernel_gelu, "GELU in one kernel", "GELUs in one kernel"),
        "no module of the model computes GELU by a formula of its own",
    ),
    "fused_epilogue": lambda: ModelSwitch(
        _counted(lambda model: fuse_epilogues(model, ("tanh",)), "module replaced", "modules replaced"), _NO_PAIR
    ),
    "fused_gelu_tanh": lambda: ModelSwitch(
        _counted(lambda model: fuse_epilogues(model, ("none", "tanh")), "module replaced", "modules replaced"),
        _NO_PAIR,
        roundoff=5e-4,
    ),
}
"""For each change of a model, by its name, the function that makes its switch."""


def made(part: str) -> ModelSwitch:
    """Return an object that switches a change of the job's models on and off. ``part`` is the change's name."""
    return KNOWN[part]()
