"""Tests of units that the user names with ``--unit``, such as functions of the script and compiled functions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logparse.capture import with_overrides
from tests.capture.in_job.observed import Server
from tests.capture.observing import differences
from tests.conftest import ROOT

pytest.importorskip("torch")

SCRIPT = """
import sys, torch
weight = torch.ones(8, 8)
class Simulation:
    state = torch.ones(2, 8)
    def advance(self): self.state = torch.tanh(self.state @ weight)
one = Simulation()
for _ in range(30): one.advance()
print(round(one.state.sum().item(), 3), sys.gettrace())
"""


@pytest.mark.parametrize("unit", ["__main__:Simulation.advance", "program:Simulation.advance"])
def test_a_function_that_the_script_defines_after_it_imports_torch(unit: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCRIPT)
    environ = with_overrides.with_torch(os.environ, with_overrides.UNITS_FILE)
    environ |= {"LOGPARSE_TRACE_DIR": str(tmp_path), "LOGPARSE_TRACE_UNITS": "2", "LOGPARSE_TRACE_UNIT": unit}
    words = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "16.0 None\n", "")
    (path,) = tmp_path.glob("units_*.json")
    found = json.loads(path.read_text())
    assert (found["logparse_units"], sum(kind["count"] for kind in found["kinds"].values())) == ("named", 30)
    assert list(tmp_path.glob("trace_*.json.gz"))


AWAITED = """
import sys
{before}
from logparse.capture.in_job.logparse_in_job.when_defined import when_defined
print(when_defined({name!r}, lambda: print("defined", sys.gettrace())))
def other(): pass
other()
if True:
    def step(): print("called")
step()
print(sys.gettrace())
"""


@pytest.mark.parametrize(
    ("name", "before", "printed"),
    [
        ("step", "", ["", "defined None", "called", "None"]),
        ("step", "def step(): pass", ["defined None", "", "called", "None"]),
        ("stap", "", ["the script defines no stap", "called", "None"]),
        (
            "step",
            "sys.settrace(lambda *words: None)",
            ["a debugger or a coverage tool runs, so the definition of step cannot be awaited", "called"],
        ),
    ],
)
def test_a_definition_is_awaited_and_no_tracer_is_left(
    name: str, before: str, printed: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(AWAITED.format(name=name, before=before))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[: len(printed)] == printed
    assert done.stderr == ""


def test_a_function_of_a_module_that_was_imported_before_torch(job_server: Server, tmp_path: Path) -> None:
    """``--unit`` counts the calls of a function whose module was imported before torch.

    An earlier version did not wrap such a function, because its import hook ran within another hook of logparse.
    """
    program = tmp_path / "p.py"
    program.write_text("import textwrap\nfor _ in range(20): print(textwrap.dedent(' a'))\n")
    plain, observed = job_server.both(program, tmp_path, LOGPARSE_TRACE_UNIT="textwrap:dedent")
    assert differences(plain.behaviour, observed.behaviour) == []
    assert observed.counts == {"named": 20}
    assert observed.traces


COMPILED = """
import sys, torch
open("steps.py", "w").write('''
import torch
torch.manual_seed(0)
net = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step(x): loss = net(x).square().mean(); loss.backward(); optimizer.step(); optimizer.zero_grad(); return loss
def infer(x): return net(x).sum()
def both(x): return infer(x) + 1
''')
sys.path.insert(0, ".")
import steps
from torch._dynamo.utils import counters
functions = steps.step, steps.infer, steps.both
whole = [torch.compile(f, backend="eager", fullgraph=f.__name__ != "step") for f in functions]
for _ in range(20): found = [f(torch.ones(2, 8)).item() for f in whole]
print(found, counters["stats"]["unique_graphs"], counters["graph_break"], counters["frames"])
"""


@pytest.mark.parametrize("unit", ["step", "infer"])
def test_a_function_that_the_job_compiles(unit: str, job_server: Server, tmp_path: Path) -> None:
    """Dynamo compiles the job's function and none of logparse's: a job with ``fullgraph=True`` died of them."""
    program = tmp_path / "p.py"
    program.write_text(COMPILED)
    plain, observed = job_server.both(program, tmp_path, LOGPARSE_TRACE_UNIT=f"steps:{unit}")
    assert plain.behaviour.code == 0, plain
    left = [x for x in differences(plain.behaviour, observed.behaviour) if "__pycache__" not in x]
    assert left == []
    assert observed.counts == {"named": 20}, observed.notes
    assert observed.traces
