"""Check that a change computes the same result as the unchanged job, by repeating a call of the job's model.

A change, here called an action, is for example to allow TF32. The job's own outermost call is repeated with the same
input, with the action and without it.

=============  ==============================================================================================
compared       measure
=============  ==============================================================================================
the output     ‖with − without‖ / ‖without‖ over all floating-point numbers that the call returns
the gradients  the same ratio over the norms of all parameters' gradients, which are gradients of a fixed
               random sum of the output's numbers; only if the call has gradients
=============  ==============================================================================================

Both are *deviations*. The deviation by rounding alone depends on the depth and the condition of the model, so it is
measured and not assumed. For this measurement the call is repeated, and the output of each innermost module is
multiplied by 1 + u·r. r is uniform in [-1, 1]. u is the unit roundoff of the output's type, plus √K times the unit
roundoff of the sums of a layer with K inputs. This is Monte Carlo arithmetic at the granularity of layers (Parker,
"Monte Carlo Arithmetic", UCLA CSD-970002, 1997).

Two deviations are measured without the action: by rounding alone, and between two repeats (atomic additions). An action
computes the same if its deviation is at most ``ROUNDINGS`` times the larger of the two. An action may declare that it
changes more than rounding does (TF32, GELU by tanh). Then u is at least the declared change.

A measure is useless if more than ``MOST_ALLOWED`` would be allowed, because a wrong result would pass, too. Then only
the other measure is compared. If both are useless in training mode (batch statistics of an untrained network amplify
rounding), everything is repeated in evaluation mode. If both are useless there too, the action is refused.

A repeat draws the same random numbers (PyTorch's, Python's and NumPy's). The repeat leaves these generators, the
buffers, the gradients and the modules' attributes as they were, including the items of lists, dicts and sets that are
attributes. The repeat also leaves the sharding by FSDP as it was (``sharding.py``). Other objects are not restored. The
output alone is compared if FSDP shards the module, or if the job's checkpoints forbid gradients of a repeat
(``use_reentrant=True``).

Another repeat after the action proves that the action was taken back. If the mask of dropout depends on the layout,
even a correct action deviates. So if an action deviates in training mode, everything is repeated in evaluation mode.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import sys
from collections import OrderedDict
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

import torch

from . import sharding

T = TypeVar("T")
ROUNDINGS, MOST_ALLOWED = 16.0, 0.5
_SEED = 20_54


class Call(NamedTuple):
    """One call of the job's model, recorded so that the call can be repeated with the same input and modes.

    The input is a copy, made before the job used it. Modes are gradients, inference mode and autocast.
    """

    module: Any
    args: Any
    kwargs: Any
    grad: bool
    inference: bool
    autocast: Tuple[Tuple[str, Any], ...]


class Same(NamedTuple):
    """Result of a check: how much a change of the job alters the result of a call, and how much is allowed.

    Both numbers are relative (1e-3 is 0.1 %). ``how`` says what was compared: the output, the gradients, or both.
    """

    deviation: float
    allowed: float
    how: str

    @property
    def tells(self) -> bool:
        """True if the check was strict enough that it would have noticed a wrong result."""
        return self.allowed <= MOST_ALLOWED

    @property
    def is_same(self) -> bool:
        return self.tells and self.deviation <= self.allowed


class IncomparableError(Exception):
    """Raised if a model's results cannot show whether a change is correct.

    * They contain no numbers, or numbers that are not finite.
    * They differ too much, or in size, even if the unchanged call is repeated.
    """


class NotRestoredError(Exception):
    """Raised if switching a change off does not bring back the model's previous result.

    The error is raised only in a job whose results repeat bit for bit.
    """


def call_of(module: Any, args: Any, kwargs: Any) -> Call:
    """Copy the input of the model call that begins now, so that the call can be repeated later."""
    types = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    autocast = tuple((x, torch.get_autocast_dtype(x)) for x in types if torch.is_autocast_enabled(x))
    inference = torch.is_inference_mode_enabled()
    grad = torch.is_grad_enabled() and not inference
    return Call(module, _copied(args), _copied(kwargs), grad, inference, autocast)


def _copied(value: Any) -> Any:
    """Copy a value, such as a model's input, so that its tensors share no memory with the job's tensors.

    Modules in the value are not copied. A copied tensor needs a gradient if the original does.
    """
    # ``copy.deepcopy`` refuses tensors that the job has computed, so the tensors are copied first and given to it.
    made: Dict[int, Any] = {}
    left, seen = [value], set()
    while left:
        x = left.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, torch.Tensor):
            twin = x.detach().clone()
            made[id(x)] = twin.requires_grad_() if x.requires_grad else twin
        elif isinstance(x, torch.nn.Module):
            made[id(x)] = x
        elif isinstance(x, dict):
            left += x.values()
        elif isinstance(x, (list, tuple)):
            left += x
        elif not isinstance(x, type) and hasattr(x, "__dict__"):
            left += vars(x).values()
    return copy.deepcopy(value, made)


def alone(part: Callable[[], T]) -> List[T]:
    """Call ``part`` and return a list with its result. This function is used in a job with one process.

    A job with several ranks uses another function, whose list has one result for each rank.
    """
    return [part()]


class Comparison:
    """Compares the result of one call of the model with a change (such as TF32) and without it.

    ``in_all`` is a function that runs a part of the comparison in all ranks (processes of the job) and returns their
    results. If the part fails in one rank, it raises an error in every rank. So all ranks repeat the call equally
    often. Otherwise the job would hang if the call contains collective operations.
    """

    def __init__(self, call: Call, roundoff: float, in_all: Callable[[Callable[[], Any]], List[Any]] = alone) -> None:
        self._call, self._roundoff, self._in_all = call, roundoff, in_all
        self._scale = 1.0

    def compare(self, on: Callable[[], None], off: Callable[[], None]) -> Same:
        """Repeat a call of the model with and without the change, and return how much the result differs.

        Two numbers are returned: how much the change alters the result, and how much it may. ``on`` and ``off`` switch
        the change. When this function returns or raises an error, the job's state is as it was before.

        * The call is first repeated in the job's own mode.
        * If the results differ too much in training mode, or the comparison is not strict enough there, it is repeated
          in evaluation mode. That mode has no dropout and no batch statistics.

        Raises IncomparableError, NotRestoredError, and errors of ``in_all`` and of the job's model.
        """
        found = self._compare(on, off, contextlib.nullcontext())
        training = bool(self._call.module.training)
        if not any(differs and trains for differs, trains in self._in_all(lambda: (not found.is_same, training))):
            return found
        # cuDNN has no gradient of a recurrent layer in evaluation mode. A detector returns other boxes in each call.
        with contextlib.suppress(RuntimeError, IncomparableError):
            again = self._compare(on, off, _switch_to_evaluation(self._call.module))
            if not found.is_same and (again.is_same or (again.tells and not found.tells)):
                return again._replace(how=again.how + ", in evaluation mode")
        return found

    def _compare(self, on: Callable[[], None], off: Callable[[], None], mode: Any) -> Same:
        with mode:
            first = self._run_in_range()
            plain, repeated, rounded = self._own(lambda: self._without(first))
            try:
                self._own(on)
                found = self._own(lambda: plain.deviations(self._run()))
            except BaseException:
                off()
                raise
            self._own(off)
            self._own(lambda: self._check_restored(plain, repeated))
        allowed = [ROUNDINGS * max(pair) for pair in zip(rounded, repeated)]
        measures = [Same(*x) for x in zip(found, allowed, _MEASURES)]
        telling = [x for x in measures if x.tells] or measures[:1]
        how = " and ".join(x.how for x in telling)
        return Same(max(x.deviation for x in telling), max(x.allowed for x in telling), how)

    def _own(self, part: Callable[[], T]) -> T:
        """Call a function in all processes (ranks) of the job at the same time, and return this process's result.

        An example of ``part`` is a call of the model, which may have to wait for messages from other ranks.
        """
        found: List[T] = []
        self._in_all(lambda: found.append(part()))
        return found[0]

    def _run_in_range(self) -> _Result:
        """Call the model without the change, and choose a scale of its gradients that half precision can hold.

        All ranks choose the same scale.
        """
        for self._scale in _SCALES:
            found = self._own(self._run)
            finite = all(map(math.isfinite, found.norms))
            if all(self._in_all(partial(bool, finite))):
                break
        return found

    def _without(self, plain: _Result) -> Tuple[_Result, List[float], List[float]]:
        """Call the model twice more without the change, to learn how much its results vary anyway.

        Returns the first result ``plain``, and its differences from a second, equal call and from a call with random
        rounding errors.
        """
        repeated = plain.deviations(self._run())
        rounded = plain.deviations(self._run(_Rounding(self._roundoff)))
        if not all(map(math.isfinite, (*repeated, *rounded))):
            raise IncomparableError(
                "two equal calls of the model, both without the change, returned tensors of different sizes, "
                "or numbers that are infinite or NaN"
            )
        # A correct change may alter the result about as much as these differences.
        return plain, repeated, rounded

    def _check_restored(self, plain: _Result, repeated: List[float]) -> None:
        restored = max(plain.deviations(self._run()))
        if restored > 0 and not max(repeated):
            raise NotRestoredError(
                f"after the change was switched off again, the model's results differed by {restored:.1e} from those "
                "before"
            )

    def _run(self, rounding: Optional[_Rounding] = None) -> _Result:
        call = self._call
        with _as_it_was(call.module), contextlib.ExitStack() as modes:
            modes.enter_context(torch.inference_mode(call.inference))
            for device, dtype in call.autocast:
                modes.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=False))
            modes.enter_context(torch.set_grad_enabled(call.grad))
            modes.enter_context(sharding.keep_sharding(call.module))
            if rounding is not None:
                for hook in rounding.hooks():
                    modes.callback(hook.remove)
            output = list(_numbers(call.module(*_copied(call.args), **_copied(call.kwargs))))
            parameters = [x for x in call.module.parameters() if x.requires_grad] if call.grad else []
            asked = [x for x in output if x.requires_grad] if parameters else []
            norms: List[float] = []
            if asked:
                norms = _norms(self._scale * _random_sum(asked), parameters)
            return _Result([x.detach() for x in output], norms)


_MEASURES = ("output", "gradients")
_SCALES = (1.0, 2.0**-8, 2.0**-16)
"""Factors of the gradients. In float16 the gradients of large outputs are infinite with the first of them.

Jobs avoid that with a loss that is a mean.
"""


class _Result(NamedTuple):
    """Result of one call of the model: the numbers that it returned, and the norm of each parameter's gradient."""

    output: List[Any]
    norms: List[float]

    def deviations(self, other: _Result) -> List[float]:
        """Return how much ``other`` differs from this result: in the output, and in the gradients if there are any.

        Each number is relative (0.01 is 1 %), and infinite if sizes differ or a number is not finite.
        """
        if [x.shape for x in self.output] != [x.shape for x in other.output] or not self.output:
            return [math.inf, math.inf]
        off = sum(_square(_to_float(a) - _to_float(b)) for a, b in zip(self.output, other.output))
        of = sum(_square(_to_float(a)) for a in self.output)
        grads = sum((a - b) ** 2 for a, b in zip(self.norms, other.norms))
        of_grads = sum(a**2 for a in self.norms)
        found = [_ratio(off, of), *([_ratio(grads, of_grads)] if self.norms else [])]
        return [x if math.isfinite(x) else math.inf for x in found]


def _to_float(numbers: Any) -> Any:
    return numbers.float() if numbers.dtype.itemsize < 4 else numbers


def _square(numbers: Any) -> float:
    return float(torch.linalg.vector_norm(numbers, dtype=torch.float64)) ** 2


def _ratio(off: float, of: float) -> float:
    return math.sqrt(off / of) if of else 0.0 if off == 0 else math.inf


def _norms(total: Any, parameters: List[Any]) -> List[float]:
    """Return the norm of the gradient of the scalar ``total`` for each parameter.

    Returns an empty list if the job uses checkpoints (``use_reentrant=True``) that forbid ``torch.autograd.grad``.
    """
    try:
        found = torch.autograd.grad(total, parameters, allow_unused=True)
    except RuntimeError as error:
        if "use_reentrant" in str(error) or "Checkpointing is not compatible" in str(error):
            return []
        raise
    return [0.0 if x is None else float(x.float().norm()) for x in found]


class _Rounding:
    """Adds random errors to the output of each layer, as large as rounding errors may be.

    A layer is here a module that calls no other module while it runs.
    """

    def __init__(self, roundoff: float) -> None:
        self._roundoff = roundoff
        self._generators: Dict[Any, Any] = {}
        self._under_way: List[Any] = []  # [module, whether it has called no other one]

    def hooks(self) -> Iterator[Any]:
        """Make every layer of the model add small random errors to its output, as rounding does.

        Yields the handle of each hook that is installed in PyTorch, with which the hook can be removed.
        """
        # The outputs then show how much rounding alone can change the result.
        yield torch.nn.modules.module.register_module_forward_pre_hook(self._begins)
        yield torch.nn.modules.module.register_module_forward_hook(self._ends)

    # A layer may have child modules: a scripted model calls its children elsewhere, and some models use only the
    # parameters of a child.
    def _begins(self, module: Any, inputs: Any) -> None:
        for call in self._under_way:
            call[1] = False
        self._under_way.append([module, True])

    def _ends(self, module: Any, inputs: Any, output: Any) -> Any:
        is_innermost = True
        while self._under_way:  # Calls that an exception left have no end
            own, is_innermost = self._under_way.pop()
            if own is module:
                break
        if not is_innermost:
            return None
        if torch.is_tensor(output):
            return self._rounded(module, output)
        if type(output) is tuple:
            return tuple(self._rounded(module, x) if torch.is_tensor(x) else x for x in output)
        return None

    def _rounded(self, module: Any, output: Any) -> Any:
        if not output.is_floating_point():
            return output
        summed = max((_inputs(module, x) for x in module.parameters() if x.dim() > 1), default=1)
        sums = torch.finfo(torch.float32).eps / 2
        if output.is_cuda and output.dtype is torch.float32 and _in_tf32(module):
            sums = 2.0**-11
        unit = max(torch.finfo(output.dtype).eps / 2 + math.sqrt(summed) * sums, self._roundoff)
        generator = self._generators.get(output.device)
        if generator is None:
            generator = self._generators[output.device] = torch.Generator(output.device).manual_seed(_SEED)
        noise = torch.empty(output.shape, dtype=torch.float32, device=output.device)
        noise.uniform_(-unit, unit, generator=generator)
        return (_to_float(output) * (1 + noise)).to(output.dtype)


def _inputs(module: Any, weight: Any) -> int:
    """Return how many products are added up for one number in a layer's output. ``weight`` is the layer's weight.

    A weight with three dimensions holds several matrices, for example one for each expert, unless it belongs to a
    convolution.
    """
    if weight.dim() > 2 and not isinstance(module, torch.nn.modules.conv._ConvNd):
        return int(max(weight.shape[-2:]))
    return int(weight.numel() // max(len(weight), 1))


def _in_tf32(module: Any) -> bool:
    convolution = isinstance(module, torch.nn.modules.conv._ConvNd)
    with contextlib.suppress(AttributeError, RuntimeError):  # the newer interface of PyTorch 2.9 forbids the older one
        return bool(torch.backends.cudnn.allow_tf32 if convolution else torch.backends.cuda.matmul.allow_tf32)
    return True


def _numbers(value: Any) -> Iterator[Any]:
    """Yield the floating-point tensors in the value that a call returned, in their order.

    The tensors may be in lists, tuples, dicts and dataclasses.
    """
    if torch.is_tensor(value):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for x in value.values():
            yield from _numbers(x)
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from _numbers(x)
    elif hasattr(value, "__dataclass_fields__"):
        for x in vars(value).values():
            yield from _numbers(x)


def _random_sum(output: List[Any]) -> Any:
    """Turn the model's output into one number: the sum of all output numbers, each times a fixed random weight.

    Its gradients depend on every output number, each with another weight, so an error in one of them shows.
    """
    total: Any = 0.0
    for x in output:
        generator = torch.Generator(x.device).manual_seed(_SEED)
        weights = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        total = total + (x.float() * weights.normal_(generator=generator)).sum()
    return total


class _Items:
    """Remembers the items of a list, dict or set, so that ``restore`` can undo later changes.

    For any other object it does nothing.
    """

    def __init__(self, container: Any) -> None:
        self._container = container if type(container) in (list, dict, OrderedDict, set) else None
        self._before: Any = None if self._container is None else self._container.copy()

    def restore(self) -> None:
        now, before = self._container, self._before
        if isinstance(now, dict):
            for name in [x for x in now if x not in before]:
                del now[name]
            now.update((name, value) for name, value in before.items() if now.get(name, now) is not value)
        elif isinstance(now, list):
            now[:] = before
        elif isinstance(now, set):
            now.clear()
            now.update(before)


@contextlib.contextmanager
def _as_it_was(module: Any) -> Iterator[None]:
    """Context in which a call of the model is repeated. At its end, everything that the call may alter is put back.

    This is the state of the random number generators, the buffers, the gradients and the modules' attributes.
    """
    python = random.getstate()
    numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy.get_state() if numpy is not None else None
    containers = [_Items(x) for one in module.modules() for x in (vars(one), *vars(one).values())]
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    buffers = [(x, x.detach().clone(), _version(x)) for x in module.buffers()]
    gradients = [(x, x.grad) for x in module.parameters()]
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(numpy_state)
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        with torch.no_grad():
            for buffer, value, version in buffers:
                buffer.copy_(value)
                _set_version(buffer, version)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for items in containers:
            items.restore()


def _version(tensor: Any) -> Optional[int]:
    """Return how often a tensor was changed in place. None for a tensor of inference mode, which counts nothing."""
    return None if tensor.is_inference() else int(tensor._version)


def _set_version(tensor: Any, version: Optional[int]) -> None:
    """Make autograd believe that a tensor was changed in place ``version`` times. Its values must be as they were then.

    A job with two optimizers, such as a GAN, may still need the tensor for a gradient. Autograd refuses to compute that
    gradient if the tensor was changed in between.
    """
    set_versions = getattr(torch._C._autograd, "_unsafe_set_version_counter", None)
    if version is None or set_versions is None or tensor._version == version:
        return
    try:
        set_versions((tensor,), (version,))
    except TypeError:  # PyTorch before 2.7 takes one tensor.
        set_versions(tensor, version)


@contextlib.contextmanager
def _switch_to_evaluation(module: Any) -> Iterator[None]:
    training = [x for x in module.modules() if x.training]
    try:
        for x in training:
            x.training = False
        yield
    finally:
        for x in training:
            x.training = True
