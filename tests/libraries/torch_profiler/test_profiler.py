"""Tests of reading torch.profiler traces: samples, damaged traces, real traces, and any layout of the JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.ingest import ingest
from logparse.ingest.input_file import InputFile
from logparse.libraries.hipblaslt import log as hipblaslt_log
from logparse.libraries.kinds.format import TRACE_ID, Head
from logparse.libraries.torch_profiler import profiler
from logparse.libraries.torch_profiler.event_cutter import TraceEvents
from logparse.libraries.torch_profiler.gradients import Split, separate_gradients
from logparse.libraries.torch_profiler.inputs import UNREAD
from logparse.libraries.torch_profiler.records import without_overlap
from logparse.libraries.tunableop import untuned
from logparse.links import find_link_level
from logparse.lookup.ranking import Ranking, top
from logparse.model import Call, ConvProblem, Fact, Kernel, Measurement, Message, Problem, Reject
from logparse.store import Store
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import drip, facts, outcomes, records, records_of, totals, units
from tests.libraries.torch_profiler.made import MadeTrace

FORMAT = profiler.FORMAT
JOB = SAMPLES / "traces" / "job.trace.json"
TEXT = JOB.read_bytes()
CONTENT: dict[str, Any] = json.loads(TEXT)
EVENTS: list[dict[str, Any]] = CONTENT["traceEvents"]
H200 = CORPUS / "h200"


def calls(found: list[Any]) -> dict[str, int | None]:
    return {call.problem.label: call.count for call in records_of(found, Call)}


def test_kernels_and_copies_launched_before_the_trace_are_not_counted(tmp_path: Path) -> None:
    """Kernels and copies that were launched before the trace began are not counted as busy time of the GPU."""
    # When a trace begins, the GPU may still run the previous step. The kernels of that step have no launch in the
    # trace.
    on_gpu = {"ph": "X", "pid": 0, "tid": 7}
    launched = {"device": 0, "stream": 7, "correlation": 9}
    early = {"device": 0, "stream": 7, "correlation": 5}
    events = [
        {**on_gpu, "cat": "kernel", "name": "k", "ts": 100.0, "dur": 50, "args": early},
        {**on_gpu, "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 120.0, "dur": 8, "args": {**early, "stream": 8}},
        {"ph": "X", "pid": 1, "tid": 1, "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": 110.0, "dur": 3,
         "args": {"correlation": 9}},
        {**on_gpu, "cat": "kernel", "name": "k", "ts": 200.0, "dur": 50, "args": launched},
        {**on_gpu, "cat": "gpu_memset", "name": "Memset", "ts": 260.0, "dur": 2, "args": launched},
        {**on_gpu, "cat": "kernel", "name": "k", "ts": 270.0, "dur": 5, "args": launched},
        {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": "aten::x", "ts": 105.0, "dur": 3, "args": {}},
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events}))
    known = facts(outcomes(FORMAT, path))
    assert (known["gpu_busy_us"], known["gpu_copies_us"]) == ("55.000", "2.000")


def test_golden_rest() -> None:
    found = outcomes(FORMAT, JOB)
    assert units(found) == {"call": 9, "measurement": 18, "message": 2, "foreign": 64}
    assert sum(units(found).values()) == len(CONTENT["traceEvents"])
    tail = json.loads(facts(found)["epilogue_kernels"])
    assert (tail["tail"], tail["calls"], tail["us"]) == (["bias", "gelu"], 1, [5.5, 6.25])
    known = facts(found)
    assert {k: v for k, v in known.items() if k not in ("epilogue_kernels", "gpu_gaps", "trace_id")} == {
        "device": "AMD Instinct MI300X",
        "cu_count": "304",
        "backend": "HIP",
        "hip_version": "70152802",
        "rank": "3",
        "pid": "4242",
        "profiler_steps": "2",
        "profiler_steps_us": "1050.250",
        "gpu_window_us": "1050.750",
        "gpu_busy_us": "664.250",
        "gpu_compute_us": "664.250",
        "gpu_copies_us": "1.500",
        "gpu_idle_us": '{"first": 45.0, "queued": 61.5, "launching": 221.0, "nothing": 59.0}',
    }
    assert json.loads(known["gpu_gaps"])[1] == {
        "us": 45.0,
        "why": "first",
        "operator": "aten::addmm",
        "annotation": "ProfilerStep#3",
    }
    assert {(m.function, m.text, m.count) for m in records_of(found, Message)} == {
        ("aten::mm", UNREAD, 1),
        ("", "Memset (Device)", 1),
    }
    assert totals(found)["aten::relu", 'void at::native::relu_kernel<"half">()'] == (1, 4.0)
    kernels = records_of(found, Kernel)
    assert sum(k.calls for k in kernels) == 18
    unlike = {"aten::copy_", "aten::mm", "aten::relu", "aten::add_", "aten::gelu"}
    assert {k.op for k in kernels if k.problem is None} == unlike


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op", "python_function"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("sort", [False, True])
def test_steps_in_any_layout(category: str, indent: int | None, sort: bool) -> None:
    events = [
        {**event, "cat": category} if event.get("cat") == "user_annotation" else event
        for event in CONTENT["traceEvents"]
    ]
    text = json.dumps({**CONTENT, "traceEvents": events}, indent=indent, sort_keys=sort)
    found = facts(outcomes(FORMAT, text.encode()))
    assert (found["profiler_steps"], found["profiler_steps_us"]) == ("2", "1050.250")


def test_what_is_no_step_of_the_job() -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0}
    strangers = [
        {**step, "cat": "gpu_user_annotation"},
        {**step, "name": "ProfilerStep#"},
        {**step, "name": "my ProfilerStep#1"},
        {**step, "dur": "5"},
        {**step, "ph": "i"},
        {**step, "name": "note", "args": {"text": "ProfilerStep#1"}},
    ]
    text = json.dumps({**CONTENT, "traceEvents": strangers})
    assert "profiler_steps" not in facts(outcomes(FORMAT, text.encode()))
    both = json.dumps({**CONTENT, "traceEvents": [*strangers, step, {**step, "cat": "cpu_op"}, {**step, "pid": 2}]})
    found = facts(outcomes(FORMAT, both.encode()))
    assert (found["profiler_steps"], found["profiler_steps_us"]) == ("2", "10.000"), "a step of each process, once"


def stepped(*, works: tuple[bool, ...] = (True, True, False), **header: Any) -> MadeTrace:
    """Make a trace of steps of 1 ms, and a last one of 50 µs. A step that works runs one operator with one kernel."""
    trace = MadeTrace(**header)
    for i, work in enumerate(works):
        begin = 1000.0 * i
        trace.step(begin, begin + (50.0 if i == len(works) - 1 else 1000.0), f"ProfilerStep#{i + 1}")
        if work:
            trace.operator("aten::mm", begin + 10, [("Cijk_", 20.0)])
    return trace


def test_an_empty_last_step_is_no_step() -> None:
    """A program that calls ``step()`` after its last iteration begins a step in which it does nothing."""
    trace = stepped()
    # The program looks for a next batch, and waits for the GPU. The GPU is still busy with work of the step before.
    trace.add("cpu_op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 2005.0, 3.0)
    trace.call("hipDeviceSynchronize", 2010.0, 35.0)
    trace.launch("Cijk_", 1990.0, 20.0, at=2020.0)
    trace.add("cpu_op", "aten::mm", 2055.0, 1.0)  # after the step
    found = outcomes(FORMAT, trace.text.encode())
    known = facts(found)
    assert (known["profiler_steps"], known["profiler_steps_us"]) == ("2", "2000.000")
    assert known["gpu_window_us"] == "2040.000", "it ends with the last kernel"
    [row] = [table for each in found for table in (each.tables or {}).values()]
    assert [x["end"] for x in row.to_pylist()[0]["units"]] == [1000.0, 2000.0], "nor is it simulated"


def test_a_last_step_without_kernels_is_a_step() -> None:
    """The last step counts if the program did something in it, or if its other steps show that it may do nothing."""
    made = {name: stepped() for name in ("operator", "launch", "graph")}
    made["operator"].add("cpu_op", "aten::item", 2010.0, 5.0)
    made["launch"].launch("Cijk_", 2010.0, 5.0)
    made["graph"].graph(2010.0, [])
    made["idle now and then"] = stepped(works=(True, False, True, False))
    made["the only one"] = stepped(works=(False,))
    made["counted by capture"] = stepped(logparse_unit_kinds={"1": "a", "2": "a", "3": "a"})
    steps = {name: facts(outcomes(FORMAT, x.text.encode()))["profiler_steps"] for name, x in made.items()}
    assert steps == dict.fromkeys(made, "3") | {"idle now and then": "4", "the only one": "1"}


def test_an_empty_last_step_is_dropped_in_each_process() -> None:
    one, other = stepped(), stepped(works=(True, True, True))
    events = [*one.events, *({**x, "pid": 8} for x in other.events)]
    found = facts(outcomes(FORMAT, json.dumps({**one.header, "traceEvents": events}).encode()))
    assert (found["profiler_steps"], found["profiler_steps_us"]) == ("5", "4050.000")


def test_steps_of_optimizers_are_counted_if_no_step_is_marked() -> None:
    own = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 1, "tid": 1, "dur": 5.0}
    stepped = [{**own, "ts": float(ts)} for ts in (1, 10, 20)]
    others = [{**own, "ts": 30.0, "name": "Optimizer.zero_grad#SGD.zero_grad"}, {**own, "cat": "gpu_user_annotation"}]
    others.append({**own, "ts": 21.0, "dur": 2.0, "name": "Optimizer.step#Wrapped.step"})
    text = json.dumps({**CONTENT, "traceEvents": [*stepped, *others]})
    assert facts(outcomes(FORMAT, text.encode()))["optimizer_steps"] == "3"
    marked = json.dumps({**CONTENT, "traceEvents": [*stepped, {**own, "ts": 1.0, "name": "ProfilerStep#1"}]})
    assert "optimizer_steps" not in facts(outcomes(FORMAT, marked.encode()))


def test_operators_by_time_are_those_by_id() -> None:
    old = outcomes(FORMAT, SAMPLES / "traces" / "job_without_ids.trace.json.gz")
    own = [
        [x for x in records(each) if not (isinstance(x, Fact) and x.name == TRACE_ID)]
        for each in (old, outcomes(FORMAT, JOB))
    ]
    assert own[0] == own[1]
    assert units(old) == units(outcomes(FORMAT, JOB))


def shuffled_keys(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(sorted(event.items(), reverse=True)) for event in events]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CONTENT),
        json.dumps(CONTENT, separators=(",", ":")),
        json.dumps(CONTENT, indent=4),
        json.dumps(CONTENT, indent=1, sort_keys=True),
        json.dumps({**CONTENT, "traceEvents": shuffled_keys(CONTENT["traceEvents"])}),
        "\ufeff" + TEXT.decode(),
        TEXT.decode().replace("\n", "\r\n"),
    ],
    ids=["dump", "compact", "indented", "sorted", "other order", "BOM", "CRLF"],
)
def test_layout_does_not_matter(text: str) -> None:
    assert records(outcomes(FORMAT, text.encode())) == records(outcomes(FORMAT, JOB))
    assert units(outcomes(FORMAT, text.encode())) == units(outcomes(FORMAT, JOB))


def test_a_bare_list_is_a_trace() -> None:
    found = outcomes(FORMAT, json.dumps(CONTENT["traceEvents"]).encode())
    assert units(found) == units(outcomes(FORMAT, JOB))
    assert calls(found) == calls(outcomes(FORMAT, JOB))


@given(st.integers(1, 5000), st.booleans())
def test_block_size_does_not_matter(size: int, kineto: bool) -> None:
    text = TEXT if kineto else json.dumps(CONTENT).encode()
    events = TraceEvents(drip(text, size), block_bytes=size)
    bodies = [body for batch in events.batches() for body in batch.bodies]
    assert [json.loads(b"{" + body + b"}") for body in bodies] == CONTENT["traceEvents"]
    assert events.damage == []
    assert {**events.header, **events.tail} == {**CONTENT, "traceEvents": []}


def test_offsets_of_events_are_right() -> None:
    for text in (TEXT, json.dumps(CONTENT).encode()):
        for batch in TraceEvents(drip(text, 900), block_bytes=900).batches():
            for i, body in enumerate(batch.bodies):
                at = batch.offset(i)
                assert text[at : at + 1 + len(body)] == b"{" + body


def test_objects_within_arguments_do_not_cut_an_event() -> None:
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "a",
        "ts": 1,
        "dur": 1,
        "args": {"l": [{"x": 1}, {"y": "}, {"}, {"z": 2}]},
    }
    text = json.dumps({"traceEvents": [event] * 40}).encode()
    assert units(outcomes(FORMAT, text)) == {"foreign": 40}


ODD = ['say "}"', "back\\slash\\", '\\"', '\\\\"', "}, {", "a}}", '", "pid": 1', "\u00e9\u2028", "{", '{"']


NOTES: list[object] = ["", "}", "{", {"x": "}}"}, ["}", {}]]


@pytest.mark.parametrize(("name", "note"), list(zip(ODD, NOTES * 2, strict=True)))
def test_braces_and_quotes_in_names_are_read(name: str, note: object) -> None:
    """Names in a trace that look like the end of an event (braces and quotes) are read correctly.

    The fast reader is compared with the slow way, which parses every event as JSON.
    """
    text = TEXT.decode().replace('"aten::copy_"', json.dumps(name)).replace('"igemm_wrw', json.dumps(name)[:-1])
    text = text.replace('"stream":', f'"note": {json.dumps(note)}, "stream":')
    text = text.replace('"Input type":', f'"note": {json.dumps(note)}, "Input type":')
    content = json.loads(text)
    parsed = json.dumps({**content, "traceEvents": shuffled_keys(content["traceEvents"])})
    for spelled in (text, json.dumps(content), json.dumps(content, separators=(",", ":"))):
        found = outcomes(FORMAT, spelled.encode())
        assert units(found) == units(outcomes(FORMAT, parsed.encode()))
        assert records(found) == records(outcomes(FORMAT, parsed.encode()))


@pytest.mark.parametrize(
    "odd",
    [b"a\tb\x01", b"bad \xff\xfe UTF-8", b"C:\\Python\\lib", b"\\ud800", b"\\u12"],
    ids=["control characters", "bad UTF-8", "lone backslashes", "half an escape", "cut escape"],
)
@pytest.mark.parametrize("kineto", [True, False])
def test_invalid_json_in_a_name_costs_no_event(odd: bytes, kineto: bool) -> None:
    """A name that is not valid JSON does not keep the other events of the trace from being read.

    The profiler (Kineto) writes names without escaping them, for example with control characters or a single backslash.
    """
    text = TEXT if kineto else json.dumps(CONTENT).encode()
    event = b'"ph": "X", "cat": "python_function", "name": "%s", "pid": 1, "tid": 1, "ts": 1, "dur": NaN' % odd
    first = b"\n  {\n    %s\n  }," % event if kineto else b"{%s}, " % event
    at = TEXT.index(b'\n  {\n    "ph"') if kineto else text.index(b'[{"ph"') + 1
    found = outcomes(FORMAT, text[:at] + first + text[at:])
    assert records(found) == records(outcomes(FORMAT, JOB))
    held, own = units(found), units(outcomes(FORMAT, JOB))
    assert held == own | {"foreign": own["foreign"] + 1}


def test_a_kernel_keeps_a_name_that_strict_json_refuses() -> None:
    text = TEXT.replace(b'"name": "igemm_wrw', b'"name": "C:\\Q\\igemm_wrw')
    assert text != TEXT
    kernels = {x.kernel for x in records_of(outcomes(FORMAT, text), Kernel)}
    assert any(name.startswith("C:\\Q\\igemm_wrw") for name in kernels)


@pytest.mark.parametrize("spelled", ["kineto", "dump", "sorted"])
def test_inputs_are_read_in_any_order(spelled: str) -> None:
    """logparse reads the inputs of an operator in whatever order the trace has its arguments.

    Triton's operators have their inputs after "Ev Idx". In an earlier version, such inputs were lost if the profiler
    (Kineto) had written the trace itself.
    """
    event = next(x for x in CONTENT["traceEvents"] if x.get("name") == "aten::relu")
    args = {name: x for name, x in event["args"].items() if name != "Ev Idx"}
    moved = {"External id": args.pop("External id"), "Ev Idx": 9, **args, "kernel_backend": "triton", "num_warps": 8}
    if spelled == "kineto":
        old, new = (json.dumps(x)[1:-1].encode() for x in (event["args"], moved))
        line = next(
            x for x in TEXT.split(b"\n") if b'"External id": %d,' % moved["External id"] in x and b"Ev Idx" in x
        )
        text = TEXT.replace(line.strip(), new)
        assert text != TEXT, (old, line)
    else:
        events = [{**x, "args": moved} if x is event else x for x in CONTENT["traceEvents"]]
        text = json.dumps({**CONTENT, "traceEvents": events}, sort_keys=spelled == "sorted").encode()
    assert records(outcomes(FORMAT, text)) == records(outcomes(FORMAT, JOB))


@pytest.mark.parametrize(("name", "value"), [("device", -70_000), ("External id", 1 << 70), ("stream", 1 << 64)])
def test_a_number_that_no_column_holds_is_as_none(name: str, value: int) -> None:
    events = [{**x, "args": {**x["args"], name: value}} if x.get("cat") == "kernel" else x for x in EVENTS]
    without = [{**x, "args": {**x["args"], name: -1}} if x.get("cat") == "kernel" else x for x in EVENTS]
    found, expected = (outcomes(FORMAT, json.dumps({**CONTENT, "traceEvents": x}).encode()) for x in (events, without))
    assert records(found) == records(expected)
    assert units(found) == units(expected)


def test_arguments_nested_deeply_cost_one_event() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = TEXT.replace(b'"Input Dims": [[2048, 3072]], "Ev Idx": 12', f'"Input Dims": {deep}'.encode())
    assert text != TEXT
    found = outcomes(FORMAT, text)
    (reject,) = [r for o in found for r in o.records if isinstance(r, Reject)]
    assert reject.reason == "nested too deeply"
    assert calls(found) == calls(outcomes(FORMAT, JOB))


def test_a_damaged_event_is_one_reject() -> None:
    text = TEXT.replace(b'"name": "aten::relu"', b'"name": aten::relu"')
    found = outcomes(FORMAT, text)
    (reject,) = [o for o in found if o.unit == "reject" and o.lines]
    assert text[reject.at :].startswith(b'{\n    "ph": "X", "cat": "cpu_op", "name": aten::relu"')
    assert calls(found) == calls(outcomes(FORMAT, JOB))
    assert sum(units(found).values()) == len(CONTENT["traceEvents"])
    kernels = records_of(found, Kernel)
    assert [k.op for k in kernels if "relu_kernel" in k.kernel] == [""]


def test_a_cut_file_states_where() -> None:
    found = outcomes(FORMAT, TEXT[: TEXT.index(b'"aten::bmm"') + 100])
    (reject,) = [o for o in found if o.unit == "reject"]
    assert TEXT[reject.at :].startswith(b'\n    "ph": "X", "cat": "cpu_op", "name": "aten::bmm"')
    assert len(calls(found)) == 3


def test_ids_of_several_operators_give_no_operator() -> None:
    events = CONTENT["traceEvents"]
    found = outcomes(
        FORMAT, json.dumps({"traceEvents": [*events, *(e for e in events if e.get("cat") == "cpu_op")]}).encode()
    )
    assert records_of(found, Call) == []
    assert [m.count for m in records_of(found, Message) if "External id" in m.text] == [18]


@pytest.mark.parametrize(
    ("data", "ours"),
    [
        (TEXT[:4096], True),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op"', True),
        (b'[{"ph": "X", "cat": "cpu_op"', True),
        (b'{"traceEvents": [{"ph": "X", "cat": "gpu"', False),
        (b'{"rocprofiler-sdk-tool": [', False),
        (b"", False),
        (b"Validator,PT_VERSION,2.9.1\n", False),
    ],
)
def test_recognise(data: bytes, ours: bool) -> None:
    assert FORMAT.recognise(Head("job.json", data)) is ours


D, W, G, IN, OUT, T = (
    "a_dgrad_k",
    "b_wgrad_k",
    "nvjet_sm90",
    "nchwToNhwcKernel",
    "nhwcToNchwKernel",
    "batched_transpose",
)


CAST, CLEAR = "SubTensorOpWithCastTensor1d", "SubTensorOpWithScalar1d"
CK = "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47Gridwise"


@pytest.mark.parametrize(
    ("kernels", "cut"),
    [
        ([D, W], Split(1)),
        ([IN, D, OUT, IN, IN, W, OUT], Split(3)),
        ([IN, IN, D, W], Split(3)),
        ([G, W], Split(1)),
        ([G, IN, IN, W], Split(1)),
        ([G, OUT, IN, G], Split(2)),
        ([G, "nvjet_sm90_hss", "void cudnn::cnn::reduce_wgrad_nchw_helper<float>"], Split(1)),
        (["dgrad2d_c1_k1_nhwc", "wgrad2d_c1_k1_nhwc", "wgrad2d_c1_k1_nhwc_reduce"], Split(1)),
        # ConvNeXt's kernels
        (["dgrad2d_c1_k1_nhwc_specialized", "wgrad2d_c1_k1_nhwc", "wgrad2d_c1_k1_nhwc_reduce"], Split(1)),
        (["dgrad2d_c1_k1_nhwc_specialized", "wgrad2d_shmem_tiling"], Split(1)),
        (["Cijk_A", "Cijk_A", "Cijk_B", "Cijk_B"], Split(2)),  # one product per group or image
        (["Cijk_A", "Col2Im2dU", "Cijk_A", "Col2Im2dU", "Im2d2Col", "Cijk_B", "Im2d2Col", "Cijk_B"], Split(4)),
        ([T, D, W, T], Split(2)),
        # the first gradient got no transposed operand, so the transposition after it belongs to the second
        ([D, T, W], Split(1)),
        ([T, T, D, T, W], Split(4)),
        ([CLEAR, T, T, "igemm_bwd_gtcx3", CAST, T, CLEAR, T, T, "igemm_wrw_gtcx3", CAST, T], Split(6)),
        ([CLEAR, T, T, "igemm_bwd_gtcx3", CAST, T, T, T, T, CK, T], Split(6)),
        ([CLEAR, "transpose_NCHW2CNHW", "Cijk_A", "transpose_CNHW2NCHW", CLEAR, T, T, "igemm_wrw_", CAST], Split(4)),
        ([D, "igemm_wrw_gtcx3"], Split(1)),
        (["igemm_bwd_gtcx3", CLEAR, "igemm_wrw_gtcx3"], Split(1)),
        (["naive_conv_ab_nonpacked_bwd_nchw_half", "naive_conv_ab_nonpacked_wrw_nchw_half"], Split(1)),
        (["kernel_grouped_conv_bwd_data_multiple_d_xdl", "kernel_grouped_conv_bwd_weight_xdl"], Split(1)),
        (["conv_depthwise2d_grad_weight_kernel", "conv_depthwise2d_backward_kernel"], Split(1, weights_first=True)),
        (["conv_depthwise3d_cuda_backward_input_kernel", "conv_depthwise3d_cuda_backward_weight_kernel"], Split(1)),
        (["void dgrad2d_grouped_direct_kernel<float>", "void wgrad2d_grouped_direct_kernel<float>"], Split(1)),
        (["void conv2d_grouped_direct_kernel<float>", "void wgrad2d_grouped_direct_kernel<float>"], Split(1)),
        ([D, G, W], Split(2)),
        ([D, IN, OUT, W], Split(1)),
        ([D, G, "nvjet_other"], Split(1)),
        ([G, "nvjet_other", W], Split(2)),
        ([G, "nvjet_other", "nvjet_third"], None),
        ([G, G, G], None),
        ([W, D], Split(1, weights_first=True)),
        ([W, IN, D], None),
        ([G], None),
        ([W], None),
        ([], None),
    ],
)
def test_gradients(kernels: list[str], cut: Split | None) -> None:
    assert separate_gradients(kernels) == cut


def test_weight_gradients_that_come_first_count_as_such() -> None:
    names = ("igemm_bwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32", "igemm_wrw_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32")
    events = [e for e in CONTENT["traceEvents"] if "SubTensorOp" not in str(e)]
    text = json.dumps({**CONTENT, "traceEvents": events}).replace(names[0], "conv_depthwise2d_grad_weight_kernel")
    found = outcomes(FORMAT, text.replace(names[1], "conv_depthwise2d_backward_kernel").encode())
    kernels = {x.kernel: x for x in records_of(found, Kernel)}
    for name, direction in (("conv_depthwise2d_grad_weight_kernel", "W"), ("conv_depthwise2d_backward_kernel", "B")):
        problem = kernels[name].problem
        assert isinstance(problem, ConvProblem)
        assert problem.direction == direction


def problems(found: list[Any]) -> set[Problem]:
    return {call.problem for call in records_of(found, Call)}


@needs_corpus
def test_gpt2_holds_what_the_log_and_the_untuned_file_hold() -> None:
    found = outcomes(FORMAT, H200 / "gpt2.trace.json.gz")
    assert sum(units(found).values()) == 11_579
    assert units(found)["call"] == sum(call.count or 0 for call in records_of(found, Call)) == 150
    traced = problems(found)
    logged: set[Problem] = set()
    for line in InputFile(str(H200 / "cublaslt_mask31_588.log.gz")).lines():
        text = re.sub(r"^.*?(\[cublasLt\])\[\d+\]", r"\1", line.text)
        if "[Trace]" in text:
            logged |= {r.problem for r in hipblaslt_log.FORMAT.read(text).records if isinstance(r, Call)}
    listed = problems(outcomes(untuned.FORMAT, H200 / "gpt2_untuned0.csv"))
    assert len(traced) == len(logged) == len(listed) == 19
    for other in (logged, listed):
        pairs = [(p, q, find_link_level(p, q)) for p in traced for q in other if find_link_level(p, q)]
        assert len(pairs) == len({p for p, _, _ in pairs}) == len({q for _, q, _ in pairs}) == 19
    assert (
        sorted(str(find_link_level(p, q)) for p in traced for q in logged if find_link_level(p, q)).count("exact") == 15
    )


@needs_corpus
def test_gpt2_addmm_is_counted_once() -> None:
    found = outcomes(FORMAT, H200 / "gpt2.trace.json.gz")
    addmm = [k for k in records_of(found, Kernel) if k.op == "aten::addmm"]
    assert sum(k.calls for k in addmm) == 32
    assert {k.problem.a_type for k in addmm if k.problem} == {"bf16_r"}  # type: ignore[union-attr]


@needs_corpus
def test_resnet50_kernels() -> None:
    found = outcomes(FORMAT, H200 / "resnet50.trace.json.gz")
    assert sum(units(found).values()) == 17_875
    kernels = records_of(found, Kernel)
    assert round(sum(k.total_us for k in kernels) / 1e3, 1) == 22.8
    assert round(sum(k.total_us for k in kernels if k.problem is None) / 1e3, 1) == 12.9
    measured = sum(sum(m.samples_us) for m in records_of(found, Measurement))
    assert measured == pytest.approx(sum(k.total_us for k in kernels if k.problem))
    conv = {c.problem.direction: 0 for c in records_of(found, Call) if isinstance(c.problem, ConvProblem)}
    assert conv.keys() == {"F", "B", "W"}
    assert facts(found)["arch"] == "sm_90"


@needs_corpus
@pytest.mark.parametrize("name", ["h200/resnet50.trace", "nvidia/convnext_tiny.trace", "tracelens/mi300_resnet_train"])
def test_backward_convolutions_of_real_traces_are_split(name: str) -> None:
    calls = records_of(outcomes(FORMAT, CORPUS / f"{name}.json.gz"), Call)
    assert {x.problem.direction for x in calls if isinstance(x.problem, ConvProblem)} == set("FBW")


def test_ids_of_launches_are_not_taken_for_ids_of_operators() -> None:
    """Some traces of ROCm state the correlation of a launch as ``External id``, which an operator may have, too."""
    made = MadeTrace()
    for i in range(8):
        made.operator("aten::mm", 100.0 * i, [("Cijk_one", 20.0), ("Cijk_two", 4.0)], dims=((64 << i, 64), (64, 64)))
    by_id = outcomes(FORMAT, made.text.encode())
    operators = 0
    for event in made.events:
        operators += event["cat"] == "cpu_op"
        event["args"]["External id"] = event["args"].pop("correlation", operators)
    both = [{x["args"]["External id"] for x in made.events if x["cat"] == cat} for cat in ("cpu_op", "kernel")]
    assert both[0] & both[1], "the ids of some kernels are ids of other operators"
    assert totals(outcomes(FORMAT, made.text.encode())) == totals(by_id)


@needs_corpus
@pytest.mark.parametrize("name", ["gpt2", "resnet50"])
def test_real_ids_agree_with_times(name: str) -> None:
    path = H200 / f"{name}.trace.json.gz"
    with InputFile(str(path)).open() as stream:
        content = json.load(stream)
    for event in content["traceEvents"]:
        if event.get("cat") == "kernel":
            del event["args"]["External id"]
    by_time = outcomes(FORMAT, json.dumps(content).encode())
    by_id = outcomes(FORMAT, path)
    assert totals(by_time) == totals(by_id)
    assert units(by_time) == units(by_id)


@needs_corpus
def test_every_convolution_of_permuted_views_has_a_layout() -> None:
    found = outcomes(FORMAT, CORPUS / "nvidia/convnext_tiny.trace.json.gz")
    convs = {call.problem for call in records_of(found, Call) if isinstance(call.problem, ConvProblem)}
    layouts = [{p.in_layout, p.weights_layout, p.out_layout} for p in convs]
    assert sorted(map(sorted, layouts)) == [["NCHW"]] * 2 + [["NHWC"]] * 21  # type: ignore[type-var, arg-type]
    layers = {(p.layer, p.direction) for p in convs}
    assert all((layer, "F") in layers for layer, _ in layers)


def test_kernels_of_one_operator_that_overlap_count_the_time_in_which_any_runs() -> None:
    op, device = np.array([0, 0, 0, 0, 1, 1, -1, -1]), np.zeros(8, dtype=np.int64)
    start = np.array([0.5, 4.0, 6.0, 20.0, 8.0, 30.0, 0.0, 1.0])
    us = np.array([9.5, 10.0, 2.0, 5.0, 4.0, 1.0, 5.0, 5.0])
    found = without_overlap(us, start, op, device)
    assert found[:4].sum() == pytest.approx(13.5 + 5.0), "0.5 to 14 and 20 to 25"
    assert found[:4] / us[:4] == pytest.approx(18.5 / 26.5), "each in proportion"
    assert found[4:].tolist() == us[4:].tolist(), "operators are not compared, and what has none stays"
    turned = np.random.default_rng(0).permutation(8)
    assert without_overlap(us[turned], start[turned], op[turned], device[turned]) == pytest.approx(found[turned])
    two = np.array([0, 1, 0, 0, 0, 0, 0, 0])
    assert without_overlap(us, start, op, two)[1] == 10.0, "nor are two devices"


def test_whole_microseconds_overlap_by_rounding() -> None:
    op, device = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)
    us = np.array([5.0, 5.0, 5.0])
    assert without_overlap(us, np.array([0.0, 4.0, 8.0]), op, device).tolist() == us.tolist()
    assert without_overlap(us, np.array([0.0, 4.0, 5.0]), op, device).sum() == pytest.approx(12.0)


def test_top_adds_up_to_the_time_of_the_kernels(store: Store) -> None:
    ingest([str(JOB)], store, run="job")
    kernels = store.query("select problem, total_us from kernels where problem is not null")
    held = kernels.groupby("problem")["total_us"].sum()
    ranked = top(store, by="time", n=1000).set_index("text")["total_us"]
    assert ranked.to_dict() == pytest.approx(held.to_dict())
    assert ranked.is_monotonic_decreasing


def test_times_are_microseconds_whatever_is_displayed() -> None:
    """Times in a trace are taken as microseconds, even if the trace tells its viewer to show nanoseconds."""
    shown = CONTENT | {"displayTimeUnit": "ns", "baseTimeNanoseconds": 1759190000000000000}
    assert totals(outcomes(FORMAT, json.dumps(shown).encode())) == totals(outcomes(FORMAT, JOB))


@pytest.mark.parametrize(("steps", "said"), [(1, "in 1 traced step;"), (2, "in 2 traced steps;")])
def test_the_sum_of_one_traced_step_has_the_singular(steps: int, said: str) -> None:
    rows = pa.table({"problem": ["p"]})
    whole = Ranking(rows, problems=1, calls=4, timed=1, total_us=10.0, saves_us=None, steps=steps, traced=True)
    assert said in whole.total
