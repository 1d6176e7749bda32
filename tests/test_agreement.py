"""Tests that the subcommands that count calls, such as ``top`` and ``recommend``, agree with each other."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analyzers.evidence.joins import not_elsewhere
from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.picks import counted_as, picks
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.explore.load.analysis import store_points
from analyzers.overrides.export import of_store
from analyzers.recommend.ranking import recommend
from analyzers.replay.replay import Options, plan_replay
from analyzers.replay.results import make_measurement
from logparse.ingest import ingest, record
from logparse.libraries.kinds.format import UNITS
from logparse.lookup.contents import list_contents
from logparse.lookup.one_problem import known_lines, show
from logparse.lookup.ranking import rank_problems, top
from logparse.model import Fact, solution_from_text
from logparse.store import Store, open_store
from tests.analyzers.ingested import HERE as MACHINE
from tests.analyzers.ingested import count_units, product, store_race_times
from tests.conftest import SAMPLES

TYPED = """\
./bin/MIOpenDriver conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1 -t 1
MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 2
convbfp16 -n 16 -c 96 -H 48 -W 32 -k 96 -y 3 -x 1 -p 1 -q 0 -m conv -g 1 -F 4 -t 1 --in_layout NHWC --fil_layout NHWC
convbfp16 -n 16 -c 96 -H 48 -W 32 -k 96 -y 3 -x 1 -p 1 -q 0 -m conv -g 1 -F 4 -t 1 --in_layout NHWC --fil_layout FHWC
./bin/MIOpenDriver conv --batchsize 256 --in_channels 128 --in_h 28 --in_w 28 --out_channels 128 -F 1
MIOpenDriver convbfp16 -n 4 -c 64 --in_d 8 -H 28 -W 28 -k 128 --fil_d 3 -y 3 -x 3 --pad_d 1 -p 1 -q 1 -_ 3 -F 1
MIOpenDriver convint8 -n 4 -c 64 -H 28 -W 28 -k 64 -F 1
convfp16 -n 1 -c 64 -H 28 -W 28 -k 64 -g 64 -F 1
"""
BENCH = (
    "hipblaslt-bench -m {m} -n 64 -k 32 --transA N --transB N --a_type f16_r --b_type f16_r --c_type f16_r "
    "--d_type f16_r --compute_type f32_r -i 10\n"
)
TRACE, CALLS = ((SAMPLES / "hipblaslt" / name).read_text() for name in ("trace_4242.log", "hipblaslt_rank0_4242.log"))
CASES = {
    "typed convolutions": (TYPED, 7),
    "typed GEMMs": (BENCH.format(m=64) + BENCH.format(m=128), 2),
    "tuning file": ("hipblaslt/tuning_7.0.txt", None),
    "table": ("tables/aiter_bf16_tuned_gemm.csv", None),
    "log of commands": ("miopen/miopen_cmd_4242.log", None),
    "commands with printed results": ("hipblaslt/bench_output.txt", None),
    "calls of a log in two categories": (TRACE + CALLS, 17),
    "calls, commands and measured rows": ("tables/rocblas.log", None),
    "tuner's log": ("tunableop/tunableop_verbose.log", None),
}


@pytest.mark.parametrize("case", CASES)
def test_problems_are_counted_alike(case: str, store: Store, tmp_path: Path) -> None:
    text, wanted = CASES[case]
    path = tmp_path / "list.txt"
    if wanted is None:
        path = SAMPLES / text
    else:
        path.write_text(text, encoding="utf-8")
    [read] = ingest([str(path)], store)
    shown = top(store, n=10_000)
    assert read.problems == len(shown) == len(set(shown["text"]))
    assert wanted in (None, read.problems)
    [held] = list_contents(store).to_pylist()
    counted = dict(zip(UNITS, read.counts, strict=True))
    assert (held["files"], held["lines"], held["bytes"]) == (1, read.lines, path.stat().st_size)
    assert held["rejects"] == counted["reject"]
    assert all(held[f"{unit}_lines"] == counted[unit] for unit in ("call", "measurement", "message", "foreign"))
    assert held["measurement_lines"] == store.query("select count(*) as n from measurements")["n"][0]
    assert read.calls == store.query("select coalesce(sum(count), 0) as n from calls")["n"][0]
    assert held["call_lines"] == read.calls or "profile" in read.format  # lines of a profile state counts
    for label, known in zip(shown["problem"], shown["text"], strict=True):
        assert known in {one.problem.text for one in show(store, label)}
    if shown["calls"].notna().all():
        made = of_store(store, "driver" if set(shown["kind"]) == {"conv"} else "bench")
        assert made.count + sum(made.refused.values()) == read.problems
        assert len(recommend(tables_of(store), Settings()).calls) == read.problems
        assert wanted is None or len(plan_replay(store, Options())) == read.problems


TABLE = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
ROW = "{device},{m},256,5120,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,{index},0,{us},\n"
LOG = (
    "hipblaslt-bench --api_method c -m 256 -n 64 -k 5120 --lda 5120 --ldb 5120 --ldc 256 --ldd 256  --stride_a 0 "
    "--stride_b 0 --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 0.000000 --transA T --transB N --batch_count 1 "
    "--scaleA 0 --scaleB 0  --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --scale_type f32_r "
    "--bias_type f32_r --compute_type f32_r --algo_method index --solution_index 9 --activation_type none\n"
)
HERE = ROW.format(device="gfx942,304", m=64, index=7, us=9.0) + ROW.format(device="gfx942,304", m=64, index=9, us=12.0)
THERE = [
    ROW.format(device=device, m=m, index=index, us=us + more)
    for device, more in (("gfx1250,256", 0.0), ("gfx942,80", 0.5))
    for m, index, us in ((64, 8, 3.0), (64, 9, 30.0), (32, 8, 1.0))
]


def filled(folder: Path, tables: dict[str, list[str]], order: int = 1) -> Store:
    folder.mkdir()
    (folder / "facts.json").write_text('{"arch": "gfx942:sramecc+:xnack-", "cu_count": "304"}', encoding="utf-8")
    (folder / "hipblaslt_1.log").write_text(LOG * 3, encoding="utf-8")
    for name, rows in tables.items():
        (folder / name).write_text(TABLE + "".join(rows[::order]), encoding="utf-8")
    store = open_store(folder / "store", create=True)
    ingest([str(x) for x in sorted(folder.iterdir()) if x.is_file()], store)
    return store


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("by", ["calls", "time"])
@pytest.mark.parametrize("apart", [False, True], ids=["one table", "two tables"])
def test_rows_of_another_device_change_no_answer_of_top(tmp_path: Path, apart: bool, by: str, order: int) -> None:
    here = HERE.splitlines(keepends=True)
    alone = top(filled(tmp_path / "alone", {"a.csv": here}), by=by)
    more = {"a.csv": here, "b.csv": THERE} if apart else {"a.csv": here + THERE}
    beside = top(filled(tmp_path / "beside", more, order), by=by)
    assert list(alone["best"]) == ["hipblaslt:7"]
    assert list(alone["pick_us"]) == [12.0]
    pd.testing.assert_frame_equal(alone, beside[beside["calls"].notna()].reset_index(drop=True))


def test_of_a_table_of_several_devices_the_targets_rows_are_kept(tmp_path: Path) -> None:
    tables = tables_of(filled(tmp_path / "mixed", {"a.csv": [*THERE, HERE]}))
    for target, wanted in (
        ({}, {9.0, 12.0}),  # the run's own machine, which facts.json states
        ({"arch": "gfx1250", "cu_count": "256"}, {3.0, 30.0, 1.0}),
        ({"arch": "gfx942"}, {3.5, 30.5, 1.5, 9.0, 12.0}),
        ({"arch": "gfx950", "cu_count": "256"}, set()),
    ):
        kept = not_elsewhere(tables.measurements, tables, Settings(target=target))
        assert set(kept["time_us"]) == wanted


def two_devices(folder: Path) -> Store:
    """Return a store with one table of one product that was tuned on two GPUs, and no log."""
    rows = [("gfx950,256", 7, 75.3), ("gfx942,80", 8, 336.9), ("gfx942,80", 9, 400.0)]
    text = TABLE + "".join(ROW.format(device=device, m=64, index=index, us=us) for device, index, us in rows)
    (folder / "tuned.csv").write_text(text, encoding="utf-8")
    store = open_store(folder / "store", create=True)
    ingest([str(folder / "tuned.csv")], store)
    return store


def test_show_compares_times_of_one_device(tmp_path: Path) -> None:
    """If a table has times of several GPUs, ``show`` compares each time with the others of its own GPU."""
    store = two_devices(tmp_path)
    sentence, table, *_ = known_lines(store, show(store, "TN 256×64×5120 bf16_r"))
    assert isinstance(sentence, str)
    assert sentence.endswith(
        "its fastest known solutions are hipblaslt:7 on gfx950 (256 CUs): 75.3 µs; "
        "hipblaslt:8 on gfx942 (80 CUs): 337 µs"
    )
    assert not isinstance(table, str)
    assert [(row["solution"], row["device"], row["slower"]) for row in table] == [
        ("hipblaslt:7", "gfx950 (256 CUs)", ""),
        ("hipblaslt:8", "gfx942 (80 CUs)", ""),
        ("hipblaslt:9", "gfx942 (80 CUs)", "1.19 ×"),
    ]


def test_top_names_the_devices_of_its_times_if_files_have_several(tmp_path: Path) -> None:
    told = rank_problems(two_devices(tmp_path)).total
    assert "337 µs by times measured alone, not in the job, each on gfx942 (80 CUs)" in told


def test_the_page_has_a_row_for_each_device_of_a_table(tmp_path: Path) -> None:
    points = store_points(two_devices(tmp_path)).sort_values("best_us")
    assert points[["best", "best_us", "file", "solutions"]].to_numpy().tolist() == [
        ["hipblaslt:7", 75.3, "tuned.csv (gfx950 256)", 1],
        ["hipblaslt:8", 336.9, "tuned.csv (gfx942 80)", 2],
    ]


def test_traced_calls_are_scaled_up_in_both_subcommands(store: Store) -> None:
    """``top`` and ``recommend`` both scale the calls in a trace up to the whole run."""
    # A trace covers only a few steps of a run, but a log has all of them. Without the scaling, calls that only the
    # trace contains would seem to be rare.
    ingest([str(SAMPLES / x) for x in ("traces/job.trace.json", "hipblaslt/trace_4242.log")], store, run="run")
    traced = top(store, n=1000).set_index("text")
    count_units(store, "run")
    counted = top(store, n=1000).set_index("text").loc[traced.index]
    alone = traced["calls_from"] == "profiler"
    assert 0 < alone.sum() < len(alone)
    assert counted["calls"].tolist() == (traced["calls"] * alone.map({True: 20, False: 1})).tolist()
    held = tables_of(store).workload.groupby("problem")["calls"].sum()
    assert counted.loc[alone, "calls"].to_dict() == held[traced.index[alone]].to_dict()


def test_top_shows_the_same_kernel_as_recommend(store: Store) -> None:
    """``top`` and ``recommend`` name the same kernel for a matrix product.

    This is also true if no log states how often each kernel ran.
    """
    ingest([str(SAMPLES / "aiter" / "server.log")], store, run="run")
    made = picks(tables_of(store)).sort_values(["count", "pick"], ascending=[False, True]).drop_duplicates("problem")
    shown = top(store, n=1000).set_index("text")["pick"]
    assert len(made) > 2
    assert shown[made["problem"]].tolist() == made["pick"].tolist()


def test_calls_of_one_product_in_two_logs_are_added_up_alike(store: Store) -> None:
    """``top``, the web page and ``recommend`` count the same number of calls of a matrix product.

    Two logs may describe the same product by different texts. Its calls are then counted for the text for which the
    kernel is known.
    """
    ingest([str(SAMPLES / "tables")], store, run="run")
    tables, shown = tables_of(store), top(store, n=10_000)
    ((problem, other),) = counted_as(tables).items()
    called = tables.workload.groupby("problem")["calls"].sum()
    assert problem not in set(shown["text"])
    assert shown.set_index("text").loc[other, "calls"] == called[problem] + called.get(other, 0)


def test_times_are_compared_within_one_measurement(store: Store) -> None:
    """``top`` compares the time of the default kernel only with other times of the same measurement."""
    # Times from the job's own trace, from a benchmark or from another run were taken under other conditions, so they
    # are ignored, even if they are shorter.
    problem = product(4096, 64, 8192)
    store_race_times(store, problem, {"Default": 10.0, "hipblaslt:7": 8.0, "hipblaslt:8": 7.0}, "hipblaslt:7")
    for run, origin, us in (("run", "trace", 4.0), ("run", "bench", 3.0), ("other", CONFIRM, 2.0)):
        row = make_measurement(problem, solution_from_text("hipblaslt:9"), [us], origin=origin)
        record(store, [row, *map(Fact, MACHINE, MACHINE.values())], run=run, name=origin, format="replay")
    [row] = top(store, run="run").to_dict("records")
    assert (row["best"], row["pick_us"], row["best_us"]) == ("hipblaslt:7", pytest.approx(10.0), pytest.approx(8.0))
