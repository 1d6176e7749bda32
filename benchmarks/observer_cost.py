"""Measure how much time the observer of ``capture --trace`` adds to a call of a model and to an optimizer's step.

    python benchmarks/observer_cost.py                 # on the GPU, if there is one
    python benchmarks/observer_cost.py --device cpu
    python benchmarks/observer_cost.py --against OLD   # OLD: a checkout of another version; the two take turns

The observer is the code of logparse that runs inside a user's job. A call with it and a call without it take turns in
one process, in the order ABBA. Two processes would have other memory layouts, and then equal programs differ by more
than the observer costs. The result of a process is the median difference of neighbouring calls. Several processes are
started, and the result is the median over them.

The cost is measured in a small network, a U-Net with 57 calls of modules, because between two of its functions the
network's operators use the processor's caches. In a loop that does nothing else the observer costs less (*hot*).

===============  ====================================================================================================
measure          additional time of
===============  ====================================================================================================
outermost_us     a call of the network without gradients, after the traced windows.  The network calls
                 ``module.forward`` within, so that the observer sees only the outermost call
inner_us         a call of the same network with ``module(…)`` within, less ``outermost_us``, per module
forward_us       a call of the same network with gradients, before a backward pass and an optimizer's step
optimizer_us     that optimizer's step
host_share       ``outermost_us`` + 150 ``inner_us`` (GPT-2 has 150 modules) + ``optimizer_us``, divided by 30 ms.
                 The host's additional time, also where it delays nothing because the GPU is still at work
step_share       a training step of a transformer of about 30 ms, relative to such a step without the observer.  The
                 host issues it in less than half of that time.  The job waits for the GPU after each step, so that
                 the host's time before the first kernel counts
running_share    the same for a job that waits for the GPU only once in three steps
issued_share     the time in which the host issues such a step, relative to the step
hot_…            the same as above from loops of ``nn.Identity``
===============  ====================================================================================================

On the CPU the time is the thread's CPU time, because other programs may use the same cores. With a GPU it is the time
until the host has issued the call, and for ``step_share`` and ``running_share`` the time until the GPU has ended.

A share is judged by the 95 % interval of the median over the processes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
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

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"outermost_us": 40.0, "inner_us": 1.5, "step_share": 0.001, "running_share": 0.001}
"""Largest allowed costs: µs per call of the model, µs per module within it, and fraction of a step of 30 ms."""
INNER, STEP_US = 150, 30e3
STARTS, PAIRS, WARM_UP = 8, 600, 400
HOT_LOOP = 60
LAYERS, WIDTH, TOKENS = 4, 2048, 512
"""Layers of the transformer, width of a token, and tokens of a sequence."""
STEP_PAIRS, RUN, RUN_PAIRS = 120, 3, 80
"""How many pairs of the transformer's steps are timed, steps of a run without a wait for the GPU, and pairs of runs."""


class Sides:
    """Switches the observer in this process off and on: its wrapper of modules, and its hook on optimizers."""

    def __init__(self) -> None:
        import torch
        from torch.optim import optimizer

        self._module, self._hooks = torch.nn.Module, optimizer._global_optimizer_post_hooks
        wrapper = torch.nn.Module.__call__
        self._names = [name for name, value in vars(torch.nn.Module).items() if value is wrapper]
        self._calls, self._kept = (_plain_call, wrapper), dict(self._hooks)
        if len(self._names) < 2 or not self._kept:
            raise SystemExit("the observer is not installed in this process")

    def switch(self, on: bool) -> None:
        for name in self._names:
            setattr(self._module, name, self._calls[on])
        self._hooks.clear()
        self._hooks.update(self._kept if on else {})


def _plain_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """PyTorch's own ``Module.__call__`` (``_wrapped_call_impl``), which the observer replaces."""
    if self._compiled_call_impl is not None:
        return self._compiled_call_impl(*args, **kwargs)
    else:  # noqa: RET505
        return self._call_impl(*args, **kwargs)


class Programs:
    """The calls whose times one process measures, to find out what the observer of logparse costs."""

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
        self._issued_us: list[float] = []
        self._sides = Sides()
        self._leaf, self._tree = nn.Identity(), nn.Sequential(*[nn.Identity() for _ in range(INNER)])
        with torch.inference_mode():
            for _ in range(WARM_UP):  # The observer's windows are traced during this loop
                self.full(*self._inputs)

    def found(self, of_calls: bool) -> tuple[dict[str, float], dict[str, float]]:
        """Return the additional time of each kind of call, and the time of such a call without the observer, µs.

        Without ``of_calls``, only training steps are timed.
        """
        timed = self._time_calls() if of_calls else {}
        steps = self._training_steps()
        timed["training"] = self._compared(lambda: steps(1), pairs=STEP_PAIRS)
        timed["running"] = self._compared(lambda: steps(RUN), pairs=RUN_PAIRS, first=lambda: steps(1))
        timed["issued"] = (0.0, statistics.median(self._issued_us))
        return {name: x[0] for name, x in timed.items()}, {name: x[1] for name, x in timed.items()}

    def _time_calls(self) -> dict[str, Any]:
        x = self._torch.ones(1, 8, device=self._device)
        with self._torch.inference_mode():
            timed = {
                "flat": self._compared(lambda: [self._us(lambda: self.flat(*self._inputs))]),
                "full": self._compared(lambda: [self._us(lambda: self.full(*self._inputs))]),
                "leaf": self._compared(lambda: [_time_calls(self._leaf, x, HOT_LOOP)]),
                "tree": self._compared(lambda: [_time_calls(self._tree, x, HOT_LOOP // 4)]),
            }
        self._optimizer = self._torch.optim.SGD(self.full.parameters(), lr=1e-6)
        for _ in range(WARM_UP):
            self._step()
        timed["forward"], timed["step"] = self._compared(self._step, 2)[:2]
        return timed

    def _compared(
        self,
        times: Callable[[], list[float]],
        count: int = 1,
        pairs: int = PAIRS,
        first: Callable[[], Any] | None = None,
    ) -> Any:
        """Time something with and without the observer in turns (ABBA).

        Returns (median difference, median time without the observer) in µs. If ``times`` returns ``count`` times, the
        result is a list with such a pair for each. ``first`` is called before each timing (default: ``times``).
        """
        found: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        for i in range(pairs):
            seen: dict[bool, list[float]] = {}
            for on in (False, True) if i % 2 else (True, False):
                self._sides.switch(on)
                (first or times)()  # Python looks up a changed method anew in the first call
                seen[on] = times()
            for kept, *values in zip(found, seen[True], seen[False], strict=True):
                kept.append((values[0] - values[1], values[1]))
        self._sides.switch(True)
        medians = [tuple(map(statistics.median, zip(*kept, strict=True))) for kept in found]
        return medians if count > 1 else medians[0]

    def _step(self) -> list[float]:
        loss: list[Any] = []
        forward = self._us(lambda: loss.append(self.full(*self._inputs).square().mean()))
        loss[0].backward()
        step = self._us(self._optimizer.step)
        self._optimizer.zero_grad()
        return [forward, step]

    def _training_steps(self) -> Callable[[int], list[float]]:
        """Return a function that makes a number of training steps of a transformer, and returns their time in µs.

        The batch is so large that a step takes about 30 ms. The host waits for the GPU after the last step.
        """
        torch, nn = self._torch, self._torch.nn
        layer = nn.TransformerEncoderLayer(WIDTH, WIDTH // 64, 4 * WIDTH, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, LAYERS if self._device != "cpu" else 1).to(self._device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

        def steps(batch: Any, number: int) -> list[float]:
            def whole() -> None:
                began = time.perf_counter()
                for _ in range(number):
                    model(batch).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                self._issued_us.append(1e6 * (time.perf_counter() - began) / number)
                if self._device != "cpu":
                    torch.cuda.synchronize()

            return [self._us(whole)]

        sequences = 1
        while True:
            batch = torch.randn(sequences, TOKENS, WIDTH, device=self._device)
            if statistics.median(steps(batch, 1)[0] for _ in range(WARM_UP // 20)) >= 0.9 * STEP_US:
                break
            sequences += 1
        for _ in range(WARM_UP // 2):  # The observer traces some steps here
            steps(batch, 1)
        self._issued_us.clear()
        return lambda number: steps(batch, number)

    def _us(self, function: Callable[[], Any]) -> float:
        clock = time.thread_time
        if self._device != "cpu":
            clock = time.perf_counter
            self._torch.cuda.synchronize()
        began = clock()
        function()
        return 1e6 * (clock() - began)


def _half_width(values: Sequence[float]) -> float:
    """Return half the width of the median's 95 % interval.

    The interval's ends are two of the sorted values. Their places follow from the binomial distribution.
    """
    ordered, off = sorted(values), math.ceil(0.98 * math.sqrt(len(values)))
    middle = len(ordered) // 2
    return (ordered[min(middle + off, len(ordered) - 1)] - ordered[max(middle - off, 0)]) / 2


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


def _time_calls(module: Any, x: Any, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        module(x)
    return 1e6 * (time.perf_counter() - began) / count


_ENVIRON = """
import json, os
from logparse.capture import with_overrides
print(json.dumps(dict(with_overrides.with_torch(os.environ, with_overrides.UNITS_FILE))))
"""
"""Program that prints the environment of a job with the observer of the checkout in which it runs."""


def observed(
    device: str, folder: str, of_calls: bool = True, tree: Path = ROOT
) -> tuple[dict[str, float], dict[str, float]]:
    """Start a process with the observer of a checkout, which measures what the observer adds to each kind of call.

    Returns two mappings in µs: the additional times, and the times without the observer.
    """
    here = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))}

    def printed(words: Sequence[str], environ: Mapping[str, str]) -> Any:
        done = subprocess.run(words, env=environ, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    environ = printed([sys.executable, "-c", _ENVIRON], here)
    environ |= {"LOGPARSE_TRACE_DIR": folder, "LOGPARSE_TRACE_UNITS": "2", "JOB_SMOKE": "1", "OMP_NUM_THREADS": "1"}
    script = str(tree / "benchmarks" / "observer_cost.py")
    command = [sys.executable, script, "--child", "--device", device, *([] if of_calls else ["--steps"])]
    more, typical = printed(command, environ)
    return more, typical


def cost(more: Mapping[str, float], typical: Mapping[str, float], modules: int) -> dict[str, float]:
    """Compute how much time the observer (tracing code in a running job) adds to each kind of call.

    * ``more`` has the additional time of each kind of call in µs, and ``typical`` its time without the observer.
    * ``modules`` is the number of modules that the measured network calls.

    Times are returned in µs. The shares are fractions of a training step of about 30 ms.
    """
    shares = {
        "step_share": more["training"] / typical["training"],
        "running_share": more["running"] / typical["running"],
        "issued_share": typical["issued"] / typical["training"],
    }
    if "flat" not in more:
        return shares
    outermost, inner, step = more["flat"], (more["full"] - more["flat"]) / modules, more["step"]
    return shares | {
        "outermost_us": outermost,
        "inner_us": inner,
        "forward_us": more["forward"],
        "optimizer_us": step,
        "host_share": (outermost + INNER * inner + step) / STEP_US,
        "hot_outermost_us": more["leaf"],
        "hot_inner_us": (more["tree"] - more["leaf"]) / INNER,
    }


def _judge(value: float, unsure: float, limit: float) -> str:
    if value - unsure > limit:
        return "MISSED"
    return "held" if value + unsure <= limit else f"not known, because of ± {unsure:.2g}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--results", type=Path, help="folder for the raw record (default: none is written)")
    parser.add_argument("--starts", type=int, default=STARTS, help="number of processes (default: %(default)s)")
    parser.add_argument("--steps", action="store_true", help="time only training steps, which takes half as long")
    parser.add_argument("--against", type=Path, help="a checkout of another version, measured in turns with this one")
    options = parser.parse_args(words)
    if options.child:
        print(json.dumps(Programs(options.device).found(of_calls=not options.steps)))
        return 0
    os.environ["JOB_SMOKE"] = "1"
    import torch
    from gpu_driver import driver

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    modules, found, against = _inner_calls(), [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.starts):
            more, typical = observed(device, folder, not options.steps)
            found.append(cost(more, typical, modules))
            if options.against is not None:
                against.append(cost(*observed(device, folder, not options.steps, options.against.resolve()), modules))
    result = {key: statistics.median(x[key] for x in found) for key in found[0]}
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    missed = False
    for key, value in result.items():
        limit, values = LIMITS.get(key), [x[key] for x in found]
        unsure = _half_width(values) if key in ("step_share", "running_share") else 0.0
        goal = f", goal at most {limit:g}: {_judge(value, unsure, limit)}" if limit else ""
        missed = missed or (limit is not None and value - unsure > limit)
        between = f"(processes: {min(values):.4g} to {max(values):.4g})"
        print(f"{name} torch {torch.__version__}: {key} {value:.4g} {between}{goal}")
        if others := [x[key] for x in against]:
            print(f"  {options.against}: {statistics.median(others):.4g} ({min(others):.4g} to {max(others):.4g})")
    if options.results:
        record: dict[str, Any] = {
            "device": name,
            "driver": driver(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        record["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        record |= {"processes": found, "without_observer_us": typical} | ({"against": against} if against else {})
        when = record["date"][:16].replace(":", "")
        path = options.results / f"observer-cost-{name.replace(' ', '-')}-{when}.json"
        path.write_text(json.dumps(record) + "\n")
    print(f"without the observer, in the last process (us): { {key: round(us, 1) for key, us in typical.items()} }")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
