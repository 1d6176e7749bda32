"""Measure how much time the observer of ``capture --trace`` adds to a call of a model and to an optimizer's step.

    python benchmarks/observer_cost.py                 # on the GPU, if there is one
    python benchmarks/observer_cost.py --device cpu

A process without the observer and a process with it run at the same time and measure in turns, so that other work on
the machine affects both alike. Two processes of one program differ by tens of µs per call, because their memory has
another layout. So several pairs of processes are started, and the result is the median over the pairs.

The cost is measured in a small network, a U-Net with 57 calls of modules, because between two of its functions the
network's operators use the processor's caches. In a loop that does nothing else the observer costs less (*hot*).

===============  ====================================================================================================
measure          difference between the observed process and the plain process
===============  ====================================================================================================
outermost_us     a call of the network without gradients, after the traced windows.  The network calls
                 ``module.forward`` within, so that the observer sees only the outermost call
inner_us         a call of the same network with ``module(…)`` within, less ``outermost_us``, per module
forward_us       a call of the same network with gradients, before a backward pass and an optimizer's step
optimizer_us     that optimizer's step
step_share       ``outermost_us`` + 150 ``inner_us`` (GPT-2 has 150 modules) + ``optimizer_us``, divided by 30 ms
hot_…            the same from loops of ``nn.Identity``: the least time of each loop
===============  ====================================================================================================

On the CPU the time is the thread's CPU time, because other programs may use the same cores. With a GPU it is the time
until the host has issued the call. Each process gives the lower quartile of the calls of a turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "job_programs"))

LIMITS = {"outermost_us": 40.0, "inner_us": 1.5, "step_share": 0.001}
"""Largest allowed costs: µs per call of the model, µs per module within it, and fraction of a step of 30 ms."""
INNER, STEP_US = 150, 30e3
STARTS, TURNS, CALLS, WARM_UP = 7, 10, 40, 400
HOT_LOOP = 60


class Programs:
    """The loops whose times one process measures, to find out what the observer of logparse costs."""

    def __init__(self, device: str) -> None:
        import torch
        from clients import Unet
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._device, self._torch = device, torch
        self.full, self.flat = Unet(16).to(device).eval(), _without_inner_calls(Unet(16).to(device).eval())
        self._inputs = torch.randn(1, 4, 16, 16, device=device), torch.randn(1, 64, device=device)
        self._optimizer: Any = None
        self._leaf, self._tree = nn.Identity(), nn.Sequential(*[nn.Identity() for _ in range(INNER)])
        with torch.inference_mode():
            for _ in range(WARM_UP):  # The observer's windows are traced during this loop
                self.full(*self._inputs)

    def calls(self) -> dict[str, float]:
        with self._torch.inference_mode():
            return {
                "flat": self._quartile(lambda: self.flat(*self._inputs)),
                "full": self._quartile(lambda: self.full(*self._inputs)),
            }

    def steps(self) -> dict[str, float]:
        if self._optimizer is None:
            self._optimizer = self._torch.optim.SGD(self.full.parameters(), lr=1e-6)
            for _ in range(WARM_UP):
                self._step([], [])
        forward: list[float] = []
        step: list[float] = []
        for _ in range(CALLS):
            self._step(forward, step)
        return {"forward": _lower(forward), "step": _lower(step)}

    def hot(self) -> dict[str, float]:
        x = self._torch.ones(1, 8, device=self._device)
        found = {}
        with self._torch.inference_mode():
            for name, module, count in (("leaf", self._leaf, HOT_LOOP), ("tree", self._tree, HOT_LOOP // 4)):
                began = time.perf_counter()
                for _ in range(count):
                    module(x)
                found[name] = 1e6 * (time.perf_counter() - began) / count
        return found

    def _step(self, forward: list[float], step: list[float]) -> None:
        loss: list[Any] = []
        forward.append(self._us(lambda: loss.append(self.full(*self._inputs).square().mean())))
        loss[0].backward()
        step.append(self._us(self._optimizer.step))
        self._optimizer.zero_grad()

    def _quartile(self, function: Callable[[], Any]) -> float:
        return _lower([self._us(function) for _ in range(CALLS)])

    def _us(self, function: Callable[[], Any]) -> float:
        clock = time.thread_time
        if self._device != "cpu":
            clock = time.perf_counter
            self._torch.cuda.synchronize()
        began = clock()
        function()
        return 1e6 * (clock() - began)


def _without_inner_calls(network: Any) -> Any:
    """Change a network so that calls of the modules in it are not seen by the observer of logparse.

    The observer wraps ``__call__`` of modules. So each module in the network gets ``forward`` as its ``__call__``.
    """
    for module in list(network.modules())[1:]:
        kind = type(module)
        module.__class__ = type(kind.__name__, (kind,), {"__call__": kind.forward})
    return network


def _inner_calls() -> int:
    """Return how many modules are called within one call of the test network."""
    import torch
    from clients import Unet

    network, called = Unet(16).eval(), []
    for module in list(network.modules())[1:]:
        module.register_forward_hook(lambda *_: called.append(1))
    network(torch.randn(1, 4, 16, 16), torch.randn(1, 64))
    return len(called)


def _lower(found: Sequence[float]) -> float:
    return statistics.quantiles(found, n=4)[0]


def child(device: str) -> None:
    """Measure in a separate process: read the name of a measurement loop per line from stdin, and print its times.

    The names are methods of ``Programs``, for example ``flat``.
    """
    programs = Programs(device)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(programs, line.strip())()), flush=True)


def started(device: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", "--device", device]
    return subprocess.Popen(command, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asked(process: subprocess.Popen[str], loop: str) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(loop + "\n")
    process.stdin.flush()
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def pair(device: str, folder: str, turns: int) -> tuple[dict[str, float], dict[str, float]]:
    """Start a process with the observer and one without it, and let them measure in turns.

    Returns two mappings in µs: the additional time of the observed process, and the time of the plain process.
    """
    from logparse.capture import with_overrides

    environ = with_overrides.with_torch(os.environ, with_overrides.UNITS_FILE)
    environ |= {"LOGPARSE_TRACE_DIR": folder, "LOGPARSE_TRACE_UNITS": "2"}
    common = {"JOB_SMOKE": "1", "OMP_NUM_THREADS": "1"}
    plain, observed = started(device, {**os.environ, **common}), started(device, {**environ, **common})
    for process in (plain, observed):
        assert process.stdout is not None
        process.stdout.readline()
    more: dict[str, float] = {}
    typical: dict[str, float] = {}
    for loop, summary in (("calls", statistics.median), ("hot", min), ("steps", statistics.median)):
        found: dict[int, list[dict[str, float]]] = {id(plain): [], id(observed): []}
        for turn in range(turns):
            for process in (plain, observed) if turn % 2 else (observed, plain):
                found[id(process)].append(asked(process, loop))
        for name in found[id(plain)][0]:
            times = [[x[name] for x in found[id(process)]] for process in (plain, observed)]
            more[name], typical[name] = summary(times[1]) - summary(times[0]), summary(times[0])
    for process in (plain, observed):
        process.communicate()
    return more, typical


def cost(more: Mapping[str, float], modules: int) -> dict[str, float]:
    """Compute how much time the observer (tracing code in a running job) adds to each kind of call.

    * ``more`` has the additional time of the observed process in µs, for each measurement loop.
    * ``modules`` is the number of modules that the measured network calls.

    Times are returned in µs. ``step_share`` is the added fraction of a training step of 30 ms.
    """
    outermost, inner, step = more["flat"], (more["full"] - more["flat"]) / modules, more["step"]
    return {
        "outermost_us": outermost,
        "inner_us": inner,
        "forward_us": more["forward"],
        "optimizer_us": step,
        "step_share": (outermost + INNER * inner + step) / STEP_US,
        "hot_outermost_us": more["leaf"],
        "hot_inner_us": (more["tree"] - more["leaf"]) / INNER,
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--starts", type=int, default=STARTS, help="pairs of processes (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of each process (default: %(default)s)")
    options = parser.parse_args(words)
    if options.child:
        child(options.device)
        return 0
    os.environ["JOB_SMOKE"] = "1"
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    modules, found = _inner_calls(), []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.starts):
            more, typical = pair(device, folder, options.turns)
            found.append(cost(more, modules))
    result = {key: statistics.median(x[key] for x in found) for key in found[0]}
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    for key, value in result.items():
        limit, values = LIMITS.get(key), [x[key] for x in found]
        against = f", goal at most {limit:g}: {'held' if value <= limit else 'MISSED'}" if limit else ""
        between = f"(pairs: {min(values):.4g} to {max(values):.4g})"
        print(f"{name} torch {torch.__version__}: {key} {value:.4g} {between}{against}")
    print(f"the last plain process (us): { {key: round(us, 1) for key, us in typical.items()} }")
    return int(any(result[key] > limit for key, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
