"""Tests that logparse traces how a job captures CUDA graphs, and records when the job launches them.

A class imitates the graphs of a GPU.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from logparse.capture.in_job.logparse_in_job.graphs import Graphs
from tests.capture.in_job.observed import Server

pytest.importorskip("torch")

JOB = """
import gc, torch
class Graph:
    def capture_begin(self, pool=None): pass
    def capture_end(self):
        if self.fails: raise RuntimeError("the capture failed")
    def replay(self): return torch.mm(x, x)
    def __init__(self, fails=False): self.fails = fails
torch.cuda.CUDAGraph = Graph
from logparse_in_job import graphs, install
graphs._MOST_S = float("inf")  # however slow this machine is
install.install()
x = torch.ones(4, 4)
def captured(**more):
    graph = Graph(**more)
    graph.capture_begin(pool=1)
    torch.bmm(x[None], x[None])
    graph.capture_end()
    return graph
try:
    captured(fails=True)
except RuntimeError as error:
    print(error)
gc.collect()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
    captured()
made = [captured() for _ in range(20)]
for number in range(800):  # tracing begins after 200 at the latest
    made[number % 4 == 0].replay()
"""


def events(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    content = json.loads(gzip.decompress(path.read_bytes()))
    return content, content["traceEvents"]


@pytest.fixture(scope="module")
def folder(job_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("graphs")
    environ = {"LOGPARSE_TRACE_DIR": str(out), "LOGPARSE_TRACE_UNITS": "2"}
    said, errors = job_server.output_of(JOB, out, environ)
    assert said == "the capture failed"
    assert "failed" not in errors
    return out


def test_only_some_graph_captures_are_traced(folder: Path) -> None:
    """logparse traces only a limited number of the CUDA graphs that a job captures.

    A capture that failed has no trace, and neither has a capture during which the job's own profiler ran.
    """
    traces = {int(x.name.partition("_g")[2].partition(".")[0]): x for x in (folder / "capture_traces").iterdir()}
    assert sorted(traces) == list(range(3, 18)), "fifteen, since the one that failed counts"
    pid = traces[3].name.split("_")[1]
    for number, path in traces.items():
        header, found = events(path)
        assert header["logparse_graph"] == f"{pid}.{number}"
        assert "aten::bmm" in {x["name"] for x in found}, "the operators of the capture"
        assert any("Input Dims" in x.get("args", {}) for x in found)


def test_replays_in_windows_are_noted_and_are_units_of_their_kinds(folder: Path) -> None:
    windows = sorted(folder.glob("trace_*.json.gz"))
    assert windows
    pid, marks = windows[0].name.split("_")[1], set()
    for path in windows:
        header, found = events(path)
        kinds = list(header["logparse_unit_kinds"].values())
        assert header["logparse_graphs"] == [f"{pid}.{x.removeprefix('graph ')}" for x in kinds]
        assert [x["name"] for x in found if x.get("name") == "aten::mm"] == ["aten::mm"] * len(kinds)
        marks |= set(kinds)
    assert marks == {"graph 3", "graph 4"}
    (units,) = folder.glob("units_*.json")
    content = json.loads(units.read_text())
    assert content["logparse_units"] == "graph"
    assert {name: kind["count"] for name, kind in content["kinds"].items()} == {"graph 3": 600, "graph 4": 200}


def test_graphs_of_a_process_that_has_replaced_its_program_have_names_of_their_own() -> None:
    graphs = Graphs("394-2", traces=True)
    graphs.note_replay("1")
    assert graphs.replays == ["394-2.1"]
