"""Tests of reading the CSV files that AMD's profiler rocprofv3 writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.ingest.input_file import InputFile
from logparse.libraries.kinds.format import Head
from logparse.libraries.rocprof import rocprof
from logparse.model import Fact, Kernel, Message
from logparse.store import Store
from tests.conftest import SAMPLES
from tests.libraries.reading import outcomes, records_of, totals, units

FOLDER = SAMPLES / "traces"


def test_older_columns_and_plain_agents() -> None:
    text = (
        b'"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        b'"KERNEL_DISPATCH",4,1,2,"copy_kernel(float*, float const*)",1,1000000,1512480\n'
        b'"KERNEL_DISPATCH",4,1,2,"copy_kernel(float*, float const*)",1,1000000,999\n'
    )
    found = outcomes(rocprof.FORMAT, text)
    assert totals(found) == {("", "copy_kernel(float*, float const*)"): (1, 512.48)}
    assert units(found) == {"foreign": 1, "measurement": 1, "reject": 1}


def test_times_may_have_fractions_of_a_nanosecond() -> None:
    """Time stamps with fractions of a nanosecond are read without an error.

    rocprof-compute writes them in ``pmc_perf.csv``, because they are means of several runs.
    """
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


def test_statistics_are_the_same_totals() -> None:
    stats = outcomes(rocprof.FORMAT, FOLDER / "4242_kernel_stats.csv")
    assert totals(stats) == totals(outcomes(rocprof.FORMAT, FOLDER / "4242_kernel_trace.csv"))
    assert units(stats) == {"foreign": 1, "measurement": 2}


def test_summaries_give_the_same_sums_as_traces(store: Store, tmp_path: Path) -> None:
    """A summary from ``rocpd summary --format csv`` gives the same total times as the trace that it was made from."""
    # The summary may also be divided by rank. If the summary and the trace of one process are in a folder, each kernel
    # is counted once.
    old = '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"'
    new = '"Name","Calls","DURATION (nsec)","AVERAGE (nsec)","PERCENT (INC)","MIN (nsec)","MAX (nsec)","STD_DEV"'
    text = (FOLDER / "4242_kernel_stats.csv").read_text(encoding="utf-8")
    summary = text.replace(old, new)
    assert summary != text
    by_rank = "\n".join(('"ProcessID","Hostname",', '4242,"a",')[n > 0] + x for n, x in enumerate(summary.splitlines()))
    paths = []
    for name, rows in (("kernels_summary", summary), ("kernels_summary_by_rank", by_rank), ("domain_summary", summary)):
        paths.append(tmp_path / f"4242_{name}.csv")
        paths[-1].write_text(rows, encoding="utf-8")
    for path in paths[:2]:
        assert totals(outcomes(rocprof.FORMAT, path)) == totals(outcomes(rocprof.FORMAT, text.encode()))
    assert units(outcomes(rocprof.FORMAT, paths[2])).keys() == {"foreign"}
    shutil.copy(FOLDER / "4242_kernel_trace.csv", tmp_path)
    ingest([str(tmp_path)], store)
    (calls,) = store.query("select sum(calls) as n from kernels where kernel like 'Cijk%'")["n"]
    assert calls == 2


def test_calls_and_their_statistics_are_foreign() -> None:
    found = outcomes(rocprof.FORMAT, FOLDER / "rocpd_hip_api_trace.csv")
    assert [(m.category, m.text, m.count) for m in records_of(found, Message)] == [
        ("marker", "step", 1),
    ]
    head = b'"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
    rows = b'"hipMalloc",3,9000,3000,50,1,2,3\n"MEMORY_COPY_HOST_TO_DEVICE",2,10,5,1,1,9,1\n'
    rows += b'"KERNEL_DISPATCH",2,10,5,1,1,9,1\n'
    rows += b'"Cijk_Ailk",2,8000,4000,50,3000,5000,1\n"relu",inf,8000,4000,50,3000,5000,1\n'
    found = outcomes(rocprof.FORMAT, head + rows)
    assert totals(found) == {("", "Cijk_Ailk"): (2, 8.0)}
    assert units(found) == {"foreign": 4, "measurement": 1, "reject": 1}
    assert units(outcomes(rocprof.FORMAT, FOLDER / "rocpd_hip_api_stats.csv")).keys() == {"foreign"}


def test_markers() -> None:
    found = outcomes(rocprof.FORMAT, FOLDER / "4242_marker_api_trace.csv")
    assert [(m.text, m.count) for m in records_of(found, Message)] == [("hipblasLtMatmul", 2)]
    assert units(found) == {"foreign": 1, "message": 2}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("4242_*")), ids=lambda p: p.name)
def test_recognise(path: object) -> None:
    head = InputFile(str(path)).head()
    assert rocprof.FORMAT.recognise(head)
    assert not rocprof.FORMAT.recognise(Head("x.csv", b"a,b\r,c\n"))


def test_trace_and_statistics_count_kernels_once(store: Store, tmp_path: Path) -> None:
    """If rocprofv3 wrote a trace and statistics of the same process, each kernel is counted only once.

    Both files have all kernels.
    """
    names = ("4242_kernel_stats.csv", "4242_kernel_trace.csv")

    def us() -> float:
        return float(store.query("select sum(total_us) as us from kernels")["us"].iloc[0])

    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        for name in names:
            data = (SAMPLES / "traces" / name).read_bytes()
            # A blank line tells the other job's file apart: equal bytes would be a copy of the first job's file.
            (tmp_path / folder / name).write_bytes(data + b"\n" * (folder == "other"))
    ingest([str(tmp_path / "one" / names[0])], store, run="r")
    alone = us()
    ingest([str(tmp_path / "one" / names[1])], store, run="r")
    assert us() == pytest.approx(alone)
    assert store.query("select distinct source_id from kernels").shape[0] == 1
    ingest([str(tmp_path / "other")], store, run="r")
    assert us() == pytest.approx(2 * alone), "the same names in another folder are of another job"


def test_the_cus_of_an_rdna_agent_are_counted_as_hip_does() -> None:
    head = b'"Node_Id","Agent_Type","Cu_Count","Name","Product_Name"\n'
    rows = {b'1,"GPU",64,"gfx1201","AMD Radeon RX 9070 XT"\n': "32", b'1,"GPU",104,"gfx90a",""\n': "104"}
    for row, count in rows.items():
        found = records_of(outcomes(rocprof.FORMAT, head + row), Fact)
        assert [x.value for x in found if x.name == "cu_count"] == [count]
