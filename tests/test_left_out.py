"""Tests that every subcommand says how many rows are missing in its answer, and why."""

# The store (Parquet folder) and the files have rows that are left out for each possible reason. A subcommand is tested
# with each reason that applies to it.

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analyzers.evidence.tables import Settings
from analyzers.recommend.verb import advise
from logparse.cli import app
from logparse.ingest import ingest
from logparse.ingest.all_inputs import record
from logparse.lookup import ranking
from logparse.lookup.problems_in_text import problems_in
from logparse.model import Measurement, Solution
from logparse.store import open_store
from tests.conftest import SAMPLES

TUNABLEOP = SAMPLES / "tunableop" / "tunableop_results0.csv"
DAMAGED_ROW = "GemmTunableOp_BFloat16_TN,tn_12288_8192_4096_ld_4096_4096_1x288,Default,1.7124\n"
CALL = (
    "hipblaslt-bench --api_method c -m {m} -n 64 -k 64 --lda 64 --ldb 64 --ldc {m} --ldd {m}  --stride_a 0 "
    "--stride_b 0 --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 0.000000 --transA T --transB N --batch_count 1 "
    "--scaleA 0 --scaleB 0  --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --scale_type f32_r "
    "--bias_type f32_r   --compute_type f32_r --algo_method index --solution_index {x} --activation_type none "
    "--any_stride --rotating 0 --cold_iters 0 --iters 0 "
)
TRACED = (
    "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 3 -H 224 -W 224 -k 64 -y 7 -x 7 "
    "-p 3 -q 3 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store (Parquet folder) of two runs (``job`` and ``other``), and with override files.

    An override file is the user's choice of kernels.
    """
    out = tmp_path_factory.mktemp("left_out")
    calls = [CALL.format(m=m, x=7) for m in (64, 128, 192)]
    (out / "job_4242.log").write_text("\n".join([*calls, "hipblaslt-bench --api_method c -m 12 -n", TRACED, ""]))
    (out / "other_4243.log").write_text("\n".join([*calls[:2], CALL.format(m=192, x=8), ""]))
    here = TUNABLEOP.read_text()
    (out / "tunableop_results0.csv").write_text(here + DAMAGED_ROW)
    (out / "elsewhere0.csv").write_text(here.replace("gfx942", "gfx950"))
    shutil.copy(SAMPLES / "capture" / "facts.json", out)
    shutil.copy(SAMPLES / "hipblaslt" / "bench_output.txt", out)
    names = ("job_4242.log", "tunableop_results0.csv", "elsewhere0.csv", "facts.json", "bench_output.txt")
    store = open_store(str(out / "store"), create=True)
    ingest([str(out / name) for name in names], store, run="job")
    [problem] = problems_in(CALL.format(m=64, x=7))
    solution = Solution(library="hipblaslt", id="9")
    failed = Measurement(problem=problem, solution=solution, origin="bench", status="failed")
    record(store, [failed], run="job", name="failed", format="bench")
    ingest([str(out / "other_4243.log")], store, run="other")
    return out


LAW = {
    "top": {
        "damaged": "2 damaged lines",
        "benchmark commands": "17 calls of benchmark commands",
        "never called": "measured problems without calls in the run's logs",
        "another device": "20 measured times of another device",
        "no time": "1 result without a time",
    },
    "recommend": {
        "damaged": "2 damaged lines",
        "benchmark commands": "17 calls of benchmark commands",
        "never called": "measured problems without calls in the run's logs",
        "another device": "20 measured times of another device",
        "no time": "1 result without a time",
    },
    "recommend -v": {"damaged": "not used: 2 damaged lines"},
    "diff job other": {"damaged": "2 damaged lines (`sql 'from rejects'` lists them) of job"},
    "coverage tunableop_results0.csv": {
        "damaged": "2 damaged lines",
        "another kind": "1 convolution (a kind that these files do not hold)",
        "a row that is no row": "1 row can never hit",
    },
    "export --to bench": {
        "damaged": "left out 2 damaged lines",
        "another kind": "left out 1: --to bench holds no conv",
    },
    "export --to bench -n 1": {"beyond the limit": "left out 2: problems beyond the limit of -n"},
    "export --to driver": {"another kind": "left out 3: --to driver holds no GEMM"},
    "export --to untuned": {"not convertible": "left out 3: TunableOp: the target's version of PyTorch is unknown"},
    "merge tunableop_results0.csv": {
        "damaged": "1 row left out",
        "why": "line 26: left out: no call has the row's key",
    },
    "convert tunableop_results0.csv --to hipblaslt": {
        "not convertible": "7: Default: nothing to override",
        "another library": "2: hipblaslt has no such solution: rocblas's index",
        "damaged": "1: no call has the row's key",
        "all": "11 rows; 10 left out",
    },
    "lint tunableop_results0.csv": {"damaged": "_ld_4096_4096_1x288"},
}


@pytest.mark.parametrize("verb", LAW)
def test_what_is_left_out_is_counted(
    folder: Path, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = verb.split()
    asks_the_store = words[0] not in ("merge", "convert", "lint")
    words += ["--store", "store"] if asks_the_store else []
    words += ["--run", "job"] if asks_the_store and words[0] != "diff" else []
    with pytest.raises(SystemExit):
        app(words)
    out = capsys.readouterr().out
    assert [why for why, text in LAW[verb].items() if text not in out] == []


def test_nothing_is_left_out_of_a_clean_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job_4242.log").write_text(CALL.format(m=64, x=7) + "\n")
    store = open_store(str(tmp_path / "store"), create=True)
    ingest([str(tmp_path / "job_4242.log")], store, run="job")
    monkeypatch.chdir(tmp_path)
    for verb in (["top"], ["recommend"], ["export", "--to", "bench"]):
        with pytest.raises(SystemExit):
            app([*verb, "--store", "store"])
        out = capsys.readouterr().out
        assert "left out" not in out
        assert "not used" not in out


@pytest.mark.parametrize("run", ["job", "other"])
def test_recommend_counts_what_top_counts_without_ranking_the_calls(
    folder: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subcommand ``recommend`` counts what is left out in the connection with which it reads the store.

    The ranking of ``top`` gives the same counts, but it would read the store again.
    """
    store = open_store(str(folder / "store"))
    expected = ranking.rank_problems(store, n=1, run=run, count_left_out=True).left_out.text
    monkeypatch.setattr(ranking, "RANKED", "the ranking is not asked for")
    monkeypatch.chdir(folder)
    found = advise(store, Settings(), run, count_left_out=True)
    assert (found.not_used, advise(store, Settings(), run).not_used) == (expected, "")
    with pytest.raises(SystemExit) as ended:
        app(["recommend", "--store", "store", "--run", run, "--out", "left_out"])
    assert not ended.value.code


def test_problems_with_one_command_are_counted(folder: Path) -> None:
    from analyzers.overrides.export import export

    one = problems_in(CALL.format(m=64, x=7))
    made = export([*one, *one], "bench")
    assert (made.count, dict(made.refused)) == (
        1,
        {"another matrix product or convolution has the same command, which is written once": 1},
    )
