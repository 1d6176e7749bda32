"""rocprofv3's CSV."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logparse.formats.format import Head
from logparse.formats.traces import rocprof
from logparse.ingest import ingest
from logparse.ingest.input_file import InputFile
from logparse.model import Kernel, Message
from logparse.store import Store
from tests.conftest import SAMPLES
from tests.formats.reading import facts, outcomes, records, records_of, totals, units

FOLDER = SAMPLES / "traces"
GEMM = "Cijk_Ailk_Bljk_BBS_BH_MT256x256x64"
RELU = "void relu_kernel<float>(float*, float const*, int)"
TRACE = (FOLDER / "4242_kernel_trace.csv").read_bytes()


def test_kernel_trace() -> None:
    found = outcomes(rocprof.FORMAT, FOLDER / "4242_kernel_trace.csv")
    assert totals(found) == {("", GEMM): (2, 78.0), ("", RELU): (1, 4.0)}
    assert [(k.min_us, k.max_us, k.device) for k in records_of(found, Kernel)] == [(38.5, 39.5, 4), (4.0, 4.0, 4)]
    assert units(found) == {"foreign": 1, "measurement": 3, "reject": 1}
    (reject,) = [o for o in found if o.unit == "reject"]
    assert TRACE[reject.at :].startswith(b'"KERNEL_DISPATCH","Agent 4",1,1,4242,4')


def test_older_columns_and_plain_agents() -> None:
    text = (
        b'"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        b'"KERNEL_DISPATCH",4,1,2,"copy_kernel(float*, float const*)",1,1000000,1512480\n'
        b'"KERNEL_DISPATCH",4,1,2,"copy_kernel(float*, float const*)",1,1000000,999\n'
    )
    found = outcomes(rocprof.FORMAT, text)
    assert totals(found) == {("", "copy_kernel(float*, float const*)"): (1, 512.48)}
    assert units(found) == {"foreign": 1, "measurement": 1, "reject": 1}


def test_means_of_several_runs_have_fractions() -> None:
    """``pmc_perf.csv`` of rocprof-compute."""
    text = (
        b"Dispatch_ID,GPU_ID,Grid_Size,Kernel_Name,SQ_WAVES,Start_Timestamp,End_Timestamp\n"
        b"0,2,65536,copy_kernel,1024,564450429888574.75,564450429895035.75\n"
        b"1,2,65536,copy_kernel,1024,1732525200000000001,1732525200000001001\n"
        b"2,2,65536,copy_kernel,1024,1.5,nan\n"
    )
    found = outcomes(rocprof.FORMAT, text)
    assert totals(found) == {("", "copy_kernel"): (2, 7.461)}
    assert [kernel.device for kernel in records_of(found, Kernel)] == [2]
    assert units(found) == {"foreign": 1, "measurement": 2, "reject": 1}


def test_results_of_the_first_rocprof() -> None:
    """Under ``--stats`` its rows have times; names bear the suffix of the code object."""
    head = '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",'
    head += '"accum_vgpr","sgpr","wave_size","sig","obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"'
    row = '{},"{}",2,0,{},4242,4243,65536,256,0,0,20,4,16,64,"0x0","0x7f7b27c04500",1000,{},{},9900,{}'
    rows = [
        row.format(0, f"{GEMM}.kd", 0, 2000, 40000, 38000),
        row.format(1, f"{RELU} [clone .kd]", 2, 50000, 54000, 4000),
        row.format(2, f"{GEMM}.kd", 4, 60000, 100000, 40000),
        row.format(3, "copy.kd", 6, 100, 99, -1),
    ]
    found = outcomes(rocprof.FORMAT, "\n".join([head, *rows, ""]).encode())
    assert totals(found) == {("", GEMM): (2, 78.0), ("", RELU): (1, 4.0)}
    assert {kernel.device for kernel in records_of(found, Kernel)} == {2}
    assert units(found) == {"foreign": 1, "measurement": 3, "reject": 1}
    assert not rocprof.recognise(Head("results.csv", b"Index,KernelName,gpu-id,queue-id,TCC_HIT_sum\n"))


def test_statistics_of_the_first_rocprof_have_no_extremes(store: Store, tmp_path: Path) -> None:
    """``results.stats.csv`` holds what ``results.csv`` does, and is often all that was kept."""
    stats = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n'
    stats += f'"{GEMM}.kd",2,78000,39000,95.12\n"{RELU} [clone .kd]",1,4000,4000,4.88\n'
    head = "Index,KernelName,gpu-id,BeginNs,EndNs\n"
    trace = f'{head}0,"{GEMM}.kd",2,2000,40000\n1,"{RELU} [clone .kd]",2,50000,54000\n2,"{GEMM}.kd",2,60000,100000\n'
    found = outcomes(rocprof.FORMAT, stats.encode())
    assert (
        totals(found)
        == totals(outcomes(rocprof.FORMAT, trace.encode()))
        == {("", GEMM): (2, 78.0), ("", RELU): (1, 4.0)}
    )
    assert {(kernel.min_us, kernel.max_us) for kernel in records_of(found, Kernel)} == {(None, None)}
    (tmp_path / "results.stats.csv").write_text(stats)
    (tmp_path / "results.hip_stats.csv").write_text(stats.splitlines()[0] + '\n"hipMemcpy",3,9000,3000,100.0\n')
    ingest([str(tmp_path / "results.stats.csv"), str(tmp_path / "results.hip_stats.csv")], store, run="r")
    assert float(store.query("select sum(total_us) as us from kernels")["us"].iloc[0]) == 82.0
    (tmp_path / "results.csv").write_text(trace)
    ingest([str(tmp_path / "results.csv")], store, run="r")
    rows = store.query("select sum(total_us) as us, min(min_us) as least from kernels")
    assert (float(rows["us"].iloc[0]), float(rows["least"].iloc[0])) == (82.0, 4.0)
    assert list(store.messages()["text"]) == ["hipMemcpy"]


def test_statistics_are_the_same_totals() -> None:
    stats = outcomes(rocprof.FORMAT, FOLDER / "4242_kernel_stats.csv")
    assert totals(stats) == totals(outcomes(rocprof.FORMAT, FOLDER / "4242_kernel_trace.csv"))
    assert units(stats) == {"foreign": 1, "measurement": 2}


def test_a_dispatch_with_several_counters_counts_once() -> None:
    found = outcomes(rocprof.FORMAT, FOLDER / "rocpd_counter_collection.csv")
    assert totals(found) == {("", GEMM): (2, 80.0)}
    assert [kernel.device for kernel in records_of(found, Kernel)] == [3]  # "GPU 3"
    assert units(found) == {"foreign": 3, "measurement": 2}


def test_agents_are_facts() -> None:
    found = outcomes(rocprof.FORMAT, FOLDER / "rocpd_agent_info.csv")
    assert facts(found) == {"arch": "gfx942", "device": "AMD Instinct MI300X", "cu_count": "304", "backend": "HIP"}
    assert units(found) == {"foreign": 2, "fact": 2}
    assert len(records(found)) == 4


def test_calls_are_messages_and_their_statistics_no_kernels() -> None:
    found = outcomes(rocprof.FORMAT, FOLDER / "rocpd_hip_api_trace.csv")
    assert [(m.category, m.text, m.count) for m in records_of(found, Message)] == [
        ("hip-api", "hipExtModuleLaunchKernel", 2),
        ("marker", "step", 1),
    ]
    head = b'"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
    rows = b'"hipMalloc",3,9000,3000,50,1,2,3\n"MEMORY_COPY_HOST_TO_DEVICE",2,10,5,1,1,9,1\n'
    rows += b'"KERNEL_DISPATCH",2,10,5,1,1,9,1\n'
    rows += b'"Cijk_Ailk",2,8000,4000,50,3000,5000,1\n"relu",inf,8000,4000,50,3000,5000,1\n'
    found = outcomes(rocprof.FORMAT, head + rows)
    assert totals(found) == {("", "Cijk_Ailk"): (2, 8.0)}
    assert units(found) == {"foreign": 1, "message": 3, "measurement": 1, "reject": 1}
    found = outcomes(rocprof.FORMAT, FOLDER / "rocpd_hip_api_stats.csv")
    assert [(m.text, m.count) for m in records_of(found, Message)] == [("hipExtModuleLaunchKernel", 2)]


def test_markers() -> None:
    found = outcomes(rocprof.FORMAT, FOLDER / "4242_marker_api_trace.csv")
    assert [(m.text, m.count) for m in records_of(found, Message)] == [("hipblasLtMatmul", 2)]
    assert units(found) == {"foreign": 1, "message": 2}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("4242_*")), ids=lambda p: p.name)
def test_recognise(path: object) -> None:
    head = InputFile(str(path)).head()
    assert rocprof.FORMAT.recognise(head)
    assert not rocprof.FORMAT.recognise(Head("x.csv", b"a,b\r,c\n"))


def test_files_of_one_process_count_their_kernels_once(store: Store, tmp_path: Path) -> None:
    """rocprofv3 writes statistics beside the trace, and each holds all kernels."""
    names = ("4242_kernel_stats.csv", "4242_kernel_trace.csv")

    def us() -> float:
        return float(store.query("select sum(total_us) as us from kernels")["us"].iloc[0])

    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        for name in names:
            shutil.copy(SAMPLES / "traces" / name, tmp_path / folder)
    ingest([str(tmp_path / "one" / names[0])], store, run="r")
    alone = us()
    ingest([str(tmp_path / "one" / names[1])], store, run="r")
    assert us() == pytest.approx(alone)
    assert store.query("select distinct source_id from kernels").shape[0] == 1
    ingest([str(tmp_path / "other")], store, run="r")
    assert us() == pytest.approx(2 * alone), "the same names in another folder are of another job"
