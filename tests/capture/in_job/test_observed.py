"""Tests that programs behave the same with logparse's observer, and that the observer counts their steps.

The observer is logparse's code in a user's job. The first letter of a program's name tells its kind:

* c: ``torch.compile``
* d: export and graphs
* e: hooks and profilers of the program itself
* f: copies and files
* g: steps of several kinds
* h: processes
* k: devices (a class imitates a GPU's events)
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from logparse.capture import with_overrides
from logparse.capture.in_job.logparse_in_job import guard as guard_module
from logparse.capture.in_job.logparse_in_job.guard import Guard
from tests.capture.in_job.observed import Ran, Server
from tests.capture.observing import differences
from tests.conftest import ROOT

torch = pytest.importorskip("torch")

NET = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
"""
TRAIN = """
optimizer = torch.optim.AdamW(net.parameters())
def step(size=4):
    loss = net(torch.ones(size, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
GRAPHS = "from torch._dynamo.utils import counters; print(counters['stats']['unique_graphs'], counters['graph_break'])"
COMPILED_STEP = f"""
@torch.compile(backend="eager")
def whole(x): loss = net(x).square().mean(); loss.backward(); optimizer.step(); optimizer.zero_grad(); return loss
for _ in range(12): loss = whole(torch.ones(2, 8))
print(loss.item())
{GRAPHS}
print(counters["frames"])  # the functions that Dynamo tried to compile, also those without a graph
assert counters["stats"]["unique_graphs"] > 1  # a graph of the network, and a graph of the optimizer
"""

PROGRAMS = {
    "c_module": NET
    + f"""
compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
with torch.no_grad():
    for _ in range(30): compiled(torch.ones(2, 8))
{GRAPHS}
""",
    "c_many_modules_each_with_a_cache_of_its_own": f"""
import torch
nets = [torch.compile(torch.nn.Linear(8, 8 + i), backend="eager") for i in range(12)]
with torch.no_grad():
    for _ in range(3): print([tuple(net(torch.ones(2, 8)).shape) for net in nets])
{GRAPHS}
""",
    "c_function_and_training": NET
    + f"""
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
@torch.compile(backend="aot_eager")
def loss_of(x): return net(x).square().mean()
for _ in range(30):
    loss = loss_of(torch.ones(2, 8)); optimizer.zero_grad(); loss.backward(); optimizer.step()
print(loss.item())
{GRAPHS}
""",
    "c_step_with_its_optimizer": NET + TRAIN + COMPILED_STEP,
    "c_step_with_its_optimizer_and_a_hook_that_keeps_something": NET
    + TRAIN
    + "seen = []; optimizer.register_step_post_hook(lambda *args: seen.append(1))\n"
    + COMPILED_STEP,
    "c_step_with_its_optimizer_and_a_hook_that_breaks_the_graph": NET
    + TRAIN
    + "optimizer.register_step_post_hook(lambda *args: torch._dynamo.graph_break())\n"
    + COMPILED_STEP,
    "c_breaks_and_a_job_s_own_hook": f"""
import torch
class Net(torch.nn.Module):
    def __init__(self): super().__init__(); self.a = torch.nn.Linear(8, 8)
    def forward(self, x): x = self.a(x); torch._dynamo.graph_break(); return self.a(x)
net = Net(); net.a.register_forward_hook(lambda module, args, out: out * 2)
compiled = torch.compile(net, backend="eager")
with torch.no_grad():
    for _ in range(30): y = compiled(torch.ones(2, 8))
print(tuple(y.shape))
{GRAPHS}
""",
    "d_traced_and_scripted": NET
    + """
import io
net.eval()
with torch.no_grad():
    for _ in range(10): net(torch.ones(2, 8))
    traced = torch.jit.trace(net, torch.ones(2, 8)); print(traced.graph, traced.code)
    scripted = torch.jit.script(net); print(scripted.code)
    for _ in range(30): traced(torch.ones(2, 8)); scripted(torch.ones(2, 8))
torch.jit.save(scripted, "scripted.pt")
""",
    "d_exported": NET
    + """
program = torch.export.export(net.eval(), (torch.ones(2, 8),), strict=False)
print(program.graph)
with torch.no_grad():
    for _ in range(30): program.module()(torch.ones(2, 8))
""",
    "d_transformed": NET
    + """
from torch.func import functional_call, grad, vmap
values = {name: x.detach() for name, x in net.named_parameters()}
def loss(values, x): return functional_call(net, values, (x[None],)).square().sum()
for _ in range(20): found = vmap(grad(loss), (None, 0))(values, torch.ones(4, 8))
print({name: tuple(x.shape) for name, x in found.items()})
""",
    "e_own_hooks_are_called_in_their_order": NET
    + TRAIN
    + """
seen = []
net.register_forward_pre_hook(lambda module, args, named: seen.append(("pre", sorted(named))), with_kwargs=True)
net[0].register_forward_hook(lambda module, args, out: seen.append("post"))
net.register_full_backward_hook(lambda module, given, got: seen.append("backward"))
optimizer.register_step_post_hook(lambda *args: seen.append("step"))
for _ in range(30): step()
print(len(seen), seen[:6], [len(x._forward_hooks) + len(x._forward_pre_hooks) for x in net.modules()])
""",
    "e_own_profiler_every_few_steps": NET
    + TRAIN
    + """
counts = []
for round in range(8):
    for _ in range(3): step()
    with torch.profiler.profile() as profile:
        step(); step()
    counts.append(sum(x.count for x in profile.key_averages() if x.key == "aten::linear"))
print(counts, torch._C._autograd._profiler_enabled())
""",
    "e_ranges_that_outlive_windows": NET
    + TRAIN
    + """
open_ranges = []
for number in range(120):
    step()
    if number % 3 == 0:
        open_ranges.append(torch.profiler.record_function(f"range {number}").__enter__())
    if number % 5 == 4: open_ranges.pop(0).__exit__(None, None, None)
while open_ranges: open_ranges.pop().__exit__(None, None, None)
print("ended")
""",
    "e_range_around_the_step_of_an_optimizer": NET
    + TRAIN
    + """
for _ in range(60):
    net(torch.ones(2, 8)).sum().backward()
    with torch.profiler.record_function("update"): optimizer.step()
""",
    "f_copied_pickled_and_saved": NET
    + TRAIN
    + """
import copy, pickle
for number in range(30):
    step()
    best, other = copy.deepcopy(net), copy.deepcopy(optimizer)
for made in map(pickle.dumps, (net, optimizer, torch.nn.Module.__call__)): print(len(made), b"logparse" in made)
torch.save(net.state_dict(), "state.pt")
print(sorted(best.__dict__), torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl)
""",
    "f_dropped_objects_die": """
import gc, torch, weakref
alive = []
for _ in range(10):
    net = torch.nn.Linear(8, 8); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4): net(torch.ones(2, 8)).sum().backward(); optimizer.step()
    alive += [weakref.ref(net), weakref.ref(optimizer)]
del net, optimizer; gc.collect(); print(sum(x() is not None for x in alive))
""",
    "g_super_step": NET
    + """
class Clipped(torch.optim.AdamW):
    def step(self, closure=None): return super().step(closure)
plain = torch.optim.AdamW(torch.nn.Linear(8, 8).parameters())
optimizer = Clipped(net.parameters())
for _ in range(30): net(torch.ones(2, 8)).sum().backward(); optimizer.step()
""",
    "g_optimizer_that_counts_reads_of_its_attributes": NET
    + """
reads = {}
class Counting(torch.optim.SGD):
    def __getattribute__(self, name):
        reads[name] = reads.get(name, 0) + 1
        return super().__getattribute__(name)
for _ in range(3):
    optimizer = None
    optimizer = Counting(net.parameters(), lr=0.1)
    for _ in range(30): net(torch.ones(2, 8)).sum().backward(); optimizer.step()
print(sorted(reads.items()))
""",
    "g_two_optimizers_by_turns": NET
    + """
other = torch.nn.Linear(8, 8)
first, second = (torch.optim.SGD(x.parameters(), lr=0.1) for x in (net, other))
for _ in range(30):
    for _ in range(5): net(torch.ones(2, 8)).sum().backward(); first.step()
    other(torch.ones(2, 8)).sum().backward(); second.step()
""",
    "g_second_phase": NET
    + """
first, second = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
for optimizer, count in ((first, 12), (second, 40)):
    for _ in range(count): net(torch.ones(2, 8)).sum().backward(); optimizer.step()
""",
    "g_short_second_phase": NET
    + """
first, second = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
for optimizer, count in ((first, 200), (second, 6)):
    for _ in range(count): net(torch.ones(2, 8)).sum().backward(); optimizer.step()
""",
    "g_phases_whose_optimizer_is_gone": NET
    + """
for count in 100, 30, 6:
    net[:1].requires_grad_(count == 100)
    optimizer = None
    optimizer = torch.optim.SGD([x for x in net.parameters() if x.requires_grad or count == 30], lr=0.1)
    for _ in range(count): net(torch.ones(2, 8)).sum().backward(); optimizer.step()
""",
    "g_adversarial_and_then_fine_tuned": NET
    + """
other = torch.nn.Linear(8, 8)
first, second, third = (torch.optim.SGD(x.parameters(), lr=0.1) for x in (net, other, other))
for _ in range(30):
    for _ in range(5): net(torch.ones(2, 8)).sum().backward(); first.step()
    other(torch.ones(2, 8)).sum().backward(); second.step()
for _ in range(6): other(torch.ones(2, 8)).sum().backward(); third.step()
""",
    "g_optimizer_per_parameter_within_the_backward_pass": NET
    + """
optimizers = {x: torch.optim.SGD([x], lr=0.1) for x in net.parameters()}
def update(x): optimizers[x].step(); optimizers[x].zero_grad()
for x in net.parameters(): x.register_post_accumulate_grad_hook(update)
for _ in range(40): net(torch.ones(2, 8)).square().mean().backward()
""",
    "g_manual_updates": NET
    + """
for _ in range(40):
    net(torch.ones(2, 8)).square().mean().backward()
    with torch.no_grad():
        for x in net.parameters(): x -= 0.1 * x.grad; x.grad = None
""",
    "g_accumulated": NET
    + TRAIN
    + """
for number in range(120):
    net(torch.ones(4, 8)).square().mean().backward()
    if number % 4 == 3: optimizer.step(); optimizer.zero_grad()
""",
    "g_recomputed": NET
    + TRAIN
    + """
from torch.utils.checkpoint import checkpoint
for number in range(30):
    checkpoint(net, torch.ones(4, 8, requires_grad=True), use_reentrant=bool(number % 2)).sum().backward()
    optimizer.step()
""",
    "g_evaluated_before_it_is_trained": NET
    + TRAIN
    + """
with torch.no_grad():
    for _ in range(40): net(torch.ones(2, 8))
for _ in range(30): step()
""",
    "g_threads_of_a_server": NET
    + """
import concurrent.futures
def serve(number):
    with torch.inference_mode(): return net(torch.ones(1 + number % 3, 8)).shape[0]
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(serve, range(300))))
""",
    "g_threads_that_write_at_once": NET
    + """
import concurrent.futures, os, time
if "LOGPARSE_TRACE_DIR" in os.environ:
    import json
    from logparse_in_job import record
    def slowly(found): time.sleep(0.005); return json.dumps(found)
    record.Python.dumps, record._EVERY_S = slowly, 0.0
def serve(_):
    time.sleep(0.005)
    with torch.inference_mode(): return net(torch.ones(2, 8)).shape[0]
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(serve, range(200))))
""",
    "g_a_thread_for_each_request": NET
    + """
import threading
def serve():
    with torch.inference_mode(): net(torch.ones(2, 8))
for _ in range(40):
    thread = threading.Thread(target=serve); thread.start(); thread.join()
""",
    "g_trained_in_two_threads": """
import threading, torch
def work(seed):
    torch.manual_seed(seed); net = torch.nn.Linear(8, 8); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(60): net(torch.ones(4, 8)).square().mean().backward(); optimizer.step()
threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
[x.start() for x in threads]; [x.join() for x in threads]
""",
    "g_two_units": NET
    + """
with torch.no_grad(): net(torch.ones(2, 8)); net(torch.ones(2, 8))
""",
    "h_exception_out_of_a_call": NET
    + """
with torch.no_grad():
    for _ in range(12): net(torch.ones(2, 8))
net(torch.ones(2, 9))
""",
    "h_exceptions_that_the_job_catches": NET
    + """
caught = 0
with torch.no_grad():
    for number in range(60):
        try: net(torch.ones(4, 8 if number % 3 else 9))
        except RuntimeError: caught += 1
print(caught)
""",
    "h_alarm_within_our_code": NET
    + """
import signal
class Alarm(Exception): pass
def alarm(*args): raise Alarm
signal.signal(signal.SIGALRM, alarm)
with torch.no_grad():
    for number in range(60):  # one alarm each, somewhere within a call or between two
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + number % 7))
            while True: net(torch.ones(2, 8))
        except Alarm: pass
print("ended")
""",
    "h_warnings_are_errors": NET
    + TRAIN
    + """
import warnings
warnings.simplefilter("error")
for _ in range(30): step()
compiled = torch.compile(net, backend="eager")
with torch.no_grad():
    for _ in range(10): compiled(torch.ones(2, 8))
""",
    "h_warning_of_the_caller_s_line": """
import torch, warnings
class Net(torch.nn.Module):
    def forward(self, x): warnings.warn("old", UserWarning, stacklevel=4); return x
with torch.no_grad(): Net()(torch.ones(2))
""",
    "h_exit_code": NET + TRAIN + "import sys\nfor _ in range(12): step()\nsys.exit(3)\n",
    "h_left_by_os_exit": NET
    + TRAIN
    + "import os\nfor _ in range(12): step()\nprint('done', flush=True); os._exit(4)\n",
    "h_closed_standard_error": NET
    + TRAIN
    + "import sys\nsys.stderr.close()\nfor _ in range(12): step()\nprint('out')\n",
    "h_folder_is_removed": NET
    + TRAIN
    + """
import os, shutil
for number in range(60):
    step()
    if number == 1 and "LOGPARSE_TRACE_DIR" in os.environ: shutil.rmtree(os.environ["LOGPARSE_TRACE_DIR"])
print("done")
""",
    "h_forks": NET
    + TRAIN
    + """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of the profiler's thread (docs/measurement.md)
ok = 0
for number in range(40):
    step()
    if number % 4 == 2:
        child = os.fork()
        if not child: net(torch.ones(1, 8)); os._exit(0)
        ok += os.waitpid(child, 0)[1] == 0
print(ok)
""",
    "h_random_numbers_and_threads": NET
    + TRAIN
    + """
import random, threading
random.seed(1)
for _ in range(30): loss = step()
print(loss, random.random(), torch.rand(1).item(), threading.active_count())
""",
    "h_a_second_copy_of_the_observer": NET
    + TRAIN
    + """
import os, runpy
for path in os.environ.get("LOGPARSE_WITH_TORCH", "").split(os.pathsep):
    if path: runpy.run_path(path)
for _ in range(12): step()
""",
    "h_own_call": """
import torch
call = torch.nn.Module.__call__
calls = 0
def patched(self, *args, **named):
    global calls; calls += 1
    return call(self, *args, **named)
torch.nn.Module.__call__ = patched
class Own(torch.nn.Module):
    def __init__(self): super().__init__(); self.a = torch.nn.Linear(8, 8)
    def __call__(self, x): return self.a(x)
net = Own()
with torch.no_grad():
    for _ in range(12): net(torch.ones(2, 8))
print(calls)
""",
    "h_stacks_are_the_same": """
import inspect, torch, traceback, warnings
class Net(torch.nn.Module):
    def forward(self, x):
        traceback.print_stack(); warnings.warn("old", UserWarning, stacklevel=4); print(len(inspect.stack())); return x
class Bad(torch.nn.Module):
    def forward(self, x): raise ValueError
nets = [torch.nn.Sequential(Net()), torch.nn.Sequential(Bad())]
for _ in range(2): nets[0](torch.ones(2))
try: nets[1](torch.ones(2))
except ValueError as error:
    found = traceback.TracebackException.from_exception(error, capture_locals=True)
    print([(frame.name, frame.lineno, sorted(frame.locals)) for frame in found.stack])
print(torch.nn.Module.__call__.__code__.co_flags, torch.nn.Module.__call__.__closure__)
""",
    "h_recursion_strikes_at_the_same_depth": """
import torch
class Deep(torch.nn.Module):
    def forward(self, x, depth): deepest.append(depth); return self(x, depth + 1)
class Flat(torch.nn.Module):
    def forward(self, x): return x
def walk(depth): flat(torch.ones(1)); deepest.append(depth); walk(depth + 1)
deepest, flat = [], Flat()
for function in (lambda: Deep()(torch.ones(1), 0), lambda: walk(0)):
    for _ in range(3):
        try: function()
        except RecursionError: print(max(deepest)); deepest.clear()
""",
    "h_model_as_deep_as_the_stack": """
import torch
net = torch.nn.Identity()
for _ in range(220): net = torch.nn.Sequential(net)
with torch.no_grad():
    for _ in range(8): print(net(torch.ones(1)).item())
""",
    "h_attributes_are_not_read": """
import torch
class Net(torch.nn.Module):
    def __getattribute__(self, name): read.append(name); return super().__getattribute__(name)
    def __eq__(self, other): raise RuntimeError
    def __hash__(self): raise RuntimeError
    def __bool__(self): raise RuntimeError
    def forward(self, x): return x
read = []; net = Net()
for _ in range(8): net(torch.ones(2))
print(len(read), read[-6:])
""",
    "h_processes_that_multiprocessing_forks": NET
    + TRAIN
    + """
import multiprocessing
def work(number): [step() for _ in range(number)]
context = multiprocessing.get_context("fork")
children = [context.Process(target=work, args=(30 + number,)) for number in range(2)]
for x in children: x.start()
for x in children: x.join()
print([x.exitcode for x in children])
""",
    "h_workers_that_load_data": NET
    + TRAIN
    + """
class Data(torch.utils.data.Dataset):
    transform = torch.nn.Linear(2, 2)
    def __len__(self): return 240
    def __getitem__(self, number): return self.transform(torch.full((2,), float(number))).detach()
loader = torch.utils.data.DataLoader(Data(), batch_size=20, num_workers=2, multiprocessing_context="fork")
for batch in loader: step()
print(len(batch))
""",
    "h_no_file_can_be_opened": NET
    + TRAIN
    + """
import os, resource
for _ in range(6): step()
resource.setrlimit(resource.RLIMIT_NOFILE, (60, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error: print(error)
for _ in range(60): step()
""",
    "h_functions_of_python_that_a_test_replaces": NET
    + TRAIN
    + """
import json, os, time
from unittest import mock
for _ in range(10): step()
names = "time.monotonic time.perf_counter time.time time.sleep os.getpid os.replace os.remove os.path.exists json.dumps"
mocks = {name: mock.Mock(return_value=1) for name in (*names.split(), "builtins.open")}
patches = [mock.patch(name, made) for name, made in mocks.items()]
for x in patches: x.start()
for _ in range(60): step()
for x in patches: x.stop()
print({name: made.call_args_list for name, made in mocks.items()})
""",
    "h_garbage": NET
    + TRAIN
    + """
import gc
gc.collect(); gc.set_debug(gc.DEBUG_SAVEALL)
for _ in range(8): step()
gc.collect(); print([type(x) for x in gc.garbage]); gc.set_debug(0)
""",
    "e_mode_of_functions": NET
    + TRAIN
    + """
class Count(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), named=None):
        seen.append(getattr(function, "__name__", "")); return function(*args, **(named or {}))
seen = []
with Count():
    for _ in range(8): step()
print([(name, seen.count(name)) for name in sorted(set(seen)) if "record_function" in name])
""",
    "e_execution_trace": NET
    + TRAIN
    + """
import json, os
step()
observer = torch.profiler.ExecutionTraceObserver().register_callback("all.json"); observer.start()
for _ in range(8): step()
observer.stop(); observer.unregister_callback()
names = [x["name"] for x in json.load(open("all.json"))["nodes"]]; os.remove("all.json")
print(names.count("aten::linear"), [x for x in names if "ProfilerStep" in x])
for _ in range(8): step()
""",
    "c_call_of_the_job_s_own_class_and_backward_hooks": f"""
import functools, torch
class Net(torch.nn.Module):
    def __init__(self): super().__init__(); self.a = torch.nn.Linear(8, 8)
    def forward(self, x): return self.a(x)
Net.__call__ = functools.wraps(Net.__call__)(lambda *args, call=Net.__call__, **named: call(*args, **named))
net = Net(); compiled = torch.compile(net, backend="eager")
with torch.no_grad():
    for _ in range(8): net(torch.ones(2, 8)); compiled(torch.ones(2, 8))
net = torch.nn.Sequential(torch.nn.Linear(8, 8)); net.register_full_backward_hook(lambda *args: None)
compiled = torch.compile(net, backend="eager")
for _ in range(8): compiled(torch.ones(2, 8, requires_grad=True)).sum().backward()
{GRAPHS}
""",
    "c_call_that_the_job_changes": f"""
import functools, torch
class Net(torch.nn.Module):
    def forward(self, x): return x + 1
Net.__call__ = functools.wraps(Net.__call__)(lambda *args, call=Net.__call__: 2 * call(*args))
net = Net(); compiled = torch.compile(net, backend="eager")
@torch.compile(backend="eager")
def calls(x): return net(x)
with torch.no_grad():
    for _ in range(8): print(*(each(torch.ones(2)).tolist() for each in (net, compiled, calls)))
{GRAPHS}
""",
    "c_compiled_backward_pass": NET
    + TRAIN
    + f"""
torch._dynamo.config.compiled_autograd = True
@torch.compile(backend="eager")
def loss_of(x): loss = net(x).sum(); loss.backward(); return loss
for _ in range(8): loss_of(torch.ones(2, 8)); optimizer.step()
{GRAPHS}
""",
    "h_odd_inputs": """
import torch
class Odd(torch.nn.Module):
    def forward(self, *args, **named): return 1
class Mine(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), named=None): raise RuntimeError(f"{function} was called")
odd, nested = Odd(), torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged)
with torch.no_grad():
    for _ in range(4):
        odd(torch.nn.UninitializedParameter()); odd(Mine()); odd(nested); odd({"x": torch.ones(3)}, y=[torch.ones(2)])
with torch.device("meta"), torch.no_grad():
    for _ in range(4): torch.nn.Linear(8, 8)(torch.ones(2, 8))
""",
}
DEVICE = """
import time, torch
class Event:  # as on a GPU: nothing is asked of one while a stream captures, and two devices share none
    asked = 0
    def __init__(self, enable_timing=True): pass
    def record(self): self.at, self.device = time.perf_counter(), state["device"]
    def query(self):
        if state["captures"]: Event.asked += 1; raise RuntimeError("operation not permitted when stream is capturing")
        return True
    def synchronize(self): pass
    def elapsed_time(self, end):
        if self.device != end.device: raise RuntimeError("invalid resource handle")
        return 1e3 * (end.at - self.at)
state = {"captures": False, "device": 0}
torch.cuda.Event, torch.cuda.is_initialized = Event, lambda: True
torch.cuda.is_current_stream_capturing, torch.cuda.synchronize = lambda: state["captures"], lambda *args: None
"""
PROGRAMS["k_whole_step_captured"] = (
    DEVICE
    + NET
    + TRAIN
    + """
for _ in range(3): step()
state["captures"] = True
step()
state["captures"] = False
for _ in range(9): step()
print(Event.asked)
"""
)
PROGRAMS["k_forks_before_the_device_has_done_its_steps"] = (
    DEVICE
    + """
import os, signal, sys
first, Event.query = os.getpid(), lambda self: False
def __del__(self):  # CUDA ends a forked process that deletes an event of its parent
    if os.getpid() != first: os.kill(os.getpid(), signal.SIGABRT)
Event.__del__ = __del__
"""
    + NET
    + TRAIN
    + """
for _ in range(5): step()
child = os.fork()
if not child:
    torch.cuda.is_initialized = lambda: False
    step()
    sys.exit(0)
print(os.waitpid(child, 0)[1])
for _ in range(5): step()
"""
)
PROGRAMS["g_rollouts_before_the_steps"] = (
    NET
    + TRAIN
    + """
for _ in range(30):
    with torch.no_grad():
        for _ in range(40): net(torch.ones(2, 8))
    print(step())
"""
)
PROGRAMS["k_two_devices_by_turns"] = (
    DEVICE
    + NET
    + TRAIN
    + """
for number in range(40): state["device"] = number % 2; step()
"""
)
PROGRAMS["k_copied_on_a_device"] = (
    DEVICE
    + NET
    + TRAIN
    + """
import copy
for _ in range(12): step(); best = copy.deepcopy(net)
print(len(best._forward_hooks))
"""
)
UNITS = {
    "k_whole_step_captured": ("optimizer", 12),
    "k_two_devices_by_turns": ("optimizer", 40),
    "k_copied_on_a_device": ("optimizer", 12),
    "g_super_step": ("optimizer", 30),
    "g_two_optimizers_by_turns": ("optimizer", 150),
    "g_second_phase": ("optimizer", 52),
    "g_short_second_phase": ("optimizer", 206),
    "g_phases_whose_optimizer_is_gone": ("optimizer", 136),
    "g_adversarial_and_then_fine_tuned": ("optimizer", 156),
    "g_optimizer_per_parameter_within_the_backward_pass": ("optimizer", 40),
    "g_manual_updates": ("forward", 40),
    "g_accumulated": ("optimizer", 30),
    "g_recomputed": ("optimizer", 30),
    "g_evaluated_before_it_is_trained": ("optimizer", 30),
    "g_rollouts_before_the_steps": ("optimizer", 30),
    "g_threads_of_a_server": ("module", 300),
    "g_threads_that_write_at_once": ("module", 200),
    "g_a_thread_for_each_request": ("module", 40),
    "g_trained_in_two_threads": ("optimizer", 120),
    "g_two_units": ("module", 2),
    "e_range_around_the_step_of_an_optimizer": ("optimizer", 60),
    "c_module": ("module", 30),
    "c_function_and_training": ("optimizer", 30),
    "d_traced_and_scripted": ("module", 71),
    "h_exceptions_that_the_job_catches": ("module", 60),
    "h_own_call": ("module", 12),
    "h_a_second_copy_of_the_observer": ("optimizer", 12),
    "h_functions_of_python_that_a_test_replaces": ("optimizer", 70),
}
"""The sort and the number of steps that must be counted in each program. Each program here also gets a trace."""


def run_both(job_server: Server, name: str, folder: Path) -> tuple[Ran, Ran]:
    program = folder / f"{name}.py"
    program.write_text(PROGRAMS[name])
    return job_server.both(program, folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_job_is_the_same_and_was_seen(job_server: Server, name: str, tmp_path: Path) -> None:
    plain, observed = run_both(job_server, name, tmp_path)
    assert differences(plain.behaviour, observed.behaviour) == []
    assert plain.behaviour.code == {"h_exception_out_of_a_call": 1, "h_exit_code": 3, "h_left_by_os_exit": 4}.get(
        name, 0
    ), plain
    if name in UNITS:
        sort, count = UNITS[name]
        assert observed.counts == {sort: count}, observed.notes
        assert observed.traces, observed.units
    else:
        allowed = ("No such file", "Alarm interrupted the observer") if "alarm" in name else ("No such file",)
        assert not [n for n in observed.notes if "observation ended" in n and not any(each in n for each in allowed)]


def test_processes_that_multiprocessing_forks_are_counted_to_their_end(job_server: Server, tmp_path: Path) -> None:
    _, observed = run_both(job_server, "h_processes_that_multiprocessing_forks", tmp_path)
    kinds = [kind["count"] for x in observed.units for kind in x["kinds"].values()]
    assert sorted(kinds) == [30, 31]


def test_workers_that_load_data_do_no_steps(job_server: Server, tmp_path: Path) -> None:
    """A worker calls a module for each sample, so more often than the job makes steps."""
    _, observed = run_both(job_server, "h_workers_that_load_data", tmp_path)
    (found,) = observed.units
    assert [kind["count"] for kind in found["kinds"].values()] == [12]
    assert observed.notes == []


def test_an_interrupt_ends_the_observation_and_reaches_the_job() -> None:
    class AlarmError(Exception): ...

    def handler(number: int, frame: object) -> None:
        raise AlarmError

    why: list[str] = []
    guard = Guard(why.append)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(AlarmError):
            guard(lambda: signal.raise_signal(signal.SIGUSR1))()
        assert why == ["AlarmError interrupted the observer"]
        assert not guard.on
        assert not guard.thread.within
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_error_that_another_thread_raises_reaches_the_job() -> None:
    """Packages such as ``stopit`` end a call after some time by raising an error in the thread of the call."""

    class TimeUpError(Exception): ...

    def raised_by(source: str) -> list[str]:
        why: list[str] = []
        made: dict[str, Any] = {"ctypes": ctypes, "me": threading.get_ident(), "error": TimeUpError}
        exec(compile(source, guard_module.__file__, "exec"), made)  # a function of logparse, by its file
        Guard(why.append)(made["ours"])()
        return why

    raises = "ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(error))"
    with pytest.raises(TimeUpError):
        raised_by(f"def ours():\n {raises}\n for _ in range(1000): pass")
    assert raised_by("def ours(): assert not 1") == ["AssertionError: "]
    assert raised_by("def ours(): raise error('ours')") == ["TimeUpError: ours"]


def test_calls_after_all_windows_are_counted_by_kind(job_server: Server, tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    calls = """
with torch.inference_mode():
    for _ in range(300): net(torch.ones(2, 8))
    for dtype in (torch.float32, torch.float64):
        for _ in range(5): net.to(dtype)(torch.ones(3, 8, dtype=dtype))
    for _ in range(2):
        try: net(torch.ones(2, 9, dtype=dtype))
        except RuntimeError: print("caught")
    net(input=torch.ones(2, 8, dtype=dtype))
"""
    program.write_text(NET + calls)
    plain, observed = job_server.both(program, tmp_path)
    assert differences(plain.behaviour, observed.behaviour) == []
    (found,) = observed.units
    assert {name: kind["count"] for name, kind in found["kinds"].items()} == {
        "float32[2, 8]": 300,
        "float32[3, 8]": 5,
        "float64[3, 8]": 5,
        "float64[2, 9]": 2,
        "float64[2, 8]": 1,
    }
    assert found["windows"] >= 3


SECOND_PHASE = """
second = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(200): step()
for _ in range(STEPS): net(torch.ones(4, 8)).sum().backward(); second.step()
"""


def traced_kinds(path: Path) -> set[str]:
    return set(json.loads(gzip.decompress(path.read_bytes()))["logparse_unit_kinds"].values())


def test_a_short_second_phase_has_a_window(job_server: Server, tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text(NET + TRAIN + SECOND_PHASE.replace("STEPS", "6"))
    _, observed = job_server.both(program, tmp_path)
    (found,) = observed.units
    kinds = {name: (kind["count"], kind["traced"]) for name, kind in found["kinds"].items()}
    assert kinds == {"float32[4, 8]": (200, 7), "float32[4, 8] (phase 2)": (6, 1)}
    assert found["windows"] == 4
    traced = [traced_kinds(path) for path in observed.traces]
    assert traced == [{"float32[4, 8]"}] * 3 + [{"float32[4, 8] (phase 2)"}]
    assert observed.notes == []


@pytest.mark.parametrize(
    ("steps", "sort", "kind", "traced"),
    [
        (5, "module", "float32[2, 8]", 7),
        (6, "module", "float32[2, 8]", 7),
        (7, "optimizer", "float32[4, 8]", 1),
    ],
)
def test_steps_that_begin_after_all_windows_have_a_trace(
    job_server: Server, tmp_path: Path, steps: int, sort: str, kind: str, traced: int
) -> None:
    """The traces of the calls before the first step are kept until a step has a trace."""
    program = tmp_path / "p.py"
    program.write_text(
        NET + TRAIN + "with torch.no_grad():\n    for _ in range(200): net(torch.ones(2, 8))\n"
        f"for _ in range({steps}): step()\n"
    )
    plain, observed = job_server.both(program, tmp_path)
    assert differences(plain.behaviour, observed.behaviour) == []
    (found,) = observed.units
    assert found["logparse_units"] == sort
    assert {name: x["traced"] for name, x in found["kinds"].items()} == {kind: traced}
    assert {name for path in observed.traces for name in traced_kinds(path)} == {kind}
    why = "they are too few" if steps < 6 else "no traced window ended"
    notes = [f"no trace of the {steps} optimizer steps: {why}; the traces hold some of the 200 module calls"]
    assert observed.notes == (notes if sort == "module" else [])


def test_a_teacher_that_is_called_once_a_step_leaves_no_trace_of_an_unsettled_step(
    job_server: Server, tmp_path: Path
) -> None:
    """Its calls are the job's steps for a moment, because the sixth call comes before the sixth optimizer step."""
    program = tmp_path / "p.py"
    teaches = "    with torch.no_grad(): teacher(torch.ones(4, 8))\n    step()\n"
    program.write_text(f"{NET}{TRAIN}teacher = torch.nn.Linear(8, 8)\nfor _ in range(100):\n{teaches}")
    _, observed = job_server.both(program, tmp_path)
    (found,) = observed.units
    assert (found["logparse_units"], found["tracing"], found["windows"]) == ("optimizer", "settled", 3)
    assert len(observed.traces) == 3


def test_a_process_that_compiles_for_torch_is_not_observed(tmp_path: Path) -> None:
    worker = Path(str(torch.__file__)).parent / "_inductor/compile_worker/__main__.py"
    script = tmp_path / "script.py"
    script.write_text("import torch")
    for program, files in ((script, 1), (worker, 0)):
        folder = tmp_path / program.stem
        folder.mkdir()
        environ = with_overrides.with_torch(os.environ, with_overrides.UNITS_FILE)
        environ |= {"LOGPARSE_TRACE_DIR": str(folder), "LOGPARSE_TRACE_UNITS": "2"}
        done = subprocess.run([sys.executable, program, "--help"], env=environ, capture_output=True, check=False)
        assert done.returncode == 0
        assert len(list(folder.iterdir())) == files


@pytest.mark.parametrize(
    ("steps", "note"),
    [
        (2, "no trace of the last 2 optimizer steps: the job used another optimizer for them, and they are too few"),
        (
            3,
            "no trace of phase 2 (3 optimizer steps): the job used another optimizer there, and no traced window ended",
        ),
    ],
)
def test_a_second_phase_without_a_window_has_a_sentence(
    job_server: Server, tmp_path: Path, steps: int, note: str
) -> None:
    program = tmp_path / "p.py"
    program.write_text(NET + TRAIN + SECOND_PHASE.replace("STEPS", str(steps)))
    _, observed = job_server.both(program, tmp_path)
    (found,) = observed.notes
    assert found.startswith(note)
    assert len(observed.traces) == 3


def test_a_window_holds_no_steps_of_two_phases(job_server: Server, tmp_path: Path) -> None:
    """If a phase begins within a window, the window ends, and the next one belongs to the new phase."""
    program = tmp_path / "p.py"
    program.write_text(
        NET + TRAIN + "second = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(22): step()\n"
        "for _ in range(40): net(torch.ones(4, 8)).sum().backward(); second.step()\n"
    )
    _, observed = job_server.both(program, tmp_path)
    traced = [traced_kinds(path) for path in observed.traces]
    assert traced == [{"float32[4, 8]"}] + [{"float32[4, 8] (phase 2)"}] * 3
    contents = [json.loads(gzip.decompress(path.read_bytes())) for path in observed.traces]
    assert [len(x["logparse_unit_kinds"]) for x in contents] == [1, 2, 2, 2]


def test_calls_without_gradients_do_not_change_the_name_of_a_step(job_server: Server, tmp_path: Path) -> None:
    """A step's name states the inputs of its calls with gradients, also if a teacher is called after them."""
    program = tmp_path / "p.py"
    program.write_text(
        NET
        + """
teacher, optimizer = torch.nn.Linear(8, 8), torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(120):
    out = net(torch.ones(4 if number % 4 else 6, 8))
    with torch.no_grad(): goal = teacher(torch.ones(1, 8)); teacher(torch.ones(2, 8))
    (out - goal).square().mean().backward(); optimizer.step()
"""
    )
    _, observed = job_server.both(program, tmp_path)
    (found,) = observed.units
    assert found["logparse_units"] == "optimizer"
    counts = {name: kind["count"] for name, kind in found["kinds"].items()}
    assert counts == {"float32[4, 8]": 90, "float32[6, 8]": 30}


def test_sizes_of_many_shapes_keep_few_texts() -> None:
    from logparse.capture.in_job.logparse_in_job import sizes

    for size in (*range(2 * sizes._MOST_TEXTS), 0):
        tensors = torch.empty(size, 1), [torch.empty(size, dtype=torch.int64), torch.empty(7)]
        assert sizes.sizes(tensors, {}) == f"float32[{size}, 1] int64[{size}]"
        assert sizes.sizes((), {"x": tensors}) == f"float32[{size}, 1] int64[{size}]"
    assert len(sizes._texts) <= sizes._MOST_TEXTS


def test_a_job_that_is_not_seen_has_a_sentence(job_server: Server, tmp_path: Path) -> None:
    _, observed = run_both(job_server, "d_transformed", tmp_path)
    (note,) = observed.notes
    assert note.startswith("no trace: 20 module calls ran under a tracer, a transform (such as vmap)")
    assert note.endswith("trace by time, such as --trace 2s")


@pytest.mark.parametrize(
    ("watched", "note"),
    [
        ("True", "no trace: 60 optimizer steps ran under"),
        ("number % 2", "30 optimizer steps were neither counted nor traced: they ran under"),
        ("number == 0", ""),
    ],
)
def test_steps_under_a_dispatch_mode_have_a_sentence(
    watched: str, note: str, job_server: Server, tmp_path: Path
) -> None:
    """A note names the steps that a dispatch mode hid, if there are several. A single hidden step has no note.

    The program calls no module, so logparse counts only the optimizer's steps.
    """
    program = tmp_path / "p.py"
    program.write_text(
        f"""
import contextlib, torch
from torch.utils.flop_counter import FlopCounterMode
weight = torch.nn.Parameter(torch.ones(8, 8)); optimizer = torch.optim.SGD([weight], lr=0.1)
mode = FlopCounterMode(display=False)
for number in range(60):
    with mode if {watched} else contextlib.nullcontext():
        (torch.ones(4, 8) @ weight).sum().backward(); optimizer.step()
print(float(weight.sum()))
"""
    )
    plain, observed = job_server.both(program, tmp_path)
    assert differences(plain.behaviour, observed.behaviour) == []
    assert [x[: len(note)] for x in observed.notes] == ([note] if note else [])


@pytest.mark.parametrize(("calls", "words"), [(1, "1 module call"), (3, "3 module calls")])
def test_calls_with_gradients_that_are_too_few_have_a_sentence(
    calls: int, words: str, job_server: Server, tmp_path: Path
) -> None:
    program = tmp_path / "p.py"
    program.write_text(NET + f"for _ in range({calls}): net(torch.ones(2, 8)).sum().backward()\n")
    _, observed = job_server.both(program, tmp_path)
    assert observed.notes == [
        f"no trace: the job did {words} with gradients and no optimizer step; without optimizer steps, a trace needs "
        "at least 6 module calls with gradients"
    ]


def test_compiled_functions_alone_have_a_sentence(job_server: Server, tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text(
        NET + "f = torch.compile(lambda x: net(x) + 1, backend='eager')\nfor _ in range(9): f(torch.ones(2, 8))\n"
    )
    _, observed = job_server.both(program, tmp_path)
    (note,) = observed.notes
    assert note.startswith("no trace: only functions that torch.compile compiled ran, ")


def test_a_difference_is_found(job_server: Server, tmp_path: Path) -> None:
    """The function ``differences``, on which the other tests rely, notices every kind of difference."""
    program = tmp_path / "p.py"
    program.write_text(
        "import os, sys\nif 'LOGPARSE_TRACE_DIR' in os.environ:\n"
        "    open('more', 'w').close(); print('x'); print('y', file=sys.stderr); sys.exit(1)\n"
    )
    plain, observed = job_server.both(program, tmp_path)
    found = differences(plain.behaviour, observed.behaviour)
    assert [x.split()[0] for x in found] == ["code:", "out:", "err:", "more"]


def test_a_trace_holds_the_units_that_its_header_names(job_server: Server, tmp_path: Path) -> None:
    _, observed = run_both(job_server, "g_accumulated", tmp_path)
    for path in observed.traces:
        content = json.loads(gzip.decompress(path.read_bytes()))
        kinds = content["logparse_unit_kinds"]
        linears = sum(x["name"] == "aten::linear" for x in content["traceEvents"])
        steps = [x["name"] for x in content["traceEvents"] if x["name"].startswith("ProfilerStep#")]
        assert sorted(steps) == [f"ProfilerStep#{number}" for number in sorted(kinds)]
        assert linears == 2 * 4 * len(kinds), "two layers, four calls a step"


def test_a_job_under_a_python_profiler_sees_one_function_of_ours(job_server: Server, tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text(
        NET + "import cProfile, pstats\np = cProfile.Profile(); p.enable()\nwith torch.no_grad():\n"
        "    for _ in range(20): net(torch.ones(2, 8))\np.disable()\n"
        "print(sorted({x[2] for x in pstats.Stats(p).stats if 'logparse' in x[0]}))\n"
    )
    _, observed = job_server.both(program, tmp_path)
    assert observed.behaviour.out == b"['begin']\n"
    (note,) = observed.notes
    assert note.startswith("no trace: a Python profiler such as cProfile was on while the job called its models")


def test_late_steps_are_timed_and_traced(job_server: Server, tmp_path: Path) -> None:
    """If the steps of a job begin late, logparse still times and traces them."""
    # If no step comes for some time, logparse traces the job for a given number of seconds instead. On a GPU the first
    # call may take longer than that. In an earlier version, no step was timed any more afterwards.
    program = tmp_path / "p.py"
    program.write_text(
        NET + TRAIN + "import sys\ninstall = sys.modules.get('logparse_in_job.install')\n"
        "if install: assert install.observer.begin_time() and install.observer.tracing.window\n"
        "for _ in range(60): step()\n"
    )
    plain, observed = job_server.both(program, tmp_path)
    assert differences(plain.behaviour, observed.behaviour) == []
    (units,) = observed.units
    assert units["logparse_units"] == "optimizer"
    assert sum(len(kind["us"]) for kind in units["kinds"].values()) > 5
    assert len(observed.traces) >= 2


SHARED = Path(os.environ.get("LOGPARSE_PROGRAMS") or ROOT.parent / "shared" / "programs")
SEEN_BY_PROFILERS = {"e07_cprofile", "e08_settrace"}
"""Programs that use Python's own profiler or tracer, which see logparse's functions, too (docs/measurement.md)."""
TIMES_OF_ITS_OWN = {"i02_deepcopy_turns", "m_overhead"}
"""Programs that print times on standard error."""
SAVES = {"b_jitload", "d03_export_first"}
"""Programs whose saved files differ between a run without logparse and a run with it.

One file names a stack frame of logparse in its debug information (docs/measurement.md). The other file has the time.
"""


@pytest.mark.nightly
@pytest.mark.parametrize("program", sorted(SHARED.glob("[a-z]*_*.py")) or [None], ids=lambda x: x.stem if x else "none")
def test_programs_of_others(job_server: Server, program: Path | None, tmp_path: Path) -> None:
    if program is None:
        pytest.skip("the programs are not here")
    plain, observed = job_server.both(program, tmp_path)
    found = differences(plain.behaviour, observed.behaviour)
    if program.stem in TIMES_OF_ITS_OWN:
        found = [x for x in found if not x.startswith("err:")]
    if program.stem in SAVES:
        found = [x for x in found if not x.startswith("m.pt")]
    if program.stem in SEEN_BY_PROFILERS:
        found = [x for x in found if not x.startswith("out:")]
    assert found == []
