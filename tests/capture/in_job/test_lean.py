"""Test that ``lean.py`` counts calls and steps exactly as the observer's full functions do.

The same random program runs in two jobs. In one of them ``lean.py`` is switched off.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.capture.in_job.observed import Server, observer_environ
from tests.conftest import sized

_PROGRAM = """
import gc, json, os, random, sys, threading
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from logparse_in_job import install, lean

observer = install.observer
if os.environ["LEAN"] == "no":
    lean.Lean.on = property(lambda self: False, lambda self, on: None)
observer.tracing._windows.end()  # all traces are written
seed = int(os.environ["SEED"])
choose = random.Random(seed)
torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

    def forward(self, x=None, other=None, more=None, fails=False):
        if fails:
            raise ValueError
        if isinstance(x, (list, tuple, dict)):
            x = next(iter(x.values())) if isinstance(x, dict) else x[0]
        return x if x is None or x.is_sparse or x.is_nested or x.dtype != torch.float32 else self.layers(x)


class Changing(Net):  # its calls change the shapes of their inputs
    def forward(self, x):
        return super().forward(x.popitem()[1] if isinstance(x, dict) else x.unsqueeze_(0))


class Outer(torch.optim.SGD):  # its step calls another optimizer's step
    def step(self, closure=None):
        made[0].step()
        return super().step(closure)


class Seeing(TorchFunctionMode):
    seen = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        Seeing.seen += 1
        return function(*args, **(kwargs or {}))


class Plain(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


nets = [Net(), Net()]
changing = Changing()
traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4)))
made = [torch.optim.SGD(nets[0].parameters(), lr=1e-3), torch.optim.Adam(nets[1].parameters(), lr=1e-3)]
made.append(Outer(nets[0].parameters(), lr=1e-3))


def rows():
    return torch.rand(choose.choice((1, 2, 3, 5)), 4)


def call(net):
    x = rows()
    choose.choice((
        lambda: net(x), lambda: net(x), lambda: net(x), lambda: net(x=x), lambda: net(x, other=rows()),
        lambda: net([x]), lambda: net({"x": x}), lambda: net((x, x)), lambda: net(x, x, x), lambda: net(),
        lambda: net(x.to_sparse()), lambda: net(x.long()), lambda: net(torch.nested.nested_tensor([x, x])),
        lambda: net(torch.nn.Parameter(x)), lambda: net(x.double().as_subclass(Sub)),
    ))()


class Sub(torch.Tensor): ...


def change(net):
    with torch.set_grad_enabled(choose.random() < 0.5):
        for _ in range(choose.randrange(1, 4)):
            changing({"x": rows()} if choose.random() < 0.3 else rows())


def request(net):
    with torch.no_grad():
        for _ in range(choose.randrange(1, 4)):
            call(net)


def train(net):
    for _ in range(choose.choice((1, 1, 1, 2))):
        net(rows()).sum().backward()
    (made[0] if net is nets[0] else made[1]).step()


def usual_training(net):
    net = nets[0]
    for _ in range(choose.randrange(1, 12)):
        train(net)


def fails(net):
    with torch.set_grad_enabled(choose.random() < 0.5):
        try:
            net(rows(), fails=True)
        except ValueError:
            pass


def fails_after_a_usual_call(net):
    net(rows()).sum().backward()
    net(rows()).sum().backward()
    with Plain():
        try:
            net(rows(), fails=True)
        except ValueError:
            pass


def elsewhere(function):
    def run(net):
        thread = threading.Thread(target=function, args=(net,))
        thread.start()
        thread.join()
    return run


def under(mode):
    def run(net):
        with mode():
            net(torch.zeros(2, 4))
            if choose.random() < 0.5:
                made[0].step()
    return run


def profiled(net):
    sys.setprofile(lambda *_: None)
    net(torch.zeros(1, 4))
    sys.setprofile(None)


def transformed(net):
    torch.vmap(net)(torch.zeros(2, 1, 4))


def recorded(net):
    with torch.no_grad():
        torch.jit.trace(net, torch.zeros(2, 4), check_trace=False)


def recomputed(net):
    checkpoint(net, torch.zeros(2, 4, requires_grad=True), use_reentrant=True).sum().backward()


def nested(net):
    made[2].step()


def another(net):  # a module and an optimizer that are gone at once
    net = Net()
    net(rows()).sum().backward()
    torch.optim.SGD(net.parameters(), lr=1e-3).step()
    del net
    gc.collect()


def phase(net):
    for _ in range(12):
        nets[1](rows()).sum().backward()
        made[1].step()


def graph(net):
    traced(rows())


def named(net):
    with torch.no_grad():
        work(net)


def work(net):
    for _ in range(choose.randrange(1, 4)):
        net(rows())
        made[0].step()


def begun_elsewhere(net):  # the optimizer's step is made in a thread that has called no model
    net(rows()).sum().backward()
    elsewhere(lambda net: made[0].step())(net)


def finalized(net):
    class Last:
        def __del__(self):
            net(torch.zeros(1, 4))
    Last()


work = install._around(
    observer,
    work,
    observer.guard(lambda args, kwargs: observer.begin_function("request", args, kwargs)),
    observer.guard(lambda token, whole: observer.end_function("request", token, whole)),
)
ways = [call, request, train, usual_training, usual_training, fails, elsewhere(call), elsewhere(train), under(Plain)]
ways += [under(Seeing), profiled, transformed, recorded, recomputed, nested, another, graph, named]
ways += [begun_elsewhere, finalized, fails_after_a_usual_call, change, change]
if seed % 2:
    ways.append(phase)
for _ in range(int(os.environ["TIMES"])):
    choose.choice(ways)(choose.choice(nets))
    observer.tracing._windows.end()  # another optimizer has led to new windows
child = os.fork()
for _ in range(5):
    usual_training(nets[0])
if not child:
    observer.at_end()
    os._exit(0)
os.waitpid(child, 0)
counted = sum(counter.count for _, found in observer.lean._threads for counter in found.values())
observer.at_end()
found = {sort: {name: kind.count for name, kind in x.kinds.items()} for sort, x in observer._series.items()}
assert all(sum(found[sort].values()) == x.count for sort, x in observer._series.items())
print(json.dumps([counted, observer.guard.why, [found, Seeing.seen]]))
"""


def counted(server: Server, folder: Path, lean: str, seed: int, times: int) -> tuple[int, object, list[object]]:
    """Run the random program. Return how many calls ``lean.py`` counted, all counts, and the counts in the files."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    environ = observer_environ(logs) | {"SEED": str(seed), "LEAN": lean, "TIMES": str(times)}
    out, _ = server.output_of(_PROGRAM, folder, environ)
    (by_lean, why, found) = json.loads(out.splitlines()[-1])
    assert not why
    files = [json.loads(path.read_text()) for path in logs.glob("units_*.json")]
    assert len(files) == 2, "the job and the process that it forked"
    kinds = [(x["logparse_units"], {name: kind["count"] for name, kind in x["kinds"].items()}) for x in files]
    return by_lean, found, sorted(kinds, key=str)


@pytest.mark.parametrize("seed", range(sized(3, 20)))
def test_random_programs_are_counted_alike(job_server: Server, seed: int, tmp_path: Path) -> None:
    """Every sort and name of call gets the same count with ``lean.py`` and without it.

    The program has inputs of several sizes and kinds, two models and optimizers, failing and nested calls, threads,
    modes, transforms, and a fork.
    """
    times = sized(400, 1000)
    (by_lean, found, files), full = (counted(job_server, tmp_path / lean, lean, seed, times) for lean in ("yes", "no"))
    assert (found, files) == full[1:]
    assert full[0] == 0
    assert by_lean > times // 4, "usual calls are frequent"
