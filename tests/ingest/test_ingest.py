"""Tests of reading logs. logparse must recognise a log that it has read before or that has grown.

No call may be counted twice. If ``ingest`` is killed, no row is lost or there twice.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from logparse.errors import StoreError
from logparse.ingest import Ingested, ingest
from logparse.ingest.counting import PlainCounter, new_counter
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import FileFormat, Outcome
from logparse.model import Fact
from logparse.store import Store, open_store
from tests.conftest import CORPUS, ROOT, SAMPLES, needs_corpus, sized
from tests.libraries.reading import check_conservation
from tests.store.contents import OF_THE_MOMENT, contents
from tests.waiting import PATIENCE_S, wait_until

BENCH = (
    "hipblaslt-bench --api_method c -m {m} -n 512 -k 1024 --lda 1024 --ldb 1024 --ldc {m} --ldd {m}  --stride_a 0"
    " --stride_b 0 --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 0.000000 --transA T --transB N --batch_count 1"
    " --scaleA 0 --scaleB 0  --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --scale_type f32_r"
    " --bias_type f32_r   --compute_type f32_r --algo_method index --solution_index {i} --activation_type none "
)
TRACE = (
    "[2026-02-03 04:05:{s:02d}][HIPBLASLT][{pid}][Trace][rocblaslt_matmul] A=0x7f11c2c00000 Adesc=[type=R_16BF"
    " rows=1024 cols=64 ld=1024] B=0x7f0f8c600000 Bdesc=[type=R_16BF rows=1024 cols=512 ld=1024] C=0x7f0f8f200000"
    " Cdesc=[type=R_16BF rows=64 cols=512 ld=64] D=0x7f0f8f200000 Ddesc=[type=R_16BF rows=64 cols=512 ld=64]"
    " computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transA=OP_T transB=OP_N epilogue=EPILOGUE_DEFAULT"
    " biasPointer=0x0] workSpace=0x7f1033a7a200 workSpaceSizeInBytes=1048576 alpha=1 beta=0 stream=0 "
)


def bench(*sizes: int) -> str:
    return "".join(BENCH.format(m=m, i=m + 1) + "\n" for m in sizes)


def one(result: list[Ingested]) -> Ingested:
    assert len(result) == 1
    return result[0]


def counts(store: Store) -> dict[int, int]:
    frame = store.query("select m, sum(count) as n from calls join gemm_problems using (problem) group by m")
    return dict(zip(frame["m"], frame["n"].astype(int), strict=True))


def test_the_same_content_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "hipblaslt_12.log"
    log.write_text(bench(64, 64, 32))
    assert one(ingest([str(log)], store)).state == "new"
    assert one(ingest([str(log)], store)).state == "unchanged"
    assert counts(store) == {64: 2, 32: 1}
    row = store.sources().iloc[0]
    assert (row["pid"], row["pid_from"]) == (12, "name")


def test_equal_files_of_several_ranks_all_count(store: Store, tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}").mkdir()
        (tmp_path / f"rank{rank}" / "bench.log").write_text(bench(64))
    ingest([str(tmp_path / "rank*" / "bench.log")], store)
    assert counts(store) == {64: 3}


@pytest.mark.parametrize("by_ranges", [False, True], ids=["blocks", "ranges"])
@pytest.mark.parametrize("first", [bench(64, 32), bench(64) + BENCH.format(m=32, i=33)[:100], "", "no line end"])
def test_a_grown_log_gives_what_one_reading_of_it_gives(
    store: Store, tmp_path: Path, first: str, by_ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logparse.ingest.worker._RANGED_BYTES", -1 if by_ranges else 1 << 40)
    whole = bench(64, 32, 16)
    text = whole if whole.startswith(first) else first + "\n" + whole
    log = tmp_path / "run_7.log"
    log.write_text(first)
    ingest([str(log)], store)
    log.write_text(text)
    result = one(ingest([str(log)], store))
    assert result.state in ("grown", "new")
    assert counts(store) == {64: 1, 32: 1, 16: 1}
    assert store.sources()["lines"].sum() == text.count("\n")
    check_conservation(store)
    assert one(ingest([str(log)], store)).state == "unchanged"


@pytest.mark.parametrize("lines", [0, 1, 40], ids=["no whole line", "one", "pieces of them"])
def test_a_log_with_a_long_unfinished_line_is_recognised(
    store: Store, tmp_path: Path, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """logparse recognises a log that it has read before, even if the last line is long and has no line end."""
    # logparse counts whole lines. But the hash by which it recognises the log must also include the bytes of the last
    # line.
    monkeypatch.setattr("logparse.ingest.worker._RANGED_BYTES", 0)
    for module in ("lines", "input_file"):
        monkeypatch.setattr(f"logparse.ingest.{module}.PIECE_BYTES", 1024)
    log = tmp_path / "run.log"
    log.write_text(bench(*range(16, 16 + lines)) + "step " + "0" * 5000)
    assert one(ingest([str(log)], store)).state == "new"
    assert one(ingest([str(log)], store)).state == "unchanged"
    with log.open("a") as sink:
        sink.write("\n" + bench(64))
    assert one(ingest([str(log)], store)).state == "grown"
    assert one(ingest([str(log)], store)).state == "unchanged"
    assert len(store.sources()) == 1
    check_conservation(store)


def test_a_grown_log_is_read_only_where_it_is_new(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(bench(64))
    ingest([str(log)], store)
    with log.open("a") as sink:
        sink.write(bench(32))
    assert one(ingest([str(log)], store)).lines == 1
    assert len(store.sources()) == 1


@pytest.mark.skipif(isinstance(new_counter((), (), ()), PlainCounter), reason="the native counter was not built")
def test_a_log_that_becomes_shorter_fails_by_name(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run.log"
    log.write_text(bench(*range(1, 200)))
    monkeypatch.setattr("logparse.ingest.worker._RANGED_BYTES", 0)
    monkeypatch.setattr("logparse.ingest.lines._RANGE_BYTES", (2000, 2000))
    result = one(ingest([str(log)], store, progress=lambda path, count: os.truncate(log, 5000)))
    assert result.state == "failed"
    assert "run.log" in result.error
    assert "shorter" in result.error
    assert store.sources().empty


def test_a_changed_prefix_is_a_new_source(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(bench(64))
    ingest([str(log)], store)
    log.write_text(bench(32, 64))
    assert one(ingest([str(log)], store)).state == "new"
    assert len(store.sources()) == 2


def test_a_call_in_several_log_categories_counts_once(store: Store, tmp_path: Path) -> None:
    """If a log has several lines for one call, in different forms, the call is counted once.

    With HIPBLASLT_LOG_MASK=255 hipBLASLt logs each call in several categories. Lines from a benchmark tool are not
    counted as calls of the job.
    """
    log = tmp_path / "mixed_1.log"
    tool = BENCH.format(m=64, i=65) + "--rotating 512 --cold_iters 2 --iters 10 "
    log.write_text(bench(64, 64, 64) + TRACE.format(s=1, pid=1) + "\n" + tool + "\n")
    ingest([str(log)], store)
    calls = store.calls()
    assert sorted(calls[~calls["by_tool"]]["category"]) == ["bench", "trace"]
    workload = store.workload()
    assert [(row.calls, row.calls_from) for row in workload.itertuples()] == [(3, "bench")]


def test_trace_and_bench_of_one_call_are_linked_with_clock_and_process(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "mixed_1.log"
    log.write_text(bench(64) + "".join(TRACE.format(s=s, pid=99) + "\n" for s in (1, 1, 2)))
    ingest([str(log)], store)
    calls = store.calls().sort_values(["category", "first_seen"])
    bench_text, *traced = calls["problem"].unique()
    links = store.sql("select problem, other, level from links where problem <> other")
    assert len(traced) == 1, "a Trace line does not state all that a bench line does"
    assert {(x.problem, x.other) for x in links.itertuples()} == {(bench_text, traced[0]), (traced[0], bench_text)}
    assert list(calls["count"]) == [1, 2, 1]
    assert set(calls["pid"]) == {99}, "the bench lines of a stream take the process that its prefixes name"
    assert [str(x) for x in calls["first_seen"]][1:] == ["2026-02-03 04:05:01", "2026-02-03 04:05:02"]
    assert set(calls[calls["category"] == "trace"]["workspace_bytes"]) == {1048576}


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst", "none"])
def test_compressed_files_are_opened_as_they_are(store: Store, tmp_path: Path, suffix: str) -> None:
    data = bench(64, 32).encode()
    pack = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": lambda d: pa.compress(d, codec="zstd", asbytes=True),
        "none": lambda d: d,
    }
    path = tmp_path / f"log.{suffix}"
    path.write_bytes(pack[suffix](data))
    assert one(ingest([str(path)], store)).lines == 2
    assert counts(store) == {64: 1, 32: 1}


def test_a_bomb_is_refused_by_name(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logparse.ingest.input_file._RATIO", 2)
    bomb = tmp_path / "bomb.log.gz"
    with gzip.open(bomb, "wb") as sink:
        for _ in range(100):
            sink.write(bytes(1 << 20))
    result = one(ingest([str(bomb)], store))
    assert result.state == "failed"
    assert "bomb.log.gz" in result.error
    assert "2 times its size" in result.error
    assert store.sources().empty


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def noise(count: int) -> str:
    """Return lines of random text that hardly gets smaller by compression.

    A test cuts a compressed file. With such text, the cut is in the middle of the lines.
    """
    return "".join(f"{random.Random(number).getrandbits(2000):x}\n" for number in range(count))


@pytest.mark.parametrize("kind", PACKED)
def test_of_a_cut_archive_whole_lines_stay_and_the_rest_is_a_reject(store: Store, tmp_path: Path, kind: str) -> None:
    text = bench(*range(1, 4000)) + noise(2000) + bench(4001)
    whole = PACKED[kind](text.encode())
    path = tmp_path / f"cut.log.{kind}"
    path.write_bytes(whole[: len(whole) // 2])
    cut = one(ingest([str(path)], store))
    assert (cut.state, cut.units["call"], cut.units["reject"]) == ("new", 3999, 1)
    (row,) = store.rejects().itertuples()
    lost = re.fullmatch(r"the compressed file is cut, so its content behind byte ([\d,]+) is lost", row.reason)
    assert lost
    assert row.offset == int(lost[1].replace(",", ""))
    assert text[: row.offset].endswith("\n"), "the beginning of a line is left out"
    assert text[: row.offset].count("\n") == cut.lines - 1
    assert store.sources()["ended"].tolist() == ["the compressed file is cut off before its end"]
    check_conservation(store)
    path.write_bytes(whole)
    assert one(ingest([str(path)], store)).state == "grown"
    assert counts(store) == dict.fromkeys([*range(1, 4000), 4001], 1)
    assert not len(store.rejects())


def test_of_a_cut_table_the_whole_rows_stay(store: Store, tmp_path: Path) -> None:
    rows = "".join(f"{m},8,8,bf16_r,a:1,{m}.5,{noise(1)[:99]}{m}\n" for m in range(1, 3000))
    data = gzip.compress(f"m,n,k,a_type,solution,time_us,note\n{rows}".encode())
    (tmp_path / "times.csv.gz").write_bytes(data[: len(data) // 2])
    result = one(ingest([str(tmp_path / "times.csv.gz")], store))
    assert (result.state, result.units["reject"]) == ("new", 1)
    times = store.query("select m, time_us from measurements join gemm_problems using (problem) order by m")
    assert 100 < len(times) < 2999
    assert (times["time_us"] == times["m"] + 0.5).all(), "no number is the half of another one"


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_a_damaged_archive_fails_alone(store: Store, tmp_path: Path, kind: str) -> None:
    """If one compressed log is damaged, only this log fails.

    Its checksum is wrong, so the decompressed text may be wrong, too.
    """
    data = bytearray(PACKED[kind](noise(50).encode() + bench(*range(1, 64)).encode()))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / f"damaged.log.{kind}").write_bytes(data)
    (tmp_path / "good.log").write_text(bench(64))
    results = {Path(r.path).name: r for r in ingest([str(tmp_path / "*.log*")], store)}
    assert {name: r.state for name, r in results.items()} == {f"damaged.log.{kind}": "failed", "good.log": "new"}
    assert "the compressed file is damaged" in results[f"damaged.log.{kind}"].error
    assert counts(store) == {64: 1}


def test_a_fault_of_a_reader_fails_its_file_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(source: object) -> Iterator[Outcome]:
        raise ValueError("no number at all")

    poison = FileFormat("poison", "raises", recognise=lambda head: head.name == "bad.log", read=poisoned)
    monkeypatch.setattr("logparse.ingest.worker.FORMATS", (poison, *FORMATS))
    for name in ("bad.log", "good.log"):
        (tmp_path / name).write_text("x\n")
    results = {Path(r.path).name: r for r in ingest([str(tmp_path / "*.log")], store)}
    assert {name: r.state for name, r in results.items()} == {"bad.log": "failed", "good.log": "new"}
    assert results["bad.log"].error.endswith("bad.log: ValueError: no number at all")


def test_bad_paths_do_not_stop_the_others(store: Store, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(bench(64))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    results = ingest([str(tmp_path / n) for n in ("good.log", "loop", "gone", "never*")], store)
    assert [r.state for r in results if r.path.endswith("good.log")] == ["new"]
    failed = [r.error for r in results if r.state == "failed"]
    assert len(failed) == 3
    assert all(any(name in error for error in failed) for name in ("loop", "gone", "never"))


def test_a_url_that_names_nothing_is_reported_by_its_path(store: Store, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/no:where/*.log"
    result = one(ingest([url], store))
    assert (result.path, result.state) == (url, "failed")
    assert result.error.startswith(f"{url}: no such file")


def test_the_process_of_a_whole_file_is_that_of_its_fact(store: Store) -> None:
    ingest([str(SAMPLES / "rocpd" / "4242_results.db"), str(SAMPLES / "traces" / "4242_kernel_trace.csv")], store)
    rows = store.query("select format, pid, pid_from from sources order by format").values.tolist()
    assert rows[0] == ["rocpd", 4242, "fact"]
    assert rows[1][0] == "rocprof-csv"
    assert str(rows[1][1]) in ("nan", "<NA>", "None"), "no fact states it, and a number in a name may be anything"


def test_half_escapes_of_json_are_stored_as_escapes(store: Store, tmp_path: Path) -> None:
    trace = (SAMPLES / "traces" / "job.trace.json").read_text().replace('"aten::relu"', '"re\\udc80lu"')
    (tmp_path / "odd.trace.json").write_text(trace)
    assert one(ingest([str(tmp_path / "odd.trace.json")], store)).state == "new"
    assert "re\\udc80lu" in set(store.kernels()["op"])


def test_what_miopen_keeps_beside_its_databases_is_left_out(store: Store, tmp_path: Path) -> None:
    locks = tmp_path / "db/miopen-lockfiles"
    locks.mkdir(parents=True)
    name = "gfx942130.HIP.3_5_1_.ufdb.txt"
    for path in (tmp_path / "db" / name, tmp_path / "db" / f"{name}.time", locks / f"{name}.lock"):
        path.write_text("3589174079795\n")
    assert [Path(r.path).name for r in ingest([str(tmp_path / "db")], store)] == [name]
    assert [Path(r.path).name for r in ingest([str(tmp_path / "db" / f"{name}.time")], store)] == [f"{name}.time"]


def test_folders_are_walked_without_loops_and_without_stores(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "deep"
    folder.mkdir(parents=True)
    (folder / "a\nb.log").write_text(bench(64))
    (folder / "up").symlink_to(tmp_path / "logs")
    open_store(tmp_path / "logs" / "inner", create=True)
    assert [Path(r.path).name for r in ingest([str(tmp_path / "logs")], store)] == ["a\nb.log"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 5000,
        b"\xef\xbb\xbf" + bench(64).encode(),
        b"\n" * 9,
    ],
    ids=["nul", "bom", "blank"],
)
def test_odd_bytes_are_accounted_for(store: Store, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "odd.log").write_bytes(data)
    assert one(ingest([str(tmp_path / "odd.log")], store)).state == "new"
    check_conservation(store)


def test_crlf_lines_are_read(store: Store, tmp_path: Path) -> None:
    (tmp_path / "dos.log").write_bytes(bench(64).replace("\n", "\r\n").encode())
    ingest([str(tmp_path / "dos.log")], store)
    assert counts(store) == {64: 1}


def test_numbers_beyond_64_bits_are_rejects_and_large_products_unknown(store: Store, tmp_path: Path) -> None:
    huge = BENCH.format(m=10**25, i=1)
    large = BENCH.format(m=10**13, i=2).replace("-n 512", "-n 9000000")
    (tmp_path / "huge.log").write_text(f"{huge}\n{large}\n")
    assert one(ingest([str(tmp_path / "huge.log")], store)).state == "new"
    assert [x.partition(": ")[2] for x in store.rejects()["reason"]] == ["a number beyond 64 bits"]
    assert counts(store) == {10**13: 1}
    assert store.gemm_problems()["flops"].isna().all()
    check_conservation(store)


@pytest.mark.parametrize("clock", ["2026-99-02 02:40:00", "2026-01-02 24:40:00", "0000-00-00 00:00:00"])
def test_a_clock_that_shows_no_time_is_an_unknown_one(store: Store, tmp_path: Path, clock: str) -> None:
    log = tmp_path / "run.log"
    lines = [f"[{at}][HIPBLASLT][42][Info][rocblaslt] ready" for at in ("2026-01-02 03:04:05", clock)]
    log.write_text("\n".join(lines) + "\n")
    result = one(ingest([str(log)], store))
    assert (result.state, result.units["message"], result.units["reject"]) == ("new", 2, 0)


def test_a_very_long_line_is_one_line(store: Store, tmp_path: Path) -> None:
    (tmp_path / "long.log").write_bytes(b"x" * (20 << 20) + b"\n" + bench(64).encode())
    assert one(ingest([str(tmp_path / "long.log")], store)).lines == 2
    assert counts(store) == {64: 1}


def test_workers_and_one_process_give_the_same_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logparse.executors.local._WORTH", 0)
    for number in range(4):
        (tmp_path / f"log_{number}.log").write_text(bench(*range(number, number + 9)) + TRACE.format(s=number, pid=1))
    views = ("sources", "calls", "workload", "messages", "gemm_problems", "links", "facts", "rejects")
    seen = []
    for jobs in (1, 3):
        store = open_store(tmp_path / f"store{jobs}", create=True)
        ingest([str(tmp_path / "log_*.log")], store, jobs=jobs, run="r")
        seen.append(contents(store, OF_THE_MOMENT, views))
    assert seen[0] == seen[1]


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see the peak")
def test_memory_is_bounded_when_every_line_is_distinct(tmp_path: Path) -> None:
    """Reading a log needs little memory even if every line is different.

    The log has 200,000 different messages and 10,000 different calls. Kept all at once, they would exceed the limit.
    """
    with (tmp_path / "distinct.log").open("w") as log:
        for number in range(200_000):
            log.write(
                f"[2026-02-03 04:05:06][HIPBLASLT][7][Api][rocblaslt_function] value={number} and some more text\n"
            )
            if number % 20 == 0:
                log.write(BENCH.format(m=number + 1, i=number) + "\n")
    code = (
        "import sys\nfrom logparse.cli import app\napp(sys.argv[1:], standalone_mode=False)\n"
        # not ru_maxrss, because that survives exec, and would be the test runner's own size
        "print(next(int(x.split()[1]) >> 10 for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    )
    command = ["ingest", str(tmp_path / "distinct.log"), "--store", str(tmp_path / "s")]
    out = subprocess.run([sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(out.stdout.split()[-1]) < 400
    store = open_store(tmp_path / "s")
    assert store.query("select count(*) as n from messages")["n"][0] == 200_000
    assert len(counts(store)) == 10_000
    check_conservation(store)


def below(pid: str) -> list[str]:
    """Return the process ids of all children, grandchildren and so on of a process."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [*children, *(x for child in children for x in below(child))]
    return []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see worker processes")
def test_an_interrupt_ends_workers(tmp_path: Path) -> None:
    for number in range(4):
        with (tmp_path / f"log_{number}.log").open("w") as log:
            log.writelines(BENCH.format(m=m, i=m) + "\n" for m in range(25_000))
    command = [sys.executable, "-m", "logparse", "ingest", "--store", str(tmp_path / "s"), "--jobs", "2"]
    child = subprocess.Popen([*command, str(tmp_path / "log_*.log")], cwd=ROOT, stdout=-3, stderr=-3)
    workers: list[str] = []
    # two workers, the server that forks them, and multiprocessing's tracker
    while len(workers) < 4 and child.poll() is None:
        time.sleep(0.05)
        workers = below(str(child.pid))
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    assert child.wait() != 0
    assert wait_until(lambda: not [pid for pid in workers if Path(f"/proc/{pid}").exists()])


def test_two_ingests_into_one_store_at_once_both_land(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"log_{number}.log").write_text(bench(*[number + 1] * 2000))
    command = [sys.executable, "-m", "logparse", "ingest", "--store", str(tmp_path / "s")]
    running = [subprocess.Popen([*command, str(tmp_path / f"log_{n % 2}.log")], cwd=ROOT, stdout=-3) for n in range(4)]
    assert [p.wait() for p in running] == [0, 0, 0, 0]
    assert counts(open_store(tmp_path / "s")) == {1: 2000, 2: 2000}


def test_kill_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random(5)
    expected: dict[int, int] = {}
    for number in range(6):
        sizes = [rng.randrange(1, 40) for _ in range(1500)]
        for size in sizes:
            expected[size] = expected.get(size, 0) + 1
        (tmp_path / f"log_{number}.log").write_text(bench(*sizes))
    command = [sys.executable, "-m", "logparse", "ingest", "--store", str(tmp_path / "s"), "--jobs", "1"]
    command.append(str(tmp_path / "log_*.log"))
    started = time.monotonic()
    elsewhere = [*command[:5], str(tmp_path / "other"), *command[6:]]
    assert subprocess.run(elsewhere, cwd=ROOT, stdout=-3, check=False).returncode == 0
    whole_run = time.monotonic() - started
    for _ in range(sized(5, 20)):
        child = subprocess.Popen(command, cwd=ROOT, stdout=-3, stderr=-3)
        time.sleep(rng.uniform(0.3, 1.0) * whole_run)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if (tmp_path / "s" / "logparse-store.json").exists():
            store = open_store(tmp_path / "s")
            store.sweep(older_than_s=0)
            assert all(n <= expected[m] for m, n in counts(store).items())
            for row in store.sources()["path"]:
                if rng.random() < 0.5:  # otherwise the store would be complete after the first few rounds
                    store.forget(row)
    assert subprocess.run(command, cwd=ROOT, stdout=-3, check=False).returncode == 0
    assert counts(open_store(tmp_path / "s")) == expected


def test_standard_input_is_a_live_source(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logparse", "ingest", "-", "--store", str(tmp_path / "s")]
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=-3)
    assert child.stdin is not None
    deadline = time.monotonic() + PATIENCE_S
    seen = 0
    while not seen and time.monotonic() < deadline:
        child.stdin.write(bench(64).encode())
        child.stdin.flush()
        time.sleep(0.2)
        if (tmp_path / "s" / "logparse-store.json").exists():
            seen = sum(counts(open_store(tmp_path / "s")).values())
    assert seen, "calls are visible before the stream ends"
    child.stdin.write(BENCH.format(m=32, i=1).encode())
    child.stdin.close()
    assert child.wait() == 0
    store = open_store(tmp_path / "s")
    assert counts(store)[32] == 1
    assert len(store.sources()) == 1
    check_conservation(store)


def from_stdin(data: bytes, store: Store, monkeypatch: pytest.MonkeyPatch) -> Ingested:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return one(ingest(["-"], store))


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress], ids=["plain", "gz", "xz"])
def test_standard_input_is_recognised_as_a_file_is(
    store: Store, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    for name in ("tunableop/tunableop_results0.csv", "hipblaslt/tuning_7.0.txt", "hipblaslt/hipblaslt_rank0_4242.log"):
        path = SAMPLES / name
        as_file = one(ingest([str(path)], store))
        data = compress(path.read_bytes())
        again = [from_stdin(data, store, monkeypatch) for _ in range(2)]
        for read in again:
            assert (read.state, read.format, read.counts) == ("new", as_file.format, as_file.counts)
        assert [bool(read.remark) for read in again] == [False, True]
    check_conservation(store)


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (codecs.BOM_UTF16_BE + bench(64).encode("utf-16-be"), "iconv"),
        (codecs.BOM_UTF16_LE + bench(64).encode("utf-16-le"), "iconv"),
        (json.dumps({"log": bench(64), "stream": "stderr"}, separators=(",", ":")).encode(), "docker logs"),
        (json.dumps({"log": bench(64), "stream": "stderr"}).encode(), "docker logs"),
        (json.dumps({"cells": [{"outputs": [{"text": [bench(64)]}]}], "nbformat": 4}, indent=1).encode(), "jq -rj"),
    ],
    ids=["UTF-16 BE", "UTF-16 LE", "docker", "docker with blanks", "notebook"],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_would_be_read_wrong_is_refused_with_a_remedy(
    store: Store,
    tmp_path: Path,
    data: bytes,
    remedy: str,
    pack: Callable[[bytes], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a.log").write_bytes(pack(data))
    assert remedy in one(ingest([str(tmp_path / "a.log")], store)).error
    assert remedy in from_stdin(data, store, monkeypatch).error
    assert store.sources().empty


def test_an_archive_is_no_stream_of_lines(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rank0.log").write_text(bench(64))
    for kind in ("tar", "gztar", "zip"):
        archive = shutil.make_archive(str(tmp_path / kind), kind, tmp_path, "rank0.log")
        read = (one(ingest([archive], store)), from_stdin(Path(archive).read_bytes(), store, monkeypatch))
        assert all("archive: unpack the archive" in result.error for result in read[: 1 if kind == "gztar" else 2])
    assert store.sources().empty


def test_inputs_that_hold_nothing_are_named_as_what_they_are(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "loop").symlink_to("loop")
    assert one(ingest([str(tmp_path / "logs")], store)).error.endswith("logs: the folder contains no file to read")
    assert "no file matches this name as a pattern" in one(ingest([str(tmp_path / "*.log")], store)).error
    monkeypatch.setattr(sys, "stdin", None)
    assert one(ingest(["-"], store)).error == "standard input is closed"


def test_a_pipe_is_named_as_one(store: Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe or a device" in one(ingest([str(tmp_path / "pipe")], store)).error


def test_a_link_beside_its_file_and_a_path_through_a_folder_add_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(bench(64))
    (tmp_path / "latest.log").symlink_to("rank0.log")
    (result,) = ingest([str(tmp_path), f"{tmp_path}/../{tmp_path.name}/rank0.log"], store)
    assert result.path == str(tmp_path / "rank0.log")


def test_forget_removes_a_run(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(bench(64))
    (tmp_path / "b.log").write_text(bench(32))
    ingest([str(tmp_path / "a.log")], store, run="one")
    ingest([str(tmp_path / "b.log")], store, run="two")
    store.forget("one")
    with pytest.raises(StoreError, match=r"status.*` lists the runs, `logparse sql .* 'select path from sources'`"):
        store.forget("one")
    assert counts(store) == {32: 1}
    assert store.runs() == ["two"]
    assert not [p for p in Path(store.url).rglob("*.parquet") if p.stat().st_size == 0]


def test_unreadable_parts_of_the_disk_are_reported(store: Store, tmp_path: Path) -> None:
    locked = tmp_path / "locked.log"
    locked.write_text(bench(64))
    locked.chmod(0)
    result = one(ingest([str(locked)], store))
    assert result.state == ("new" if os.geteuid() == 0 else "failed")


@needs_corpus
def test_every_line_of_every_real_file_is_counted_once(store: Store) -> None:
    """Every real log in the tests' collection is read without an error, and each of its lines is counted once.

    ``tests/test_goldens.py`` tests the samples.
    """
    files = [path for path in CORPUS.rglob("*") if path.is_file() and path.stat().st_size < sized(200_000, 1 << 40)]
    results = ingest(list(map(str, files)), store, jobs=1)
    assert [(result.path, result.error) for result in results if result.state != "new"] == []
    assert len(results) == len(files)
    check_conservation(store)


@needs_corpus
def test_gpt2_log_is_375_calls_of_19_problems(store: Store) -> None:
    result = one(ingest([str(CORPUS / "h200" / "cublaslt_mask31_588.log.gz")], store))
    assert (result.lines, result.calls, result.problems) == (8467, 375, 19)
    categories = store.query("select category, sum(count) as n from messages group by all").set_index("category")["n"]
    assert (categories["info"], categories["hints"]) == (377, 3)
    bias = store.query("select sum(count) as n from calls join gemm_problems using (problem) where bias")["n"]
    assert bias[0] == 80


def test_facts_are_kept_once(store: Store) -> None:
    from logparse.ingest import record

    record(store, [Fact("arch", "gfx942"), Fact("arch", "gfx942")], run="r", name="replay", format="replay")
    assert list(store.facts()["value"]) == ["gfx942"]
