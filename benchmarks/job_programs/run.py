"""Functions that the programs of ``jobs.py`` share: duration, reports, and actions. Environment variables set them.

=====================  ===========================================================================================
``JOB_SECONDS``        approximate duration of the units of a run.  Because the number of units is chosen from it, the
                       first few units are timed.
``JOB_UNITS``          the least number of units
``JOB_TURNS``          a folder.  The units are done in turns with other processes, and the two variables above are
                       ignored.  The run writes ``ready`` after its setup.  It does turn N once ``N.go`` exists, and
                       writes its times into ``N.json``.  It ends once ``end`` exists.
``JOB_TURN_SECONDS``   approximate duration of the timed units of a turn
``JOB_SMOKE``          1: tiny sizes, on the CPU
``JOB_APPLY``          path of a generated ``apply.py``
``JOB_APPLY_NAMES``    names of the actions of ``apply.py`` to apply, joined by commas
=====================  ===========================================================================================
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "logparse" / "capture" / "in_job"))

import torch
import torch.distributed as dist
from logparse_in_job.turns import on_all_cores, on_one_core
from torch import nn

SMOKE = os.environ.get("JOB_SMOKE") == "1"
DEVICE = torch.device("cpu" if SMOKE else f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
_SECONDS, _LEAST = float(os.environ.get("JOB_SECONDS", "6")), int(os.environ.get("JOB_UNITS", "64"))
_TURNS = Path(os.environ["JOB_TURNS"]) if "JOB_TURNS" in os.environ else None
_TURN_SECONDS = float(os.environ.get("JOB_TURN_SECONDS", "0.15"))
_FIRST, _TIMED, _SETTLE = 6, 4, 2
"""Three numbers of steps.

* ``_FIRST``: steps before any step is timed, in which libraries choose their kernels.
* ``_TIMED``: steps whose time decides how many steps are done.
* ``_SETTLE``: steps at the beginning of a turn, after which the device is as busy as before the pause.
"""


def sized(full: Any, small: Any) -> Any:
    """Return ``full``, or in a test on a CPU ``small``. Both are sizes."""
    return small if SMOKE else full


def network(model: nn.Sequential) -> nn.Sequential:
    """Return the image network unchanged. For a test on a CPU, return only its first stage and an output layer."""
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))
    return nn.Sequential(*list(model)[:5], *head) if SMOKE else model


def finish() -> None:
    """Wait until the device has done all work."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def applied(model: nn.Module) -> nn.Module:
    """Apply the changes that the environment variables ``JOB_APPLY`` and ``JOB_APPLY_NAMES`` name. Return the model.

    This must be called before the model is wrapped, and before its optimizer is made.
    """
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


def run(unit: Callable[[int], object], kinds: int = 1, settle: int = _SETTLE) -> None:
    """Call ``unit`` once for each step, with the number of the step, until the time is over.

    If the job takes turns with another process, ``unit`` is called only in this job's turns. ``paced`` yields the
    numbers.
    """
    for index in paced(kinds, settle):
        unit(index)


def paced(kinds: int = 1, settle: int = _SETTLE) -> Iterator[int]:
    """Yield a number each time the next step should begin, until the time is over or the turns have ended.

    * All ranks do the same number of steps. It is a multiple of ``kinds``, the number of kinds of steps.
    * In a turn, the first ``settle`` steps are not timed. The other steps are timed as a whole, without waiting for the
      device in between.
    * If a library has a loop of its own, the program takes the next number where a step ends, and ends the library's
      loop after the last number.
    """

    def seconds(count: int) -> Generator[int, None, float]:
        finish()
        begun = time.perf_counter()
        yield from range(count)
        finish()
        return time.perf_counter() - begun

    def units_in(whole: float, least: float = 1.0) -> Generator[int, None, int]:
        yield from seconds(_FIRST)
        times = []
        for _ in range(_TIMED):
            times.append((yield from seconds(kinds)))
        # The minimum is taken, because `tune` may meanwhile make a unit wait for its turn.
        return _agreed(kinds * math.ceil(max(least, min(whole / (min(times) / kinds), 20_000)) / kinds))

    if _TURNS is None:
        yield from seconds((yield from units_in(_SECONDS, _LEAST)))
        return
    count = 0
    for number in _turns():
        # The units are counted alone on the device, because libraries choose their kernels by time.
        count = count or (yield from units_in(_TURN_SECONDS))
        held = on_one_core(number)
        yield from seconds(settle * kinds)
        on_all_cores(held)
        spent = yield from seconds(count)
        _report(number, {"all": [spent / count]}, count, {"all": 1.0})


def serve(answer: Callable[[int], object], choose: Callable[[], int], shares: dict[int, float]) -> None:
    """Answer requests of random sizes until the time is over. During the turns of another process, wait.

    ``choose`` draws the size of each request. ``shares`` has the probability of each size.
    """
    # Each answer is timed, because a server waits for it. In the average of the times, a size is weighted by its
    # probability, and not by how often it was drawn. If the job takes turns with another process, it waits in the
    # other's turns.

    def answered(least: int, seconds: float) -> list[tuple[int, float]]:
        begun, times = time.perf_counter(), list[tuple[int, float]]()
        while len(times) < least or (time.perf_counter() - begun < seconds and len(times) < 20_000):
            size, start = choose(), time.perf_counter()
            answer(size)
            finish()
            times.append((size, time.perf_counter() - start))
        return times

    def begin() -> None:
        for size in shares:
            for _ in range(_FIRST):
                answer(size)
        finish()

    if _TURNS is None:
        begin()
        answered(_LEAST, _SECONDS)
        return
    for number in _turns():
        if not number:
            begin()
        held = on_one_core(number)
        answered(_SETTLE, 0.0)
        on_all_cores(held)
        times = answered(len(shares), _TURN_SECONDS)
        by_size = {str(size): [us for one, us in times if one == size] for size in shares}
        _report(number, by_size, len(times), {str(size): share for size, share in shares.items()})


def _report(number: int, seconds: dict[str, list[float]], units: int, shares: dict[str, float]) -> None:
    """Write the file ``N.json``, which says how long a step took on average in turn N.

    If there are several kinds of steps, ``shares`` holds the weight of each kind in the average.
    """
    if _TURNS is None or (dist.is_initialized() and dist.get_rank()):
        return
    means = {name: math.fsum(held) / len(held) for name, held in seconds.items() if held}
    total = math.fsum(shares[name] for name in means)
    mean = math.fsum(shares[name] * each for name, each in means.items()) / total
    found = {"unit_us": 1e6 * mean, "units": units, "kinds_us": {name: 1e6 * each for name, each in means.items()}}
    part = _TURNS / f"{number}.part"
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(_TURNS / f"{number}.json")


def _turns() -> Iterator[int]:
    """Wait for permission to work, again and again, and yield the number of each permitted turn.

    Turn 3 may begin when the file ``3.go`` exists.
    """
    # The benchmark lets several processes work in turns. Each rank looks for the files itself. If a rank waited for
    # another rank in a collective operation instead, it would keep its GPU busy.
    assert _TURNS is not None
    if dist.is_initialized():
        _agreed(0)
    finish()
    if not dist.is_initialized() or not dist.get_rank():
        (_TURNS / "ready").touch()
    for number in itertools.count():
        while not (_TURNS / f"{number}.go").exists():
            if (_TURNS / "end").exists():
                return
            time.sleep(0.005)
        yield number


def _agreed(count: int) -> int:
    """Make all ranks of a distributed job do the same number of steps. Returns the number that rank 0 has computed.

    ``count`` is the number that this rank has computed.
    """
    if not dist.is_initialized():
        return count
    held = torch.tensor([count], device=DEVICE)
    dist.broadcast(held, 0)
    return int(held.item())


def begin() -> tuple[int, int]:
    """Join the other ranks, and return this rank's number and the number of ranks."""
    if DEVICE.type == "cuda":
        torch.cuda.set_device(DEVICE)
        dist.init_process_group("nccl", device_id=DEVICE)
    else:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    return dist.get_rank(), dist.get_world_size()
