"""Tests of traces with CUDA or HIP graphs: which operator does each kernel of a launched graph belong to?

Only the trace of the capture shows the operators. The tests use real traces, the sample, and launches that fit no
capture.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from logparse.ingest import ingest
from logparse.ingest.input_file import InputFile
from logparse.libraries.torch_profiler.graphs import Capture, _has_captures
from logparse.libraries.torch_profiler.profiler import FORMAT
from logparse.model import Call, Fact, GemmProblem, Kernel, Measurement, Record
from logparse.store import Store
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import Memory, drip, outcomes, records, units

FOLDER = SAMPLES / "graph"


@dataclass
class Dripping(Memory):
    """An input file from which each read returns only a few bytes."""

    def open(self) -> BinaryIO:
        return drip(self.data, 5)


def test_the_mark_of_a_capture_is_found_across_reads() -> None:
    assert _has_captures(Dripping(b'{"name": "cudaStreamBeginCapture"}'))
    assert not _has_captures(Dripping(b'{"name": "cudaStreamBegin", "capture": 1}'))


def read(path: Path) -> list[Record]:
    return records(outcomes(FORMAT, path))


def calls(found: list[Record]) -> Counter[str]:
    out = Counter[str]()
    for record in found:
        if isinstance(record, Call):
            out[record.problem.label] += record.count or 0
    return out


def facts(found: list[Record]) -> dict[str, str]:
    return {r.name: r.value for r in found if isinstance(r, Fact)}


@needs_corpus
def test_a_real_decode_step_agrees_with_the_reference_report(tmp_path: Path) -> None:
    folder = CORPUS / "tracelens"
    found = read(folder / "mi300_sglang_decode.json.gz")
    assert sum(calls(found).values()) == 145
    us = sum(r.total_us for r in found if isinstance(r, Kernel) and isinstance(r.problem, GemmProblem))
    assert us == pytest.approx(5782.2539, abs=0.01)
    assert facts(found)["graph_unexplained_us"] == "0.000"
    assert sum(r.total_us for r in found if isinstance(r, Kernel)) == pytest.approx(9765.437, abs=0.01)
    shutil.copy(folder / "mi300_sglang_decode.json.gz", tmp_path)
    alone = read(tmp_path / "mi300_sglang_decode.json.gz")
    assert not calls(alone)
    assert facts(alone)["graph_unexplained_us"] == facts(alone)["graph_us"] == "9656.404"


def test_replays_are_calls_of_the_captured_problems() -> None:
    found = read(FOLDER / "decode.trace.json")
    assert calls(found) == {"TN 1024×32×512 bf16_r": 4}
    (measured,) = [r for r in found if isinstance(r, Measurement)]
    assert measured.samples_us == (20.0, 21.0, 22.0, 23.0)
    by_op = Counter[str]()
    for r in found:
        if isinstance(r, Kernel):
            by_op[r.op] += r.calls
    assert by_op == {"aten::mm": 4, "aiter::rmsnorm": 4, "": 3}
    assert {k: v for k, v in facts(found).items() if k.startswith("graph")} == {
        "graph_launches": "3", "graph_us": "133.000", "graph_unexplained_us": "34.000",
    }  # fmt: skip


def test_units_are_the_events_of_the_trace_alone() -> None:
    content = json.loads((FOLDER / "decode.trace.json").read_text())
    assert units(outcomes(FORMAT, FOLDER / "decode.trace.json")) == {"measurement": 11, "foreign": 3}
    assert len(content["traceEvents"]) == 14


def test_a_capture_itself_ran_nothing() -> None:
    assert not calls(read(FOLDER / "capture.trace.json"))


def test_traces_of_one_folder_in_a_store(store: Store) -> None:
    ingest([str(FOLDER)], store, run="server")
    found = store.query("select cast(sum(calls) as int) as calls from workload")
    assert found["calls"].tolist() == [4]


def trace(folder: Path, name: str, change: Any) -> None:
    content = json.loads((FOLDER / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


def test_captures_are_found_in_their_own_folder(tmp_path: Path) -> None:
    """If a job captured a CUDA graph, logparse also finds the trace of the capture in the folder ``capture_traces``.

    vLLM 0.26, SGLang and ATOM write it there, beside the job's trace.
    """
    shutil.copy(FOLDER / "decode.trace.json", tmp_path)
    assert not calls(read(tmp_path / "decode.trace.json"))
    (tmp_path / "capture_traces").mkdir()
    shutil.copy(FOLDER / "capture.trace.json", tmp_path / "capture_traces" / "bs_32_rank0.json")
    assert sum(calls(read(tmp_path / "decode.trace.json")).values()) == 4


def test_another_rank_s_capture_is_none(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "decode.trace.json", tmp_path)
    trace(tmp_path, "capture.trace.json", lambda x: x["distributedInfo"].update(rank=1))
    assert not calls(read(tmp_path / "decode.trace.json"))


def test_captures_of_equal_kernels_and_other_problems_are_ambiguous(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "decode.trace.json", tmp_path)

    def twice(content: dict[str, Any]) -> None:
        more = json.loads(json.dumps(content["traceEvents"]).replace("[32, 512]", "[24, 512]"))
        for event in more:
            event["ts"] += 10_000
            event["args"].update({"External id": event["args"].get("External id", 0) + 5000})
        content["traceEvents"] += more

    trace(tmp_path, "capture.trace.json", twice)
    found = read(tmp_path / "decode.trace.json")
    assert not calls(found)
    assert facts(found)["graph_unexplained_us"] == "133.000"


def test_one_trace_may_hold_both(tmp_path: Path) -> None:
    captured = json.loads((FOLDER / "capture.trace.json").read_text())["traceEvents"]
    trace(tmp_path, "decode.trace.json", lambda x: x["traceEvents"].extend(captured))
    assert sum(calls(read(tmp_path / "decode.trace.json")).values()) == 4


def test_files_beside(tmp_path: Path) -> None:
    for name in ("b.json", "a.json.gz", "c.log"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    assert [Path(x.path).name for x in InputFile(str(tmp_path / "b.json")).beside()] == ["a.json.gz", "c.log"]
    assert [x.path for x in InputFile(f"file://{tmp_path}/b.json").beside()] == [
        f"file://{tmp_path}/a.json.gz", f"file://{tmp_path}/c.log",
    ]  # fmt: skip
    (tmp_path / "capture_traces").mkdir()
    (tmp_path / "capture_traces" / "b.json").write_bytes(b"x")
    for place in (str(tmp_path), f"file://{tmp_path}"):
        assert [x.path for x in InputFile(f"{place}/b.json").beside()][2:] == [f"{place}/capture_traces/b.json"]
    assert not list(InputFile("-").beside())


def test_graphs_launched_in_a_marked_range_have_no_operator() -> None:
    """If a program launches a CUDA graph within a range that it marked, the graph's kernels belong to no operator."""
    # In the trace these kernels have the id of the marked range, not the id of an operator. Their time is reported as
    # unexplained.
    content = json.loads((FOLDER / "decode.trace.json").read_text())
    changed = json.loads(json.dumps(content))
    for event in changed["traceEvents"]:
        if event.get("cat") == "kernel":
            event["args"].setdefault("External id", 987_654)
    assert json.dumps(changed) != json.dumps(content)
    known, found = (facts(records(outcomes(FORMAT, json.dumps(x).encode()))) for x in (content, changed))
    assert found == known
    assert float(found["graph_unexplained_us"]) > 0


def test_graph_kernels_belong_to_the_captured_operators(tmp_path: Path) -> None:
    """The kernels of a CUDA graph are credited to the operators that were captured, not to what launches the graph.

    Here a compiled region launches the graph. In the trace the kernels have the id of this region.
    """
    shutil.copy(FOLDER / "capture.trace.json", tmp_path)
    content = json.loads((FOLDER / "decode.trace.json").read_text())
    events = content["traceEvents"]
    launches = [e for e in events if e["name"] == "hipGraphLaunch"]
    replayed = {launch["args"]["correlation"] for launch in launches}
    region = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "Torch-Compiled Region: 0/0",
        **{k: launches[0][k] for k in ("pid", "tid")},
    }
    for number, launch in enumerate(launches):
        events.append({**region, "ts": launch["ts"] - 1, "dur": 10, "args": {"External id": 900_000 + number}})
    for event in events:
        if event.get("cat") == "kernel" and event["args"]["correlation"] in replayed:
            number = sorted(replayed).index(event["args"]["correlation"])
            event["args"]["External id"] = 900_000 + number
    path = tmp_path / "decode.trace.json"
    path.write_text(json.dumps(content))
    found, known = read(path), read(FOLDER / "decode.trace.json")
    assert calls(found) == calls(known)
    assert facts(found) == {**facts(known), "pid": str(region["pid"])}
    ops = {r.op for r in found if isinstance(r, Kernel)}
    assert ops == {"aten::mm", "aiter::rmsnorm", "Torch-Compiled Region: 0/0"}


def test_captures_of_equal_layers_are_one(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "decode.trace.json", tmp_path)
    content = json.loads((FOLDER / "capture.trace.json").read_text())
    later = json.loads(json.dumps(content["traceEvents"]))
    for event in later:
        event["ts"] = event.get("ts", 0) + 1e6
        for name in {"External id", "correlation"} & event.get("args", {}).keys():
            event["args"][name] += 500_000
    content["traceEvents"] += later
    (tmp_path / "capture.trace.json").write_text(json.dumps(content))
    assert calls(read(tmp_path / "decode.trace.json")) == {"TN 1024×32×512 bf16_r": 4}


def test_the_last_kernel_of_a_large_graph_may_lack() -> None:
    names = tuple(range(200))
    capture = Capture(names, names, names)
    assert [count for count in range(190, 202) if capture.has(tuple(range(count)))] == [199, 200]
    assert not capture.has((*names[:198], 0))


def as_cuda(name: str) -> dict[str, Any]:
    """Return the sample trace as it would be on NVIDIA, where launches do not name their kernels."""
    text = (FOLDER / name).read_text().replace('"hipExtModuleLaunchKernel"', '"cuLaunchKernel"')
    content: dict[str, Any] = json.loads(text.replace('"hip', '"cuda').replace("Cijk_", "nvjet_"))
    for event in content["traceEvents"]:
        event["args"].pop("kernel", None)
    return content


def written(folder: Path, name: str, content: dict[str, Any]) -> Path:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content))
    return folder / name


def moved(content: dict[str, Any], by: int) -> dict[str, Any]:
    """Return a copy of a trace with later times, other ids and another batch size."""
    changed: dict[str, Any] = json.loads(json.dumps(content).replace("[32, 512]", f"[{32 + by}, 512]"))
    for event in changed["traceEvents"]:
        event["ts"] += 10_000 * by
        for key in {"External id", "correlation"} & event["args"].keys():
            event["args"][key] += 1000 * by
    return changed


def test_cuda_replays_are_joined_by_the_order_of_their_launches(tmp_path: Path, store: Store) -> None:
    known, path = read(FOLDER / "decode.trace.json"), written(tmp_path, "decode.json", as_cuda("decode.trace.json"))
    assert facts(read(path))["graph_unexplained_us"] == "133.000", "no capture"
    capture = written(tmp_path, "capture_traces/trace_1_g1.json", as_cuda("capture.trace.json"))
    found = read(path)
    assert calls(found) == calls(known) == {"TN 1024×32×512 bf16_r": 4}
    assert facts(found)["graph_unexplained_us"] == "34.000", "the third replay has one kernel less"
    assert not calls(read(capture)), "nothing ran there"
    ingest([str(tmp_path)], store, run="server")
    assert store.query("select cast(sum(calls) as int) as calls from workload")["calls"].tolist() == [4]


def test_only_launches_during_the_capture_count(tmp_path: Path) -> None:
    """Only launches during the capture belong to a captured graph, even if several threads launch kernels.

    Here another thread launches gradients. A kernel that really ran, or that was launched before the capture, does not
    belong to the graph.
    """
    path = written(tmp_path, "decode.json", as_cuda("decode.trace.json"))
    content = as_cuda("capture.trace.json")
    events = content["traceEvents"]
    captured = [x for x in events if "aunchKernel" in x["name"]]
    captured[-1]["tid"] = 77
    early = {**captured[0], "ts": 50.0, "args": {**captured[0]["args"], "correlation": 5000}}
    eager = {**captured[0], "tid": 78, "args": {**captured[0]["args"], "correlation": 5001}}
    ran = {"ph": "X", "cat": "kernel", "name": "other", "pid": 0, "tid": 3, "ts": 140.0, "dur": 1.0}
    events += [early, eager, {**ran, "args": {"correlation": 5001, "device": 0}}]
    written(tmp_path, "capture.json", content)
    assert calls(read(path)) == {"TN 1024×32×512 bf16_r": 4}
    events.pop()
    written(tmp_path, "capture.json", content)
    assert not calls(read(path)), "five launches, four kernels"


@pytest.mark.parametrize("kernel", ["void at::native::vectorized_elementwise_kernel<4>", "nvjet_MT64"])
def test_a_kernel_that_contradicts_its_operator_ends_the_join(tmp_path: Path, kernel: str) -> None:
    replay, capture = as_cuda("decode.trace.json"), as_cuda("capture.trace.json")
    text = json.dumps(replay)
    if kernel.startswith("void"):  # a kernel that computes no product stands for a product
        replay = json.loads(re.sub(r"nvjet_\w+", kernel, text))
    else:  # a product's kernel stands for an elementwise operator
        replay = json.loads(text.replace("_ZN5aiter18rmsnorm_quantE", kernel))
        for event in capture["traceEvents"]:
            event["name"] = event["name"].replace("aiter::rmsnorm", "aten::mul")
    written(tmp_path, "capture.json", capture)
    assert facts(read(written(tmp_path, "decode.json", replay)))["graph_unexplained_us"] == "133.000"


def test_marks_tell_graphs_with_as_many_kernels_apart(tmp_path: Path) -> None:
    replay, capture = as_cuda("decode.trace.json"), as_cuda("capture.trace.json")
    other = moved(capture, 8)
    for number, content in enumerate((capture, other), start=1):
        content["logparse_graph"] = f"4242.{number}"
        written(tmp_path, f"capture_traces/trace_4242_g{number}.json", content)
    assert not calls(read(written(tmp_path, "plain.json", replay))), "two that differ"
    replay["logparse_graphs"] = ["4242.2", "4242.1", "4242.2"]
    path = written(tmp_path, "decode.json", replay)
    assert calls(read(path)) == {"TN 1024×40×512 bf16_r": 2, "TN 1024×32×512 bf16_r": 2}
    replay["logparse_graphs"][1] = "4242.3"
    assert calls(read(written(tmp_path, "decode.json", replay))) == {"TN 1024×40×512 bf16_r": 2}, "not traced"
    replay["logparse_graphs"].pop()
    assert not calls(read(written(tmp_path, "decode.json", replay))), "a launch of another library"


def test_kernels_during_a_capture_belong_to_no_step(tmp_path: Path) -> None:
    """Kernels that ran while a CUDA graph was captured are not counted in any step of the job.

    PyTorch runs such kernels before the capture begins, for the random seeds of the graph.
    """
    content = as_cuda("capture.trace.json")
    (mm,) = [x for x in content["traceEvents"] if x["args"].get("External id") == 102 and x["cat"] == "cpu_op"]
    ran = {"ph": "X", "pid": 0, "tid": 3, "ts": 90.0, "dur": 5.0, "args": {"External id": 99, "correlation": 7}}
    content["traceEvents"] += [
        {**mm, "ts": 80.0, "args": {**mm["args"], "External id": 99}},
        {**ran, "cat": "kernel", "name": "nvjet"},
        {**ran, "cat": "gpu_memset", "name": "Memset (Device)", "args": {}},
    ]
    launched = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaGraphLaunch",
        "pid": 0,
        "tid": 3,
        "ts": 900.0,
        "dur": 1.0,
    }
    job = {**content, "traceEvents": [*content["traceEvents"], launched]}
    assert sum(calls(read(written(tmp_path, "capture.json", job))).values()) == 1, "a job that captures a graph itself"
    for mark in ({}, {"logparse_graph": "4242.1"}):
        path = written(tmp_path, "capture.json", content | mark)
        assert not [x for x in read(path) if isinstance(x, (Call, Kernel, Measurement))]
        assert units(outcomes(FORMAT, path)) == {"foreign": len(content["traceEvents"])}
        assert facts(read(path))["graph_capture"] == '{"kernels": 1, "us": 5.0}', "what is left out"


def test_graph_kernels_belong_to_the_launching_step(tmp_path: Path) -> None:
    """The kernels of a CUDA graph belong to the step that launched the graph, even if they run later."""
    # By then the step is over on the host. The profiler also marks each step on the GPU's timeline, but these marks
    # must not decide.
    replay = as_cuda("decode.trace.json")
    replay["logparse_unit_kinds"] = {"1": "graph 1", "2": "graph 2"}
    step = {"ph": "X", "name": "ProfilerStep#1", "pid": 4242, "tid": 4242, "ts": 900.0, "dur": 50.0, "args": {}}
    for number, begun in ((1, 1040.0), (2, 3040.0)):
        name = {"name": f"ProfilerStep#{number}"}
        replay["traceEvents"] += [
            {**step, **name, "cat": "user_annotation", "ts": 900.0 + 60 * number},
            {**step, **name, "cat": "gpu_user_annotation", "ts": begun, "pid": 0, "tid": 3},
        ]
    written(tmp_path, "capture.json", as_cuda("capture.trace.json"))
    found = read(written(tmp_path, "decode.json", replay))
    units = Counter[str]()
    for record in found:
        if isinstance(record, Kernel) and record.op:
            units[str(record.unit)] += record.calls
    assert units == {"graph 1": 4, "graph 2": 4}
