from __future__ import annotations

from dataclasses import replace

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import completeness
from logparse.libraries.kinds.line_prefixes import SHARED
from logparse.libraries.torch_profiler.inputs import UNREAD
from tests.analyzers.build import call, facts, message, tables, work
from tests.analyzers.example import gemm


def planted() -> Tables:
    """Return made-up data of a job with two defects: too little was logged, and one process lacks calls.

    The log level was too low, and process 3 has fewer calls than the other processes.
    """
    one, two = gemm(1).text, gemm(2).text
    return tables(
        messages=[message("api")],
        calls=[call(one, count=10), call(two, count=5), call(one, count=9, category="profile")],
        workload=[work(one, 10), work(two, 5), work(one, 12, pid=2), work(one, 3, pid=3)],
    )


def find_remarks(t: Tables) -> str:
    return "\n".join(x.message for x in completeness.find(t, Settings()))


def test_operators_of_a_trace_without_inputs_are_remarked() -> None:
    unread = [message("profiler", name, UNREAD) for name in ("aten::mm", "aten::addmm")]
    assert find_remarks(tables(messages=unread)).startswith(
        "2 × aten::addmm, aten::mm cannot be analysed, because the trace"
    )
    assert find_remarks(tables(messages=[message("profiler", "", "Memset (Device)")])) == ""


def test_level_may_have_disabled_the_mask() -> None:
    assert "silently disables HIPBLASLT_LOG_MASK" in find_remarks(tables(messages=[message("api")]))
    assert "HIPBLASLT_LOG_LEVEL" not in find_remarks(tables(messages=[message("error")]))
    assert "HIPBLASLT_LOG_LEVEL" not in find_remarks(tables(messages=[message("api", "cublasLtCreate")]))


def test_no_hipblaslt_advice_for_a_cublaslt_log() -> None:
    """For a log of cuBLASLt, the user is not advised to set HIPBLASLT_LOG_LEVEL."""
    # A log is taken to be from cuBLASLt if its calls name a cuBLASLt algorithm, or if another file of the run states
    # the backend CUDA. The advice is for logs that lack calls, but a log of cuBLASLt has all calls.
    calls = [call(gemm().text, category="trace")]
    assert "HIPBLASLT_LOG_LEVEL" in find_remarks(tables(calls=calls))
    assert find_remarks(tables(calls=calls, facts=facts("other", backend="CUDA"))) == ""
    assert find_remarks(tables(calls=[calls[0] | {"solution": "cublaslt:id=66"}])) == ""


def test_lines_that_a_tool_wrote_show_no_mask() -> None:
    assert find_remarks(tables(calls=[call(gemm().text, by_tool=True)])) == ""


def test_a_log_that_ends_in_the_middle() -> None:
    t = tables(calls=[call(gemm().text)])
    cut = replace(t, sources=t.sources.assign(ended="in the middle of a line"))
    assert "log ends in the middle of a line" in find_remarks(cut)
    assert "ends" not in find_remarks(replace(t, sources=t.sources.assign(ended=None)))
    assert "ends inside a message" in find_remarks(
        tables(messages=[message("info", text="(the log ends inside this message)")])
    )


def test_a_rank_with_few_calls() -> None:
    g = gemm().text
    uneven = [work(g, 1000, pid=1), work(g, 990, pid=2), work(g, 1010, pid=3), work(g, 400, pid=4)]
    assert "1 of 4 processes logged less than half as many bench calls as the median of 995: 4 (400)" in find_remarks(
        tables(workload=uneven)
    )
    other = {"calls_from": "miopen_cmd", "pid": 9}
    assert "of 4" in find_remarks(tables(workload=[*uneven, work(g, 1) | other])), (
        "another log's counts are no rank of this one"
    )
    assert find_remarks(tables(workload=uneven[:3])) == ""
    assert find_remarks(tables(workload=[work(g, 1, pid=1)])) == ""


def test_bench_trace_and_api_lines_together_are_approximate() -> None:
    one = gemm().text
    lines = [call(one, count=10), call(one, count=9, category="trace")]
    api = tables(calls=lines[1:], messages=[message("api")])
    assert "threads lose" in find_remarks(replace(api, sources=api.sources.assign(reject_lines=1)))
    whole = tables(calls=lines)
    torn = replace(whole, sources=whole.sources.assign(reject_lines=2))
    assert "has rejected lines: if hipBLASLt logs bench, trace and api lines together, its threads" in find_remarks(
        torn
    )
    assert "threads lose" not in find_remarks(whole)
    assert "threads lose" not in find_remarks(replace(torn, calls=torn.calls[:1]))


def test_times_of_an_unknown_problem_are_remarked() -> None:
    assert ": 2 lines of MIOpen with a time or solver cannot be assigned" in find_remarks(
        tables(messages=[message("miopen_info", text=SHARED) | {"count": 2}])
    )


def test_a_file_of_nothing() -> None:
    units: dict[str, object] = dict.fromkeys(("call_lines", "message_lines", "measurement_lines", "fact_lines"), 0)
    t = tables(sources=[{"source_id": "x", "run": "r", "path": "empty.csv"} | units])
    assert find_remarks(t).startswith("no line could be read in 1 file: empty.csv. If one of them is a log")
    assert find_remarks(replace(t, sources=t.sources.assign(bytes=0))) == "1 empty file: empty.csv"
    assert find_remarks(replace(t, sources=t.sources.assign(fact_lines=3))) == ""
    assert find_remarks(replace(t, sources=t.sources.assign(path="capture_traces/trace_1_g1.json.gz"))) != "", (
        "a user's folder"
    )
    assert find_remarks(replace(t, sources=t.sources.assign(path="job/capture_traces/trace_1_g1.json.gz"))) == ""


def test_many_unknown_files_are_one_remark() -> None:
    units: dict[str, object] = dict.fromkeys(("call_lines", "message_lines", "measurement_lines", "fact_lines"), 0)
    rows = [units | {"source_id": f"{i}", "run": "r", "path": f"{i:03}.py", "bytes": 9} for i in range(120)]
    assert find_remarks(tables(sources=rows)).startswith(
        "no line could be read in 120 files: 000.py, 001.py, 002.py …. If"
    )
    empty = [row | {"bytes": 0} for row in rows[:2]]
    assert find_remarks(tables(sources=empty + rows[2:])).splitlines()[0] == "2 empty files: 000.py, 001.py"


def silent(*files: tuple[str, str, int]) -> Tables:
    """Return data of a run whose files gave nothing. Each file is given by path, format and size in bytes."""
    units: dict[str, object] = dict.fromkeys(("call_lines", "message_lines", "measurement_lines", "reject_lines"), 0)
    names = ("path", "format", "bytes")
    return tables(
        sources=[
            {"source_id": str(n), "run": "r", "fact_lines": int(x[1] == "facts")}
            | units
            | dict(zip(names, x, strict=True))
            for n, x in enumerate(files)
        ]
    )


def test_traces_without_kernels_say_what_the_job_lacked() -> None:
    """A trace without GPU kernels was read. So the remark is about the job, and asks for no other format."""
    one, two = ("a/trace_1_0.json.gz", "torch-profiler", 9), ("a/trace_1_1.json.gz", "torch-profiler", 9)
    said = find_remarks(silent(one, two))
    assert said.startswith(f"no GPU kernel in 2 traces: {one[0]}, {two[0]}. The job ran on a CPU, or")
    assert "`torch.cuda.is_available()`" in said
    assert "no line could be read" not in said
    steps = silent(one, two)
    steps = replace(steps, sources=steps.sources.assign(fact_lines=1))
    assert find_remarks(steps) == said, "marked steps are no GPU work"
    some = silent(one, two)
    some = replace(some, sources=some.sources.assign(measurement_lines=[0, 3]))
    assert find_remarks(some) == f"1 of 2 traces contain no GPU kernel: {one[0]}"
    damaged = silent(one)
    damaged = replace(damaged, sources=damaged.sources.assign(reject_lines=1))
    assert find_remarks(damaged).startswith(f"no line could be read in 1 file: {one[0]}")


def test_a_recognised_file_without_content_is_not_called_unreadable() -> None:
    assert find_remarks(silent(("kernels.csv", "rocprofv3", 9))) == (
        "no call, time or fact in 1 recognised file: kernels.csv"
    )


def test_a_captured_standard_error_is_no_fault() -> None:
    """``capture`` keeps the job's standard error. A user's own file of this name is no such copy."""
    facts = ("a/facts.json", "facts", 9)
    for name, size in (("a/stderr.log", 0), ("a/stderr.log", 9)):
        assert find_remarks(silent(facts, (name, "foreign", size))) == ""
    assert find_remarks(silent(facts, ("b/stderr.log", "foreign", 0))) == "1 empty file: b/stderr.log"
    assert find_remarks(silent(facts, ("a/mystderr.log", "foreign", 0))) == "1 empty file: a/mystderr.log"
    assert find_remarks(silent(("facts.json", "facts", 9), ("stderr.log", "foreign", 0))) == ""
