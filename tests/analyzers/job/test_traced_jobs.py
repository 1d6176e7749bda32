"""Tests with small made-up traces of jobs: how long is a step, and which of several traces represents the job?"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import host_bound
from analyzers.job.gpu_time import GpuTime, gpu_time, traced_calls
from analyzers.job.searches import searches
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.screen import Written, screen
from analyzers.recommend.verb import advise
from logparse.ingest import ingest
from logparse.store import Store, open_store
from tests.conftest import SAMPLES
from tests.libraries.torch_profiler.made import H200, MI300X, MadeTrace

GEMM = "Cijk_Alik_Bljk_BBS"


def tables(store: Store, *paths: str) -> Tables:
    ingest([*paths], store, run="run")
    return tables_to_analyse(store, "run")


def store_beside(store: Store) -> Store:
    """Return an empty store (Parquet folder), in a new folder inside the given store's folder."""
    return open_store(tempfile.mkdtemp(dir=store.folder), create=True)


def time_of(store: Store, *paths: str) -> GpuTime:
    found = gpu_time(tables(store, *paths))
    assert found is not None
    return found


def advice(store: Store, *paths: str) -> tuple[Recommendation, str]:
    """Read these files as one run. Returns what ``recommend`` finds, and its printed text as one line."""
    ingest([*paths], store, run="run")
    found = advise(store, Settings(), "run")
    return found, " ".join(" ".join(screen(found, Written(Path("out")))).split())


# --------------------------------------------------------------------------------------------------- steps of two kinds


def mixed(kinds: tuple[str, ...], served: bool = False) -> MadeTrace:
    """Make a trace with one step of each name in ``kinds``: steps named ``train`` take 10 ms, and others 2 ms."""
    trace, at = MadeTrace(), 0.0
    for i, kind in enumerate(kinds):
        lasts = 10_000 if kind == "train" else 2_000
        trace.step(at, at + lasts, kind if served else f"ProfilerStep#{i}")
        if not served:
            trace.add("user_annotation", kind, at + 10, 0.8 * lasts)
            trace.add("user_annotation", "copy", at + 0.85 * lasts, 0.1 * lasts)
        trace.operator("aten::mm", at + 20, [(GEMM, 0.7 * lasts)])
        at += lasts
    return trace


@pytest.mark.parametrize(
    ("kinds", "served", "said"),
    [
        (("train", "train", "eval"), False, "eval: 1 step of 2 ms, train: 2 steps of 10 ms"),
        (("train", "train", "train"), False, ""),
        (("train 1", "train 2"), False, ""),
        (("copy", "train"), False, ""),
        (("step[DECODE bs=4]", "step[EXTEND bs=1]", "step[DECODE bs=3]"), True, "step[DECODE bs=#]: 2 steps of 2 ms"),
        (("step[DECODE bs=4]", "step[DECODE bs=3]"), True, ""),
    ],
)
def test_steps_of_two_kinds_are_named(
    tmp_path: Path, store: Store, kinds: tuple[str, ...], served: bool, said: str
) -> None:
    """If training and evaluation steps are marked alike, a remark says that a step's time is their mean."""
    found, _ = advice(store, mixed(kinds, served).write(tmp_path / "job.json"))
    remarks = [x.message for x in found.remarks if "of several kinds" in x.message]
    assert len(remarks) == bool(said)
    assert said in "".join(remarks)


def unmarked(steps: tuple[tuple[int, float], ...], overlap: float = 0.0) -> MadeTrace:
    """Make a trace with one step of each number of operators and wall time (ms), without any annotation."""
    trace, at = MadeTrace(), 0.0
    for i, (operators, ms) in enumerate(steps):
        trace.step(at - overlap * bool(i), at + 1000 * ms, f"ProfilerStep#{i + 3}")
        for number in range(operators):
            trace.operator("aten::mm", at + 20 + number * 900 * ms / operators, [(GEMM, 5.0)])
        at += 1000 * ms
    return trace


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (((90, 10.0), (90, 10.2), (30, 2.0), (90, 9.9), (31, 2.1)), "≈ 30 operators: 2 steps of 2.05 ms"),
        (((90, 10.0), (90, 10.0), (30, 2.0), (90, 10.0)), "≈ 90 operators: 3 steps of 10 ms"),
        (((40, 10.0), (40, 10.4), (40, 3.0), (40, 3.1), (40, 9.8)), "long: 3 steps of 10.1 ms, short: 2 steps of 3.05"),
        (((90, 40.0), (30, 2.0), (30, 2.1), (31, 2.0)), ""),
        (((40, 10.0), (40, 10.1), (40, 25.0), (40, 9.9)), ""),
        (((40, 2.0), (44, 2.6), (40, 3.4), (42, 4.4), (40, 5.7), (40, 7.4)), ""),
        (((10, 2.0), (4, 1.9), (10, 2.0), (4, 2.0)), ""),
        (((90, 10.0), (30, 2.0)), ""),
    ],
    ids=["two", "one evaluation", "by time", "warm-up", "one slow step", "many lengths", "few operators", "too few"],
)
def test_groups_of_steps_without_an_annotation(
    tmp_path: Path, store: Store, steps: tuple[tuple[int, float], ...], said: str
) -> None:
    """Steps that no annotation names are in groups only if their operators or times are clearly apart."""
    found, _ = advice(store, unmarked(steps).write(tmp_path / "job.json"))
    remarks = [x.message for x in found.remarks if "of several kinds" in x.message]
    assert len(remarks) == bool(said)
    assert said in "".join(remarks)


def test_steps_that_overlap_are_in_no_groups(tmp_path: Path, store: Store) -> None:
    """Operators of steps that overlap, as those of two merged processes do, cannot be counted by step."""
    steps = ((90, 10.0), (90, 10.0), (30, 2.0), (30, 2.0))
    for overlap, groups in ((500.0, False), (0.5, True)):
        path = unmarked(steps, overlap).write(tmp_path / f"{groups}.json")
        found, _ = advice(store_beside(store), path)
        assert any("of several kinds" in x.message for x in found.remarks) is groups


# ------------------------------------------------------------------------------------- a step begins where it is marked


def late_kernels(first: float, name: str = "ProfilerStep#6") -> MadeTrace:
    """Make a trace of one step of 390 ms, which launches its first kernel after ``first`` µs."""
    trace = MadeTrace()
    trace.step(0, 390_000, name)
    for i in range(12):
        trace.operator("aten::mm", first + i * 10_000, [(GEMM, 9_900)])
    return trace


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (0.0, "ProfilerStep#6"),
        (100_000.0, "ProfilerStep#6"),
        (270_000.0, "ProfilerStep#6"),
        (270_000.0, "step[DECODE bs=32]"),
        (270_000.0, "execute_context_0(0)_generation_32(32)"),
    ],
)
def test_a_step_whose_first_kernel_is_late(tmp_path: Path, store: Store, first: float, name: str) -> None:
    found = time_of(store, late_kernels(first, name).write(tmp_path / "late.json"))
    assert (found.steps, found.window_us, found.busy_us) == (1, 390_000, 118_800)


def test_a_late_first_kernel_is_the_hosts(tmp_path: Path, store: Store) -> None:
    found, text = advice(store, late_kernels(270_000).write(tmp_path / "late.json"))
    assert "host-bound" in {x.analyzer for x in found.remarks}
    assert "a step, with the profiler (probably ≈ 254 ms without it), 390 ms: GEMM 119 ms · idle 271 ms" in text


def test_a_step_of_a_late_gpu_lasts_from_first_to_last_kernel(tmp_path: Path, store: Store) -> None:
    """If the GPU is still busy with earlier work, a step is timed from its first to its last kernel on the GPU."""
    # This is 10 ms here. The host took only 2.4 ms to launch these kernels. The trace does not show the earlier work.
    trace = MadeTrace()
    trace.step(0, 2_400, "execute_context_0(0)_generation_32(32)")
    trace.operator("aten::mm", 500, [(GEMM, 5_000), (GEMM, 5_000)], at=8_400)
    found = time_of(store, trace.write(tmp_path / "lagging.json"))
    assert (found.window_us, found.busy_us) == (10_000, 10_000)


# ------------------------------------------------------------------------------------------------------ what is the job


def decoding(pid: int = 7, **header: object) -> MadeTrace:
    """Make a trace in which a CUDA graph of 10 ms is launched once. The trace has no marked steps."""
    trace = MadeTrace(pid, **header)
    trace.operator("aten::mm", 0, [(GEMM, 100.0)])
    trace.graph(100, [("paged_attention", 4_900.0), (GEMM, 5_000.0)], at=110)
    return trace


def capturing(annotation: str = "", ran: int = 2, step: bool = False) -> MadeTrace:
    """Make a trace in which the program captures a CUDA graph, which takes 48 ms of host time.

    The trace of ``decoding`` launches the same graph. ``ran`` is the number of kernels that run outside the capture.
    """
    trace = MadeTrace()
    for i in range(ran):
        trace.operator("aten::mm", 50_000.0 + 1000 * i if i else 0.0, [(GEMM, 9.0)])
    trace.capture(1_000, 49_000, ["paged_attention", GEMM, GEMM])
    if annotation:
        trace.step(-1, 60_000, annotation)
    if step:
        trace.step(-2, 60_001)
    return trace


PLACES = ("capture_traces/graph_capture_rank_0.json.gz", "capture.json", "elsewhere/b.json")


@pytest.mark.parametrize(
    ("place", "made"),
    [
        *((place, ("", 2, False)) for place in PLACES),
        ("elsewhere/b.json", ("capture_32_FULL", 4, False)),
        ("elsewhere/b.json", ("capture_32_DECODE", 2, True)),
    ],
)
def test_the_capture_of_a_graph_is_no_time_of_the_job(
    tmp_path: Path, store: Store, place: str, made: tuple[str, int, bool]
) -> None:
    capture = capturing(*made).write(tmp_path / place)
    found, text = advice(store, decoding().write(tmp_path / "execution.json"), capture)
    assert found.gpu_time is not None
    assert (found.gpu_time.window_us, found.gpu_time.busy_us, found.gpu_time.steps) == (10_000, 10_000, None)
    assert not [x for x in found.remarks if x.analyzer == "host-bound"]
    [left_out] = found.gpu_time.left_out
    kernels = f"({made[1]} kernels, {9 * made[1]} µs)"
    why = "kernels that ran while a CUDA or HIP graph was captured, which is not part of the job's time"
    assert left_out == f"{Path(place).name} {kernels}: {why}"
    assert "idle" not in text


def warming_up(runs: int, before: float = 0, step: bool = False) -> MadeTrace:
    """Return a trace of ``runs`` warm-ups of two kernels and then a capture of them, ``before`` µs after the start.

    The trace of ``decoding`` launches the same graph.
    """
    trace = MadeTrace()
    for run, kernel in product(range(runs), range(2)):
        trace.operator("aten::mm", before + 20_000 * run + 1_000 * kernel, [(GEMM, 9.0)])
    trace.capture(before + 100_000, before + 148_000, ["paged_attention", GEMM], "aten::mm")
    if step:
        trace.step(0, 150_000)
    return trace


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_warm_ups_before_a_capture_are_no_time_of_the_job(tmp_path: Path, store: Store, runs: int) -> None:
    """An engine runs the model once or twice before it captures its graph. SGLang's traces of captures show this."""
    capture = warming_up(runs).write(tmp_path / "warm.json")
    found = time_of(store, decoding().write(tmp_path / "execution.json"), capture)
    assert (found.window_us, found.busy_us) == (10_000, 10_000)
    assert "graph was captured" in "".join(found.left_out)


def test_a_job_that_captures_a_graph_at_its_end_keeps_its_time(tmp_path: Path, store: Store) -> None:
    """If steps are marked, or if most kernels compute something that is not captured, the trace is of the job."""
    marked = warming_up(5, step=True).write(tmp_path / "marked.json")
    assert time_of(store, marked).busy_us == 90
    other = warming_up(2, 50_000)
    for i in range(5):
        other.operator("aten::addmm", 1_000 * i, [(GEMM, 100.0)], dims=((512,), (64, 512), (512, 512)))
    assert time_of(store_beside(store), other.write(tmp_path / "other.json")).busy_us == 536


def test_a_capture_without_kernels_is_not_worth_a_word(tmp_path: Path, store: Store) -> None:
    capture = capturing("capture_32_FULL", ran=0).write(tmp_path / "capture.json")
    found = time_of(store, decoding().write(tmp_path / "execution.json"), capture)
    assert (found.window_us, found.left_out) == (10_000, ())


def test_graph_captures_are_not_part_of_the_reported_time(tmp_path: Path, store: Store) -> None:
    """If a job captures a CUDA graph while it is traced, the reported time of the job excludes the capture."""
    trace = MadeTrace()
    trace.operator("aten::mm", 0, [(GEMM, 1_000)])
    trace.capture(2_000, 62_000, [GEMM, GEMM])
    trace.graph(63_000, [(GEMM, 5_000.0), (GEMM, 4_990.0)], at=63_010)
    found = time_of(store, trace.write(tmp_path / "job.json"))
    assert (found.window_us, found.busy_us) == (72_990 - 59_999, 10_990)


# --------------------------------------------------------------------------------------- a search is no time of a call

NAIVE, WINOGRAD = "naive_conv_ab_nonpacked_fwd_nchw_half_double_half", "miopenSp3AsmConv_v30_3_1_gfx9_fp16"
FIND = [(NAIVE, 250_000.0), ("igemm_fwd_gtcx3_nhwc_fp16", 400.0), (WINOGRAD, 300.0)]


def convolutions(search: bool, steps: bool, calls: int = 4) -> MadeTrace:
    """Return a trace of steps of 500 µs with a convolution of 300 µs in each.

    If ``search`` is true, the first call also searches for the fastest solver, which takes 251 ms.
    """
    trace = MadeTrace(hip_runtime_version=70253211)
    begin = 0.0
    for i in range(calls):
        first = search and i == 0
        ended = trace.convolution(begin + 100, [*(FIND if first else []), (WINOGRAD, 300.0)], at=begin + 110)
        end = ended + 90
        if steps:
            trace.step(begin, end, f"ProfilerStep#{i}")
        begin = end
    return trace


@pytest.mark.parametrize("steps", [True, False])
def test_a_search_is_no_time_of_a_call_nor_of_a_step(tmp_path: Path, store: Store, steps: bool) -> None:
    without = time_of(store, convolutions(False, steps).write(tmp_path / "plain.json"))
    found = tables(store_beside(store), convolutions(True, steps).write(tmp_path / "searching.json"))
    time = gpu_time(found)
    assert time is not None
    assert (time.kernels_us, time.busy_us, time.steps) == (without.kernels_us, without.busy_us, without.steps)
    assert time.window_us == pytest.approx(without.window_us, abs=11), "all but the launch of the search"
    [row] = traced_calls(found.kernels, found.calls).to_dict("records")
    assert (row["calls"], row["now_us"]) == (4, 300.0)
    assert time.left_out[0].startswith(
        "1 first call searched for a solver, with 3 kernels that took 251 ms, mostly for F "
    )
    assert [x.us for x in searches(found)] == [250_700.0]
    assert searches(found)[0].naive_us == 250_000


def test_a_tuned_product(tmp_path: Path, store: Store) -> None:
    trace = MadeTrace()
    trace.operator("aten::mm", 0, [("Cijk_A", 900.0), ("Cijk_B", 800.0), ("Cijk_C", 700.0), ("Cijk_B", 100.0)])
    trace.operator("aten::mm", 3_000, [("Cijk_B", 100.0)])
    found = time_of(store, trace.write(tmp_path / "tuned.json"))
    assert found.kernels_us == 200
    assert "TN" in found.left_out[0] or "NN" in found.left_out[0]


def test_the_remedy_of_a_search_is_told(tmp_path: Path, store: Store) -> None:
    found, text = advice(store, convolutions(True, True).write(tmp_path / "searching.json"))
    [remark] = [x for x in found.remarks if x.analyzer == "solver-search"]
    assert "MIOPEN_USER_DB_PATH" in remark.advice
    assert "left out: 1 first call searched for a solver, with 3 kernels that took 251 ms" in text


# ------------------------------------------------------------------------------------- graphs that the profiler dropped


def replays(kept: int, of: int) -> MadeTrace:
    """Make a trace in which a CUDA graph of 900 µs is launched ``of`` times, once per ms.

    Only the first ``kept`` launches have their kernels in the trace.
    """
    trace = MadeTrace()
    trace.step(0, of * 1_000)
    trace.operator("aten::mm", 0, [(GEMM, 50)])
    for i in range(of):
        trace.graph(1_000 * i + 60, [(GEMM, 450), ("paged_attention", 450)] if i < kept else [], at=1_000 * i + 70)
    return trace


@pytest.mark.parametrize(("kept", "of"), [(1, 26), (0, 3), (25, 26)])
def test_graphs_without_kernels_make_idle_unknown(tmp_path: Path, store: Store, kept: int, of: int) -> None:
    found, text = advice(store, replays(kept, of).write(tmp_path / "replays.json"))
    assert found.gpu_time is not None
    assert (found.gpu_time.idle_us, found.gpu_time.window_us) == (None, of * 1_000)
    assert not [x for x in found.remarks if x.analyzer == "host-bound"]
    assert "· idle" not in text
    lost = f"the GPU's idle time is unknown, because {of - kept} of {of} graph launches have no kernel in the traces"
    assert lost in text


@pytest.mark.parametrize(("kept", "of"), [(26, 26), (99, 100)])
def test_idle_time_is_known_if_few_graph_launches_lack_kernels(
    tmp_path: Path, store: Store, kept: int, of: int
) -> None:
    """If one of a hundred launches of a CUDA graph has no kernels in the trace, the GPU's idle time is still computed.

    The reason may just be that the last launch was still running when the profiler stopped.
    """
    found = time_of(store, replays(kept, of).write(tmp_path / "replays.json"))
    assert found.unknown_idle == ""
    assert found.idle_us == of * 1_000 - kept * 900 - 50


# ----------------------------------------------------------------------------------------------- why the GPU was idle


def decode(gaps: int, us: float = 400_000.0) -> MadeTrace:
    """Make a trace of four steps, each with kernels of 10 ms.

    In each of the first ``gaps`` steps, the GPU also waits in a copy for ``us`` µs.
    """
    trace = MadeTrace()
    begin = 0.0
    for i in range(4):
        wait = us if i < gaps else 0.0
        end = begin + 10_020 + wait
        trace.step(begin, end, "step[DECODE bs=32]")
        trace.operator("aten::mm", begin, [(GEMM, 5_000)], at=begin + 10)
        if wait:
            trace.add("cpu_op", "aten::copy_", begin + 20, wait + 4_990)
            trace.call("hipMemcpyWithStream", begin + 30, wait + 4_975)
        trace.operator("aten::mm", begin + 5_010 + wait, [(GEMM, 5_000)], at=begin + 5_020 + wait)
        begin = end
    return trace


def test_one_gap_is_no_ceiling(tmp_path: Path, store: Store) -> None:
    found, text = advice(store, decode(1).write(tmp_path / "decode.json"))
    [remark] = [x for x in found.remarks if x.analyzer == "host-bound"]
    assert "the longest gap is 400 ms under aten::copy_ (hipMemcpyWithStream) in step[DECODE bs=32]" in remark.message
    assert "No other gap is similar" in remark.message
    assert remark.advice == host_bound.WAIT
    assert "worth unknown, because the GPU was idle in one long gap, which may not happen again" in text
    assert "aten::copy_" in text


def test_the_advice_is_about_the_idle_time_that_can_be_saved(tmp_path: Path, store: Store) -> None:
    """A single gap of 400 ms is not counted. So the advice is about the other gaps, which have another reason."""
    trace = MadeTrace()
    trace.step(0, 500_000, "step[EXTEND bs=4]")
    for i in range(10):
        trace.operator("aten::mm", 5_000 * i, [(GEMM, 2_500)], at=5_000 * i + 10)
    trace.add("cuda_runtime", "hipModuleLoadData", 48_000, 400_000, correlation=4_242)
    for i in range(10):
        trace.operator("aten::mm", 450_000 + 5_000 * i, [(GEMM, 2_500)], at=450_010 + 5_000 * i)
    found, text = advice(store, trace.write(tmp_path / "decode.json"))
    [remark] = [x for x in found.remarks if x.analyzer == "host-bound"]
    assert "402 ms while code of kernels was loaded or compiled" in remark.message
    assert "the longest gap is 402 ms under hipModuleLoadData" in remark.message
    assert remark.advice == host_bound.PYTHON
    assert "saves up to 47.5 of ≈ " in text


def test_gaps_in_every_step_are_a_ceiling(tmp_path: Path, store: Store) -> None:
    found, text = advice(store, decode(4).write(tmp_path / "decode.json"))
    assert "relieve the host (CPU): saves probably ≤ 197 of ≈ 205 ms a step (96%), or ≤ 400 of 410 ms (98%) if" in text
    assert "≤ 400 of 410 ms if it did not slow the host" in text
    assert found.gpu_time is not None
    assert found.gpu_time.gaps is not None
    assert found.gpu_time.gaps.single is None
    assert found.gpu_time.gaps.us["synchronisation"] == pytest.approx(1_600_040, abs=50)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ([("cpu_op", "aten::add", 1_100, 800)], "launching"),
        ([("cuda_runtime", "hipDeviceSynchronize", 900, 300)], "synchronisation"),
        ([("cpu_op", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1_050, 900)], "data loading"),
        ([("cuda_runtime", "hipModuleLoadData", 1_050, 900)], "loading code"),
        ([("cpu_op", "aten::mm", 1_010, 970), ("cuda_driver", "cuModuleLoadData", 1_050, 900)], "loading code"),
        ([("user_annotation", "async_compile.wait (dynamo_timed)", 1_050, 900)], "loading code"),
        ([], "nothing"),
        ([("cpu_op", "aten::add", 1_900, 50)], "nothing"),
    ],
)
def test_the_class_of_a_gap(tmp_path: Path, store: Store, host: list[tuple[str, str, float, float]], why: str) -> None:
    trace = MadeTrace()
    trace.operator("aten::mm", 0, [(GEMM, 990)])
    for cat, name, ts, dur in host:
        trace.add(cat, name, ts, dur, correlation=4_242)
    trace.operator("aten::mm", 1_990, [(GEMM, 1_000)])
    found = time_of(store, trace.write(tmp_path / "trace.json"))
    assert found.gaps is not None
    assert found.gaps.us == {why: 1_000}


def test_work_that_was_launched_before_the_gap(tmp_path: Path, store: Store) -> None:
    trace = MadeTrace()
    trace.operator("aten::mm", 0, [(GEMM, 990)])
    trace.operator("aten::mm", 100, [(GEMM, 1_000)], at=2_000)
    found = time_of(store, trace.write(tmp_path / "trace.json"))
    assert found.gaps is not None
    assert found.gaps.us == {"queued": 1_000}


# --------------------------------------------------------------------------------------- files of other kinds, and laws


def job(
    pid: int = 7, m: int = 4096, device: dict[str, object] | None = None, begin: float = 0.0, **header: object
) -> MadeTrace:
    """Return a trace with two steps of 1 ms."""
    trace = MadeTrace(pid, device, **header)
    for i in range(2):
        at = begin + 1_000 * i
        trace.step(at, at + 1_000, f"ProfilerStep#{i}")
        trace.operator("aten::mm", at, [(GEMM, 700 + i)], dims=((m, m), (m, m)))
    return trace


def per_step(found: GpuTime) -> dict[str, float]:
    parts = {x.name: x.us / (found.steps or 1) for x in found.parts}
    return parts | {"window": (found.window_us or 0) / (found.steps or 1), "busy": found.busy_share or 0}


RANK = {"distributedInfo": {"rank": 1, "world_size": 2}}


@cache
def alone(made: Callable[..., MadeTrace]) -> dict[str, float]:
    """Return the GPU times of a job per step from one of its traces, without any other file."""
    with tempfile.TemporaryDirectory() as folder:
        first = made(distributedInfo={"rank": 0, "world_size": 2}).write(Path(folder) / "job.json")
        return per_step(time_of(open_store(Path(folder) / "store", create=True), first))


@pytest.mark.parametrize(
    ("made", "other"),
    [
        *product((job, decoding), ("capture", "rank", "packed", "packed elsewhere", "laid out anew")),
        *product((job,), ("rocprof", "log", "facts")),
    ],
)
def test_a_file_of_another_kind_changes_no_sum_of_the_job(
    tmp_path: Path, store: Store, made: Callable[..., MadeTrace], other: str
) -> None:
    trace = made(distributedInfo={"rank": 0, "world_size": 2})
    trace.write(tmp_path / "a" / "job.json")
    beside = tmp_path / "a" / "other.json"
    if other == "capture":
        capturing("capture_32_FULL").write(beside)
    elif other == "rank":
        made(8, **RANK).write(beside)
    elif other in ("packed", "packed elsewhere"):
        trace.write(tmp_path / "a" / ("job.json.gz" if other == "packed" else "below/other.json.gz"))
    elif other == "laid out anew":
        beside.write_text(json.dumps({**trace.header, "traceEvents": trace.events[::-1]}, indent=1))
    elif other == "rocprof":
        shutil.copy(SAMPLES / "traces" / "4242_kernel_stats.csv", beside.with_suffix(".csv"))
    elif other == "log":
        beside.with_suffix(".log").write_text("hello\n")
    else:
        shutil.copy(SAMPLES / "capture" / "facts.json", beside)
    found = tables(store, str(tmp_path / "a"))
    assert found.unlike == ""
    time = gpu_time(found)
    assert time is not None
    assert per_step(time) == pytest.approx(alone(made))
    if other not in ("log", "facts", "rank", "packed"):
        assert len(time.left_out) == 1, "what is left out is counted"


@pytest.mark.parametrize(
    ("others", "what"),
    [
        ([job(8, device=H200, begin=7)], "2 devices (AMD Instinct MI300X: a.json; NVIDIA H200: b0.json)"),
        (
            [job(8, device={**MI300X, "numSms": 38}, begin=7)],
            "2 devices (AMD Instinct MI300X with 304 CUs: a.json; AMD Instinct MI300X with 38 CUs: b0.json)",
        ),
        ([job(8, m=512, begin=7)], "2 programs (program 1: a.json; program 2: b0.json)"),
        ([job(8, begin=5), job(9, m=512, begin=7)], "2 programs (program 1: a.json, b0.json; program 2: b1.json)"),
    ],
)
def test_unlike_traces_are_not_added(tmp_path: Path, store: Store, others: list[MadeTrace], what: str) -> None:
    paths = [job().write(tmp_path / "a.json")]
    paths += [x.write(tmp_path / f"b{i}.json") for i, x in enumerate(others)]
    found, text = advice(store, *paths)
    assert found.gpu_time is None
    assert f"no verdict: the run's traces are from {what}, whose times cannot be added" in text
    assert "logparse ingest FILE --run NAME" in text
    assert not found.findings


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("AMD Instinct MI300X OAM", True),
        ("MI300X", True),
        ("AMD Instinct MI325X", False),
        ("AMD Instinct MI300A", False),
    ],
)
def test_two_names_of_one_device_are_one_device(tmp_path: Path, store: Store, name: str, same: bool) -> None:
    one, other = ({"rank": rank, "world_size": 2} for rank in (0, 1))
    paths = [
        job(distributedInfo=one).write(tmp_path / "a.json"),
        job(8, device={**MI300X, "name": name}, distributedInfo=other).write(tmp_path / "b.json"),
    ]
    assert (tables(store, *paths).unlike == "") == same


def test_two_starts_of_a_program_are_one_job(tmp_path: Path, store: Store) -> None:
    found = time_of(store, job().write(tmp_path / "a.json"), job(8, begin=7).write(tmp_path / "b.json"))
    assert (found.steps, found.traces, found.left_out) == (4, 2, ())


def test_a_trace_without_marks_beside_marked_ones(tmp_path: Path, store: Store) -> None:
    other = MadeTrace()
    other.operator("aten::mm", 5_000, [(GEMM, 300.0)])
    found = time_of(store, job().write(tmp_path / "a.json"), other.write(tmp_path / "b.json"))
    assert (found.steps, found.kernels_us) == (2, 1_401)
    assert found.left_out == (
        "b.json (1 kernel, 300 µs): a trace without marked steps; traces with marked steps are used instead",
    )
