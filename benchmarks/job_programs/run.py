"""What the programs of ``jobs.py`` share: how long they run, what they report, and how they apply an action.

=====================  ===========================================================================================
``JOB_SECONDS``        how long the units of a run take, about: their number follows from the time of some first ones
``JOB_UNITS``          ... but at least so many
``JOB_TRUTH_FILE``     where the mean wall time of a unit over the later half of a run is written
``JOB_GO_FILE``        units are not begun before this file is there; ``….ready`` says that all else is done
``JOB_SMOKE``          1: tiny sizes, on the CPU
``JOB_APPLY``          a generated ``apply.py``
``JOB_APPLY_NAMES``    the actions of it that are applied, joined by commas
=====================  ===========================================================================================
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

SMOKE = os.environ.get("JOB_SMOKE") == "1"
DEVICE = torch.device("cpu" if SMOKE else f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
_SECONDS, _LEAST = float(os.environ.get("JOB_SECONDS", "6")), int(os.environ.get("JOB_UNITS", "64"))
_FIRST, _TIMED = 6, 4
"""Units before any is timed (libraries choose their kernels), and those by which the number of units is chosen."""


def sized(full: Any, small: Any) -> Any:
    """The size of a run, or that of a test on a CPU."""
    return small if SMOKE else full


def network(model: nn.Sequential) -> nn.Sequential:
    """An image network of ``models.py``, or its first stage alone in a test on a CPU."""
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))
    return nn.Sequential(*list(model)[:5], *head) if SMOKE else model


def finish() -> None:
    """Wait for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def applied(model: nn.Module) -> nn.Module:
    """The model with the actions that the environment names: before it is wrapped, and before its optimizer is made."""
    path, names = os.environ.get("JOB_APPLY"), os.environ.get("JOB_APPLY_NAMES", "").split(",")
    if not path:
        return model
    spec = importlib.util.spec_from_file_location("apply", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.settings(*names)
    changed: nn.Module = module.model(model, *names)
    return changed


def run(unit: Callable[[int], object], kinds: int = 1) -> None:
    """Do units until the time is over; the number is the same in all ranks, and a multiple of ``2 * kinds``.

    The later half is timed as a whole, without waiting for the device in between.
    """
    _await_turn()
    for index in range(_FIRST):
        unit(index)
    finish()
    begun = time.perf_counter()
    for index in range(_TIMED * kinds):
        unit(index)
    finish()
    each = (time.perf_counter() - begun) / (_TIMED * kinds)
    half = kinds * math.ceil(max(_LEAST, min(_SECONDS / each, 20_000)) / (2 * kinds))
    half = _agreed(half)
    for index in range(half):
        unit(index)
    finish()
    begun = time.perf_counter()
    for index in range(half):
        unit(index)
    finish()
    report({"all": [(time.perf_counter() - begun) / half]}, {"all": 1.0}, half)


def serve(answer: Callable[[int], object], choose: Callable[[], int], shares: dict[int, float]) -> None:
    """Answer requests, whose size is chosen at random, until the time is over.

    A server waits for each answer, so each is timed; the mean counts sizes by their probability, not by how often
    chance chose them.
    """
    _await_turn()
    for size in shares:
        for _ in range(_FIRST):
            answer(size)
    finish()
    begun, times = time.perf_counter(), []
    while len(times) < _LEAST or (time.perf_counter() - begun < _SECONDS and len(times) < 20_000):
        size, start = choose(), time.perf_counter()
        answer(size)
        finish()
        times.append((size, time.perf_counter() - start))
    late = times[len(times) // 2 :]
    by_size = {str(size): [us for one, us in late if one == size] for size in shares}
    report(by_size, {str(size): share for size, share in shares.items()}, len(late))


def report(seconds: dict[str, list[float]], shares: dict[str, float], units: int) -> None:
    """Write what the run took per unit: the means of the kinds by their shares."""
    path = os.environ.get("JOB_TRUTH_FILE")
    if not path or (dist.is_initialized() and dist.get_rank()):
        return
    means = {name: math.fsum(held) / len(held) for name, held in seconds.items() if held}
    total = math.fsum(shares[name] for name in means)
    mean = math.fsum(shares[name] * each for name, each in means.items()) / total
    found = {"unit_us": 1e6 * mean, "units": units, "kinds_us": {name: 1e6 * each for name, each in means.items()}}
    Path(path).write_text(json.dumps(found), encoding="utf-8")


def _await_turn() -> None:
    """Wait for this process's turn, where several are started at once and take the device one after another."""
    if not (path := os.environ.get("JOB_GO_FILE")):
        return
    finish()
    if dist.is_initialized():
        _agreed(0)
    if not dist.is_initialized() or not dist.get_rank():
        Path(f"{path}.ready").touch()
    while not Path(path).exists():
        time.sleep(0.01)


def _agreed(count: int) -> int:
    """The same number in all ranks: rank 0's."""
    if not dist.is_initialized():
        return count
    held = torch.tensor([count], device=DEVICE)
    dist.broadcast(held, 0)
    return int(held.item())


def begin() -> tuple[int, int]:
    """Join the other ranks; this one's number, and how many there are."""
    if DEVICE.type == "cuda":
        torch.cuda.set_device(DEVICE)
        dist.init_process_group("nccl", device_id=DEVICE)
    else:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    return dist.get_rank(), dist.get_world_size()
