"""Tests of whole jobs that logparse observes, started in the same way as by ``capture`` and ``tune``.

The tests check the counted steps, the step times, and traces that last a given number of seconds.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.evidence.runs import tables_of
from analyzers.evidence.units import units
from analyzers.tune.by_turns import units_in
from logparse.capture import with_overrides
from logparse.capture.plan import timing
from logparse.ingest import ingest
from logparse.store import open_store
from tests.capture.in_job.observed import Server
from tests.capture.observing import CLOCK

pytest.importorskip("torch")


STEPS = f"""{CLOCK}
import torch
torch.backends.cudnn.benchmark = True
torch.backends.fp32_precision = "tf32"
layer = torch.nn.Linear(8, 8)
optimizers = [torch.optim.SGD([x], lr=0.1) for x in layer.parameters()]
for number in range({{steps}}):
    layer(torch.ones(2 if number % 4 else 16, 8)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    time.sleep(0.02)
"""


def run_traced_job(folder: Path, program: str) -> tuple[str, str]:
    """Run a job that logparse traces, and return what the job printed to stdout and stderr."""
    # The job runs in a new process. Environment variables alone start the tracing, and the job imports torch itself.
    environ = with_overrides.with_torch(os.environ, with_overrides.UNITS_FILE)
    environ |= {"LOGPARSE_TRACE_DIR": str(folder), "LOGPARSE_TRACE_UNITS": "2"}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_steps_of_the_first_optimizer_are_counted_by_their_sizes_and_some_are_traced(tmp_path: Path) -> None:
    assert run_traced_job(tmp_path, STEPS.format(steps=120)) == ("", "")
    store = open_store(tmp_path / "store", create=True)
    ingest([*map(str, tmp_path.glob("*.json*"))], store, run="r")
    found = units(tables_of(store, "r"))
    assert found is not None
    assert (found.sort, found.tracing) == ("optimizer", "settled")
    assert {x.name: x.count for x in found.kinds} == {"float32[2, 8]": 90, "float32[16, 8]": 30}
    assert all(x.traced and 0 < len(x.us) < x.count for x in found.kinds), "none is timed once the profiler has run"
    assert found.mean_us == pytest.approx(20e3)
    assert found.untraced_share == 0
    facts = store.facts()
    assert set(facts.loc[facts["name"] == "job_settings", "value"]) == {"cudnn_benchmark tf32"}


REPLACED = """
import os, sys, torch
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(24): layer(torch.ones(2, 8)).sum().backward(); optimizer.step()
if "PROGRAM" in os.environ: os.execv(sys.executable, [sys.executable, "-c", os.environ.pop("PROGRAM")])
"""
"""A job that replaces its program once. The program is the value of the variable ``PROGRAM``."""


def test_a_process_that_replaces_its_program_keeps_the_counts_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second program has the process number of the first one, whose files it must not replace."""
    monkeypatch.setenv("PROGRAM", REPLACED)
    assert run_traced_job(tmp_path, REPLACED) == ("", "")
    records = [json.loads(path.read_text()) for path in tmp_path.glob("units_*.json")]
    assert len(records) == 2
    assert all(x["kinds"] for x in records)
    assert len([*tmp_path.glob("trace_*.json.gz")]) == sum(x["windows"] for x in records) >= 2


DEVICE = f"""{CLOCK}
import torch

class Device:  # which has 30 ms of work of each step, behind that of the step before
    free = 0.0
class Event:
    def __init__(self, enable_timing=True): pass
    def record(self): self.at = max(Device.free, time.perf_counter())
    def query(self): return time.perf_counter() >= self.at
    def synchronize(self): time.sleep(max(self.at - time.perf_counter(), 0.0))
    def elapsed_time(self, end): return 1e3 * (end.at - self.at)
torch.cuda.Event = Event
torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: False
torch.cuda.synchronize = lambda: time.sleep(max(Device.free - time.perf_counter(), 0.0))

layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for number in range(60):
    layer(torch.ones(2 if number % 4 else 16, 8)).sum().backward()
    time.sleep(0.01)
    Device.free = max(Device.free, time.perf_counter()) + 0.03
    optimizer.step()
time.sleep(max(Device.free - time.perf_counter(), 0.0))
"""


def test_a_run_without_logs_times_units_on_the_device_and_the_host_by_itself(
    job_server: Server, tmp_path: Path
) -> None:
    assert job_server.output_of(DEVICE, tmp_path, timing(tmp_path, "", {})) == ("", "")
    found = units_in(tmp_path)
    assert found is not None
    assert found.alone
    host = [us for kind in found.kinds for us in kind.host_us]
    assert len(host) == 11
    assert statistics.median(host) == pytest.approx(10e3), "not the 30 ms of the device"
    assert found.mean_us == pytest.approx(30e3), "nor do units count before which the device was idle"


FUNCTIONS = """
import glob, os, time, torch
from logparse_in_job import by_time, profiler
start = profiler.Profile.start
def slowly(self):
    time.sleep(0.8)
    start(self)
profiler.Profile.start = slowly
by_time.QUIET_S = 0.1
@torch.no_grad()
def work():
    with torch.profiler.record_function("mine"):
        torch.mm(torch.ones(4, 4), torch.ones(4, 4))
end = time.monotonic() + 300
while time.monotonic() < end and not glob.glob(os.environ["LOGPARSE_TRACE_DIR"] + "/trace_*.json.gz"):
    work()
    time.sleep(0.001)
"""


def test_a_timed_trace_begins_when_the_profiler_is_ready(job_server: Server, tmp_path: Path) -> None:
    """If a trace shall last a given time, the time is counted from when the profiler is ready."""
    # On a GPU, the first start of the profiler takes seconds. In an earlier version, the time was over before the
    # profiler was ready, so that the trace had no kernel.
    environ = with_overrides.with_torch({}, with_overrides.UNITS_FILE)
    environ |= {"LOGPARSE_TRACE_DIR": str(tmp_path), "LOGPARSE_TRACE_UNITS": "2", "LOGPARSE_TRACE_SECONDS": "0.5"}
    job_server.output_of(FUNCTIONS, tmp_path, environ)
    events = json.loads(gzip.decompress(min(tmp_path.glob("trace_*.json.gz")).read_bytes()))["traceEvents"]
    (us,) = (x["dur"] for x in events if x["name"] == "ProfilerStep#1")
    assert us > 0.4e6
    assert sum(x["name"] == "aten::mm" for x in events) > 10
    (record,) = tmp_path.glob("units_*.json")
    assert json.loads(record.read_text())["tracing"] == "by time"


BACKWARD = """
import time, torch
from logparse_in_job import by_time
by_time.QUIET_S = 0.1
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x): return x * 2
    @staticmethod
    def backward(context, grad):
        end = time.monotonic() + 0.02
        while time.monotonic() < end: pass
        return grad * 2
x, until = torch.ones(4, requires_grad=True), time.monotonic() + 4
while time.monotonic() < until: Slow.apply(x).sum().backward()
print("ended")
"""


def test_a_trace_never_begins_within_a_backward_pass(job_server: Server, tmp_path: Path) -> None:
    """logparse never begins a trace in the middle of a job's backward pass.

    The profiler would then see only some of the operators. In an earlier version, this killed the job.
    """
    environ = with_overrides.with_torch({}, with_overrides.UNITS_FILE)
    environ |= {"LOGPARSE_TRACE_DIR": str(tmp_path), "LOGPARSE_TRACE_UNITS": "2", "LOGPARSE_TRACE_SECONDS": "0.2"}
    assert job_server.output_of(BACKWARD, tmp_path, environ) == ("ended", "")
