"""Jobs with a recommendation's files and settings: ``run --with``, and what runs once a job has imported torch.

torch is a package of the test's own, but for the trace: starting the real one takes seconds.
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

from analyzers.times.runs import tables_of
from analyzers.times.units import units
from analyzers.tune.by_turns import units_in
from logparse.capture import with_overrides
from logparse.capture.plan import timing
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.store import open_store
from tests.program import run

JOB = "import sitecustomize, torch, os; print(torch.setting, os.environ.get('FROM_SHELL'), os.environ.get('OWN'))"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A job's environment with a torch and a ``sitecustomize`` of its own."""
    (tmp_path / "own/torch").mkdir(parents=True)
    (tmp_path / "own/torch/__init__.py").write_text("setting = 'default'\n")
    (tmp_path / "own/sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'kept'\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "own")}


@pytest.fixture
def overrides(tmp_path: Path) -> Path:
    folder = tmp_path / "overrides"
    (folder / "gfx942").mkdir(parents=True)
    (folder / "apply.py").write_text("import torch\nif __name__ == '__logparse__':\n    torch.setting = 'applied'\n")
    (folder / "gfx942/apply.sh").write_text("export FROM_SHELL=sourced\n")
    return folder


def output_of(command: list[str], environ: dict[str, str]) -> tuple[str, str]:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_settings_files_and_the_jobs_own_start(environ: dict[str, str], overrides: Path) -> None:
    job = [sys.executable, "-c", JOB]
    assert output_of(job, environ)[0] == "default None kept"
    assert output_of(*with_overrides.applied(job, overrides, environ))[0] == "applied sourced kept"
    (overrides / "apply.py").unlink()
    assert output_of(*with_overrides.applied(job, overrides, environ))[0] == "default sourced kept"
    (overrides / "gfx942/apply.sh").unlink()
    with pytest.raises(InputError, match=r"no apply\.sh below it and no apply\.py"):
        with_overrides.applied(job, overrides, environ)


def test_a_file_that_fails_does_not_end_the_job(environ: dict[str, str], overrides: Path) -> None:
    (overrides / "apply.py").write_text("1 / 0\n")
    out, errors = output_of(*with_overrides.applied([sys.executable, "-c", JOB], overrides, environ))
    assert out == "default sourced kept"
    assert "apply.py failed, the job goes on without it" in errors
    assert "ZeroDivisionError" in errors


def test_the_exit_code_is_the_jobs(overrides: Path) -> None:
    assert run("run", "--with", str(overrides), "--", sys.executable, "-S", "-c", "raise SystemExit(7)").returncode == 7
    assert run("run", "--with", str(overrides / "none"), "--", "true").returncode == 1


STEPS = """
import time
import torch
torch.backends.cudnn.benchmark = True
torch.backends.fp32_precision = "tf32"
layer = torch.nn.Linear(8, 8)
optimizers = [torch.optim.SGD([x], lr=0.1) for x in layer.parameters()]
for number in range({steps}):
    layer(torch.ones(2 if number % 4 else 16, 8)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    time.sleep(0.02)
print("hooks on every module:", len(torch.nn.modules.module._global_forward_hooks))
"""


def traced(folder: Path, steps: int) -> tuple[str, str]:
    """What a job prints of so many steps, every fourth of another size."""
    environ = with_overrides.with_torch(os.environ, with_overrides.UNITS_FILE)
    environ |= {"LOGPARSE_TRACE_DIR": str(folder), "LOGPARSE_TRACE_UNITS": "2"}
    return output_of([sys.executable, "-c", STEPS.format(steps=steps)], environ)


@pytest.mark.nightly  # starting PyTorch takes seconds
def test_a_job_that_ends_before_its_units_settle_is_reported(tmp_path: Path) -> None:
    """On a GPU it crashed at its end, with the profiler still on."""
    pytest.importorskip("torch")
    assert "no trace: the job made 5 units of work (optimizer); a trace needs" in traced(tmp_path, 5)[1]
    assert [path.name.split("_")[0] for path in tmp_path.iterdir()] == ["units"]


def test_steps_of_the_first_optimizer_are_counted_by_their_sizes_and_some_are_traced(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out, errors = traced(tmp_path, 120)
    assert "no trace" not in errors
    assert "hooks on every module: 0" in out, "they slow each of a job's hundreds of modules"
    store = open_store(tmp_path / "store", create=True)
    ingest([*map(str, tmp_path.glob("*.json*"))], store, run="r")
    found = units(tables_of(store, "r"))
    assert found is not None
    assert (found.sort, found.tracing) == ("optimizer", "settled")
    assert {x.name: x.count for x in found.kinds} == {"float32[2, 8]": 90, "float32[16, 8]": 30}
    assert all(x.traced and 0 < len(x.us) < x.count for x in found.kinds), "none is timed once the profiler has run"
    assert found.mean_us == pytest.approx(20e3, rel=0.9)
    assert found.untraced_share == 0
    facts = store.facts()
    assert set(facts.loc[facts["name"] == "job_settings", "value"]) == {"cudnn_benchmark tf32"}


DEVICE = """
import time
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


def test_a_run_without_logs_times_units_on_the_device_and_the_host_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environ = timing(tmp_path, "", os.environ)
    assert output_of([sys.executable, "-c", DEVICE], environ) == ("", "")
    found = units_in(tmp_path)
    assert found is not None
    assert found.alone
    host = [us for kind in found.kinds for us in kind.host_us]
    assert len(host) == 11
    assert statistics.median(host) == pytest.approx(10e3, rel=0.5), "not the 30 ms of the device"
    assert found.mean_us == pytest.approx(30e3, rel=0.1), "nor do units count before which the device was idle"


FUNCTIONS = """
import glob, os, runpy, time, torch
start = torch.profiler.profile.start
def slowly(self):
    time.sleep(0.8)
    start(self)
torch.profiler.profile.start = slowly
units = runpy.run_path({units!r}, run_name="__logparse__")
units["_job"].by_time.__globals__["_QUIET_S"] = 0.1
end = time.monotonic() + 60
while time.monotonic() < end and not glob.glob(os.environ["LOGPARSE_TRACE_DIR"] + "/trace_*.json.gz"):
    torch.mm(torch.ones(4, 4), torch.ones(4, 4))
    time.sleep(0.001)
"""


def test_a_window_of_time_begins_once_the_profiler_has_started(tmp_path: Path) -> None:
    """On a GPU its first start takes seconds: windows had ended before they began, and held no kernel."""
    pytest.importorskip("torch")
    environ = with_overrides.with_torch(os.environ)
    environ |= {"LOGPARSE_TRACE_DIR": str(tmp_path), "LOGPARSE_TRACE_UNITS": "2", "LOGPARSE_TRACE_SECONDS": "0.5"}
    output_of([sys.executable, "-c", FUNCTIONS.format(units=str(with_overrides.UNITS_FILE))], environ)
    events = json.loads(gzip.decompress(min(tmp_path.glob("trace_*.json.gz")).read_bytes()))["traceEvents"]
    (us,) = (x["dur"] for x in events if x["name"] == "ProfilerStep#1")
    assert us > 0.4e6
    assert sum(x["name"] == "aten::mm" for x in events) > 10


SERIES = """
import runpy, torch
units = runpy.run_path({units!r}, run_name="__logparse__")
series = units["_Series"]()
for number in range(60):  # requests of batch 1, then some of batch 16 among them
    kind = series.kind("16" if number >= 35 else "1")
    kind.us.append(16.0 if number >= 35 else 1.0)
    series.times.append((kind, kind.us[-1]))
    series.count += 1
print(series.ready, units["settled"]([us for _, us in series.times]))
"""


def test_units_settle_by_their_kinds(tmp_path: Path) -> None:
    """A server of several batch sizes got no trace in 84 requests: its times differ for good."""
    pytest.importorskip("torch")
    environ = with_overrides.with_torch(os.environ) | {"LOGPARSE_TRACE_DIR": str(tmp_path)}
    out, _ = output_of([sys.executable, "-c", SERIES.format(units=str(with_overrides.UNITS_FILE))], environ)
    assert out.split() == ["settled", "False"]


RANKS = """
import runpy
units = runpy.run_path({units!r}, run_name="__logparse__")
class Store(dict):
    def set(self, name, text): self[name] = text.encode()
    def get(self, name): return self[name]
    def check(self, names): return all(x in self for x in names)
store = Store()
def begins(rank, count):
    units["_Job"]._is_time.__globals__["_distributed"] = lambda: (store, rank)
    job, series = units["_Job"](), units["_Series"]()
    series.times = [(series.kind(""), 50e3)] * count
    series.kind("").us.extend([50e3] * count)
    series.count, moments = count, []
    while len(moments) < 2 and series.count < 200:
        if job._is_time(series):
            moments.append((series.count, job.windows))
            job.windows, job.begin_at = job.windows + 1, series.count + 1 + 2 + 1 + 5
        series.count += 1
    return moments
print(begins(0, 60), begins(1, 63), begins(2, 73), begins(3, 74))
"""


def test_ranks_trace_the_same_units_however_far_ahead_a_host_is(tmp_path: Path) -> None:
    """A rank that was four units ahead traced other units than its neighbour, for whose profiler it waited."""
    pytest.importorskip("torch")
    environ = with_overrides.with_torch(os.environ)
    environ |= {"LOGPARSE_TRACE_DIR": str(tmp_path), "LOGPARSE_TRACE_UNITS": "2"}
    out, _ = output_of([sys.executable, "-c", RANKS.format(units=str(with_overrides.UNITS_FILE))], environ)
    both = "[(73, 0), (82, 1)]"
    assert out.split("\n")[0] == f"{both} {both} {both} [(82, 1), (91, 2)]", (
        "one that learns too late: the second window"
    )


def test_the_profiler_does_not_start_within_an_import_of_torch(tmp_path: Path) -> None:
    """What it imports met half of torch._dynamo, and the window was lost."""
    pytest.importorskip("torch")
    environ = with_overrides.with_torch(os.environ) | {"LOGPARSE_TRACE_DIR": str(tmp_path)}
    code = f"import runpy, sys; units = runpy.run_path({str(with_overrides.UNITS_FILE)!r}, run_name='__logparse__')\n"
    code += "def now(): return units['_importing']()\nprint(now())\n"
    code += "sys.modules['torch.half'] = half = type(sys)('torch.half')\n"
    code += "half.__spec__ = type('Spec', (), {'_initializing': True})\nprint(now())"
    assert output_of([sys.executable, "-c", code], environ)[0].split() == ["False", "True"]
