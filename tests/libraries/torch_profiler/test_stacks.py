"""Tests of the places in the program that call a matrix product or convolution, from traces with stacks."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logparse.ingest import ingest
from logparse.libraries.torch_profiler import places, profiler
from logparse.libraries.torch_profiler.stacks import BACKWARD, innermost, place
from logparse.lookup import one_problem
from logparse.model import Fact, problem_from_text
from logparse.output.terminal import Rows
from logparse.store import Store, open_store
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import outcomes, records_of
from tests.libraries.torch_profiler.made import MadeTrace

SAMPLE = SAMPLES / "traces" / "stacks.trace.json"
ENGINE = f"{BACKWARD}MmBackward0"
FORWARD, GRADIENT = "NN 768×2048×3072 bf16_r", "TN 3072×2048×768 bf16_r"


def found(source: Path | bytes) -> dict[str, list[tuple[str, str, float]]]:
    """Return the places of each problem of a trace: the file with its line, the function, and the µs."""
    values = [json.loads(x.value) for x in records_of(outcomes(profiler.FORMAT, source), Fact) if x.name == places.FACT]
    return {
        problem_from_text(x["problem"]).label: [(y["at"], y["function"], y["us"]) for y in x["places"]] for x in values
    }


class Stacks(MadeTrace):
    """A made-up trace whose header says that it has stacks."""

    def __init__(self) -> None:
        super().__init__(with_stack=1)

    def function(self, name: str, ts: float, dur: float, tid: int = 1) -> None:
        self.add("python_function", name, ts, dur, tid)

    def of(self, tid: int, sequence: int | None) -> None:
        """Move the last operator with its launch to a thread, and give it a sequence number."""
        last = max(i for i, event in enumerate(self.events) if event["cat"] == "cpu_op")
        for event in self.events[last - 2 :]:
            if event["cat"] in ("cpu_op", "cuda_runtime"):
                event["tid"] = tid
        if sequence is not None:
            self.events[last]["args"]["Sequence number"] = sequence

    def product(self, ts: float, us: float, tid: int = 1, sequence: int | None = None, size: int = 64) -> None:
        self.operator("aten::mm", ts, [("k", us)], dims=((size, 32), (32, 48)))
        self.of(tid, sequence)

    def backward(self, ts: float, dur: float, sequence: int | None, tid: int = 2) -> None:
        more = {} if sequence is None else {"Sequence number": sequence}
        self.add("cpu_op", ENGINE, ts, dur, tid, **more)

    @property
    def data(self) -> bytes:
        return json.dumps({**self.header, "traceEvents": self.events}).encode()

    @property
    def places(self) -> dict[int, list[tuple[str, str, float]]]:
        """The places by the number of rows of the product."""
        return {int(label.split("×")[1]): x for label, x in found(self.data).items()}


def test_the_sample() -> None:
    assert found(SAMPLE) == {
        FORWARD: [("model.py:20", "attention", 50.0), ("model.py:12", "forward", 30.0)],
        GRADIENT: [("model.py:20", "attention", 35.0)],
    }


@pytest.mark.parametrize("backwards", [False, True])
def test_the_innermost_function_of_the_thread_counts(backwards: bool) -> None:
    """The place is the innermost function that is open on the operator's thread, in any order of the events."""
    trace = Stacks()
    trace.function("train.py(3): step", 0, 1000)
    trace.function("model.py(5): forward", 10, 100)
    trace.function("model.py(7): closed", 12, 8)
    trace.function("loader.py(1): other_thread", 20, 50, tid=9)
    trace.product(30, 4.0)
    trace.product(200, 6.0, size=65)
    if backwards:
        trace.events.reverse()
    assert trace.places == {64: [("model.py:5", "forward", 4.0)], 65: [("train.py:3", "step", 6.0)]}


@pytest.mark.parametrize(
    "name",
    [
        "torch/nn/modules/linear.py(130): forward",
        "/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py(9): linear",
        "/usr/lib/python3/dist-packages/numpy/core.py(9): dot",
        "/usr/lib/python3.12/contextlib.py(78): inner",
        "contextlib.py(78): inner",
        "asyncio/runners.py(8): run",
        "/tmp/torchinductor_root/ab/cab.py(40): call",
        "<built-in method mm of type object at 0x7f1c33e93460>",
        "<frozen runpy>(198): _run_module_as_main",
        "<string>(1): <module>",
        "nn.Module: Linear_0",
        "ProfilerStep#3",
        "",
        "a.py(1): " + "x" * 2000,
    ],
)
def test_functions_of_libraries_are_no_places(name: str) -> None:
    assert place(name) is None
    trace = Stacks()
    trace.function("train.py(3): <module>", 0, 1000)
    trace.function(name, 10, 100)
    trace.product(30, 4.0)
    assert trace.places == {64: [("train.py:3", "<module>", 4.0)]}


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("profile.py(7): main", ("profile.py:7", "main")),  # has the name of a module of Python's library
        ("torchvision/models/resnet.py(89): forward", ("torchvision/models/resnet.py:89", "forward")),
        ("/home/a b/x (1).py(12): <lambda>", ("/home/a b/x (1).py:12", "<lambda>")),
        ("C:\\job\\train.py(4): step", ("C:\\job\\train.py:4", "step")),
    ],
)
def test_functions_of_the_program_are_places(name: str, at: tuple[str, str]) -> None:
    assert place(name) == at


def test_a_backward_operator_has_the_place_of_its_forward_operator() -> None:
    """The sequence number leads from the backward operator in autograd's thread to the forward operator."""
    trace = Stacks()
    trace.function("model.py(5): first", 0, 100)
    trace.function("model.py(9): second", 200, 100)
    trace.product(30, 4.0, sequence=7)
    trace.product(230, 5.0, sequence=8)
    trace.backward(400, 50, 8)
    trace.product(410, 6.0, tid=2, size=65)
    trace.backward(500, 50, 7)
    trace.product(510, 7.0, tid=2, size=66)
    assert trace.places == {
        64: [("model.py:9", "second", 5.0), ("model.py:5", "first", 4.0)],
        65: [("model.py:9", "second", 6.0)],
        66: [("model.py:5", "first", 7.0)],
    }


@pytest.mark.parametrize("sequence", [None, 99])
def test_a_backward_operator_without_a_known_forward_operator_has_no_place(sequence: int | None) -> None:
    """A backward operator is not assigned to the function that calls ``backward()``, also in the same thread."""
    trace = Stacks()
    trace.function("train.py(3): step", 0, 1000)
    trace.product(30, 4.0, sequence=7)
    trace.backward(400, 50, sequence, tid=1)
    trace.product(410, 6.0, size=65)
    assert trace.places == {64: [("train.py:3", "step", 4.0)]}


def test_a_backward_function_of_the_program_is_its_own_place() -> None:
    trace = Stacks()
    trace.function("model.py(5): forward", 0, 100)
    trace.product(30, 4.0, sequence=7)
    trace.backward(400, 90, 7)
    trace.function("model.py(20): backward", 405, 50, tid=2)
    trace.product(410, 6.0, tid=2, size=65)
    assert trace.places[65] == [("model.py:20", "backward", 6.0)]


def test_an_operator_without_gradient_does_not_take_the_sequence_number() -> None:
    """Operators without gradient have the number of the next operator with gradient, so that the last one counts."""
    trace = Stacks()
    trace.function("metric.py(5): accuracy", 0, 100)
    trace.function("model.py(9): forward", 200, 100)
    trace.product(30, 4.0, sequence=7, size=63)
    trace.product(230, 5.0, sequence=7)
    trace.backward(400, 50, 7)
    trace.product(410, 6.0, tid=2, size=65)
    assert trace.places[65] == [("model.py:9", "forward", 6.0)]


def test_a_sequence_number_of_two_threads_leads_to_no_place() -> None:
    """Each thread counts its forward operators by itself, so that one number may stand for two operators."""
    trace = Stacks()
    trace.function("model.py(5): first", 0, 100)
    trace.function("model.py(9): second", 0, 100, tid=3)
    trace.product(30, 4.0, sequence=7)
    trace.product(40, 5.0, tid=3, sequence=7, size=63)
    trace.backward(400, 50, 7)
    trace.product(410, 6.0, tid=2, size=65)
    assert trace.places == {64: [("model.py:5", "first", 4.0)], 63: [("model.py:9", "second", 5.0)]}


def test_three_places_are_kept_and_the_others_counted() -> None:
    trace = Stacks()
    for i in range(5):
        trace.function(f"model.py({i + 1}): f{i}", 100 * i, 90)
        trace.product(100 * i + 10, 10.0 + i)
    values = [x.value for x in records_of(outcomes(profiler.FORMAT, trace.data), Fact) if x.name == places.FACT]
    (value,) = map(json.loads, values)
    assert [x["us"] for x in value["places"]] == [14.0, 13.0, 12.0]
    assert value["others"] == 2
    told = "called from model.py:5 (f4), model.py:4 (f3), model.py:3 (f2) and other places"
    assert places.sentence(values, [value["problem"]]) == told
    assert places.sentence(values, ["gemm of another problem"]) == ""


def test_the_places_of_several_traces_are_added_up() -> None:
    values = [
        places.fact("p", {("a.py:1", "f"): 4.0, ("b.py:2", "g"): 5.0}).value,
        places.fact("p", {("a.py:1", "f"): 4.0}).value,
        "no JSON",
        "[]",
        '{"problem": "p"}',
    ]
    assert places.sentence(values, ["p"]) == "called from a.py:1 (f), b.py:2 (g)"


def test_a_trace_without_stacks_says_nothing(tmp_path: Path) -> None:
    job = SAMPLES / "traces" / "job.trace.json"
    assert found(job) == {}
    assert not any("called from" in line for line in show_all(job, tmp_path))


def test_functions_with_impossible_times_are_left_out() -> None:
    trace = Stacks()
    trace.function("train.py(3): step", 0, 1000)
    trace.function("model.py(5): forward", 0, -1.0)
    trace.function("model.py(6): forward", 1e300, 5.0)
    trace.add("python_function", "model.py(7): forward", 0, 5)
    del trace.events[-1]["dur"]
    trace.product(30, 4.0)
    assert trace.places == {64: [("train.py:3", "step", 4.0)]}


def test_innermost() -> None:
    start, end = (np.array(x, dtype=np.float64) for x in ([0, 10, 10, 30], [100, 20, 40, 35]))
    times = np.array([-1.0, 0.0, 10.0, 20.0, 34.0, 35.0, 99.0, 100.0])
    assert innermost(start, end, times).tolist() == [-1, 0, 1, 2, 3, 2, 0, -1]
    assert innermost(start, end, np.array([np.nan])).tolist() == [-1]
    assert innermost(start[:0], end[:0], times).tolist() == [-1] * 8


def show_all(trace: Path, folder: Path) -> list[str]:
    """Return the lines that ``logparse show`` prints about each problem of a trace."""
    store = stored(trace, folder)
    with store.connect() as con:
        texts = [text for (text,) in con.execute("select distinct problem from calls").fetchall()]
    out: list[str | Rows] = []
    for text in texts:
        out += one_problem.known_lines(store, one_problem.show(store, text))
    return [line for line in out if isinstance(line, str)]


def stored(trace: Path, folder: Path) -> Store:
    store = open_store(folder / "store", create=True)
    ingest([str(trace)], store, run="r", jobs=1)
    return store


def test_show_names_the_places(tmp_path: Path) -> None:
    lines = show_all(SAMPLE, tmp_path)
    assert "called from model.py:20 (attention), model.py:12 (forward)" in lines
    assert "called from model.py:20 (attention)" in lines


def test_show_names_the_places_of_the_latest_run(tmp_path: Path) -> None:
    store = stored(SAMPLE, tmp_path)
    later = tmp_path / "later.json"
    trace: dict[str, Any] = json.loads(SAMPLE.read_text(encoding="utf-8").replace("model.py(20)", "model.py(25)"))
    for event in trace["traceEvents"]:
        event["ts"] += 1e6
    later.write_text(json.dumps(trace), encoding="utf-8")
    ingest([str(later)], store, run="s", jobs=1)
    lines = [x for x in one_problem.known_lines(store, one_problem.show(store, GRADIENT)) if isinstance(x, str)]
    assert [x for x in lines if x.startswith("called")] == ["called from model.py:25 (attention)"]


HOSTILE = "<script>alert(1)</script>\x1b[2J`$(touch x)`.py"


def test_a_hostile_name_of_a_file_is_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from analyzers.explore.report import write_report
    from logparse.cli import app

    trace: dict[str, Any] = json.loads(SAMPLE.read_text(encoding="utf-8"))
    for event in trace["traceEvents"]:
        event["name"] = event["name"].replace("model.py", f"x/{HOSTILE}")
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    store = stored(path, tmp_path)
    with pytest.raises(SystemExit):
        app(["show", GRADIENT, "--store", str(tmp_path / "store")])
    text = capsys.readouterr().out
    assert "called from x/<script>alert(1)</script>\\x1b[2J`$(touch x)`.py:20 (attention)" in text
    assert "\x1b" not in text
    made = write_report(store, tmp_path / "report.html").text
    (packed,) = re.findall(r'<script type="text/plain" id="later">([^<]*)</script>', made)
    cards = gzip.decompress(base64.b64decode(packed)).decode()
    assert json.dumps(text[text.index("x/<script>") : text.index(".py:20")])[1:-1] in cards
    assert '["p",{"class":"caller"},"Called from x/' in cards
    assert "<script>alert" not in made
    assert "\x1b" not in made + cards
    assert "u001b" not in cards


@needs_corpus
def test_real_traces_of_an_mi300x() -> None:
    """Each convolution and matrix product of a ResNet's training step has a place, also in the backward pass."""
    resnet = found(CORPUS / "tracelens" / "mi300_resnet_train.json.gz")
    assert len(resnet) == 35
    assert {x[:2] for each in resnet.values() for x in each} == {
        ("torchvision/models/resnet.py:266", "_forward_impl"),
        ("torchvision/models/resnet.py:89", "forward"),
    }
