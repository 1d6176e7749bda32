"""Restore how FSDP has distributed a module's parameters after a call of the module was repeated.

FSDP gathers the parameters of a module from all ranks before its forward pass, and drops the other ranks' parts after
the backward pass (it shards them again). A repeated call has no backward pass, so the outermost module would keep its
gathered parameters.

=============================  ====================================================================================
FSDP                           what a repeated call leaves behind, and is restored here
=============================  ====================================================================================
``fully_shard`` (FSDP2)        gathered parameters, which stand in the module instead of the sharded ones; the order
                               of forward passes, by which the next backward pass prefetches; after an exception
                               also the state of an unfinished forward pass
``FullyShardedDataParallel``   memory with gathered parameters, which the next forward pass would take for up to date;
(FSDP1)                        after an exception also the state of an unfinished forward pass
=============================  ====================================================================================

PyTorch has public functions only for the parameters of FSDP2. The rest are private attributes with the names that they
have in PyTorch 2.4 to 2.13.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List

import torch

_FSDP1, _FSDP2 = "FullyShardedDataParallel", "FSDPModule"
_PROGRESS = ("_training_state", "iter_forward_root", "post_forward_order", "_post_forward_indices")
"""Attributes of FSDP2's objects that change during a forward pass. Each object has some of them."""


class UnknownShardingError(Exception):
    """Raised if logparse cannot restore how FSDP distributes a module's parameters in this version of PyTorch."""


def is_sharded(module: Any) -> bool:
    """Return True if FSDP distributes the parameters of this module, or of a module in it, over the ranks."""
    return any(_is_instance_of(x, _FSDP1, _FSDP2) for x in module.modules())


def _is_instance_of(module: Any, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(module).__mro__)


@contextlib.contextmanager
def keep_sharding(module: Any) -> Iterator[None]:
    """Context after which the parameters of a module and its children are sharded over the ranks (FSDP) as before.

    Raises UnknownShardingError at the beginning if this version of PyTorch does not allow it.
    """
    back: List[Callable[[], None]] = []
    for one in module.modules():
        if _is_instance_of(one, _FSDP2):
            back.append(_back_to_fsdp2(one))
        elif _is_instance_of(one, _FSDP1):
            back.append(_back_to_fsdp1(one))
    try:
        yield
    finally:
        for restore in back:
            # If parameters that were complete before must be gathered again, all ranks must take part.
            restore()


def _back_to_fsdp2(module: Any) -> Callable[[], None]:
    """Return a function that later restores the present distribution of a module's parameters over the ranks (FSDP2).

    Modules within the module are not restored.
    """
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
    """Return the ids of the parameter objects of a module and of its children.

    Children that FSDP2 manages separately are left out. The ids tell whether the parameters are gathered or
    distributed, because FSDP2 then replaces the parameter objects.
    """
    found, left = [], [module]
    while left:
        one = left.pop()
        found += [id(x) for x in one._parameters.values()]
        left += [x for x in one.children() if not _is_instance_of(x, _FSDP2)]
    return found


def _back_to_fsdp1(module: Any) -> Callable[[], None]:
    try:
        from torch.distributed.fsdp._runtime_utils import _reshard

        handle = module._handle
        was_freed = handle is not None and handle.needs_unshard()
        progress = handle is not None and handle._training_state
    except (ImportError, AttributeError) as error:
        raise UnknownShardingError(
            f"after a test call of the model, logparse could not shard its parameters again ({_FSDP1} of PyTorch "
            f"{torch.__version__} is unknown to it)"
        ) from error

    def restore() -> None:
        if handle is not None:
            handle._training_state = progress
        if was_freed and not handle.needs_unshard():
            _reshard(module, handle, True)

    return restore
