"""Keep the sharding of a module as it is while a call of the module is repeated.

FSDP gathers the parameters of a module before its forward pass.  It shards them again after the backward pass.  A
repeated call has no backward pass, so the outermost module would keep its gathered parameters.

=============================  ====================================================================================
FSDP                           what a repeated call leaves behind, and is restored here
=============================  ====================================================================================
``fully_shard`` (FSDP2)        gathered parameters, which stand in the module instead of the sharded ones; the order
                               of forward passes, by which the next backward pass prefetches; after an exception
                               also the state of an unfinished forward pass
``FullyShardedDataParallel``   memory with gathered parameters, which the next forward pass would take for up to date;
(FSDP1)                        after an exception also the state of an unfinished forward pass
=============================  ====================================================================================

PyTorch has public functions for the parameters of FSDP2 alone.  The rest are private attributes, as PyTorch 2.4 to 2.13
names them.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List

import torch

_FSDP1, _FSDP2 = "FullyShardedDataParallel", "FSDPModule"
_PROGRESS = ("_training_state", "iter_forward_root", "post_forward_order", "_post_forward_indices")
"""Attributes of FSDP2's objects that a forward pass changes.  Each object has some of them."""


class UnknownShardingError(Exception):
    """Error if this version of PyTorch does not let us restore the sharding of a module."""


def is_sharded(module: Any) -> bool:
    """Tell whether FSDP manages a module's parameters.  FSDP has hooks of its own that follow each backward pass."""
    return any(_is(x, _FSDP1, _FSDP2) for x in module.modules())


def _is(module: Any, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(module).__mro__)


@contextlib.contextmanager
def kept(module: Any) -> Iterator[None]:
    """Restore the sharding of the module and of all modules in it at the end of the context.

    If a module was gathered before and is sharded now, it is gathered again.  All ranks must take part in this.  Raises
    UnknownShardingError, before anything has run.
    """
    back: List[Callable[[], None]] = []
    for one in module.modules():
        if _is(one, _FSDP2):
            back.append(_back_to_fsdp2(one))
        elif _is(one, _FSDP1):
            back.append(_back_to_fsdp1(one))
    try:
        yield
    finally:
        for restore in back:
            restore()


def _back_to_fsdp2(module: Any) -> Callable[[], None]:
    """Return a function that restores the sharding of one module.  It leaves the modules in it alone."""
    state = module._get_fsdp_state()
    groups = vars(state).get("_fsdp_param_groups")
    if groups is None:  # Older versions have one group of parameters in a module
        groups = [x for x in (getattr(state, "_fsdp_param_group", None),) if x is not None]
    objects = [state, getattr(state, "_state_ctx", None), getattr(state, "_comm_ctx", None), *groups]
    attributes = [vars(x) for x in objects if x is not None]
    progress = [(names, name, _copy(names[name])) for names in attributes for name in _PROGRESS if name in names]
    before = _own_parameters(module)

    def restore() -> None:
        for names, name, value in progress:
            if isinstance(value, list):  # Other objects hold the list, too
                names[name][:] = value
            else:
                names[name] = value
        if any(getattr(x, "_all_gather_result", None) is not None for x in groups):
            module.unshard()  # An exception has left parameters that were about to come
        for turn in (module.reshard, module.unshard, module.reshard):
            if _own_parameters(module) == before:
                break
            turn()

    return restore


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def _own_parameters(module: Any) -> List[int]:
    """Return the identities of the parameters that are registered now, except in other modules sharded by FSDP2.

    FSDP2 registers other objects for sharded parameters than for gathered parameters.
    """
    found, left = [], [module]
    while left:
        one = left.pop()
        found += [id(x) for x in one._parameters.values()]
        left += [x for x in one.children() if not _is(x, _FSDP2)]
    return found


def _back_to_fsdp1(module: Any) -> Callable[[], None]:
    try:
        from torch.distributed.fsdp._runtime_utils import _reshard

        handle = module._handle
        was_freed = handle is not None and handle.needs_unshard()
        progress = handle is not None and handle._training_state
    except (ImportError, AttributeError) as error:
        raise UnknownShardingError(
            f"the sharding by {_FSDP1} of PyTorch {torch.__version__} cannot be restored after a repeated call"
        ) from error

    def restore() -> None:
        if handle is not None:
            handle._training_state = progress
        if was_freed and not handle.needs_unshard():
            _reshard(module, handle, True)

    return restore
