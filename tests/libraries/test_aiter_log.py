"""Tests of reading aiter's lines in the log of a server: real and made-up ones, several processes, and damaged lines.

The tests also check the list of shapes to tune.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from analyzers.evidence.tables import Settings
from analyzers.recommend.verb import advise, write
from logparse.ingest import ingest
from logparse.libraries.aiter import log as aiter_log
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.kinds.format import Head
from logparse.model import Call, Fact, Message, Record, Solution
from logparse.store import Store
from tests.conftest import CORPUS, SAMPLES, needs_corpus

SAMPLE = SAMPLES / "aiter" / "server.log"


def read(path: Path) -> tuple[Counter[str], list[Record]]:
    outcomes = [aiter_log.read(line) for line in path.read_text().splitlines()]
    return Counter(outcome.unit for outcome in outcomes), [r for outcome in outcomes for r in outcome.records]


def calls(records: list[Record]) -> list[Call]:
    return [record for record in records if isinstance(record, Call)]


@needs_corpus
def test_lines_that_users_posted() -> None:
    units, records = read(CORPUS / "field" / "aiter-log" / "server_log.txt")
    assert units == {"call": 5, "fact": 1, "message": 1}
    assert [call.problem.label for call in calls(records)] == [
        "TN 4096×512×4096 bf16_r",
        "TN 1024×8192×3072 ? block128/block128x128 scales",
        "TN 1024×8192×3072 ? block128/block128x128 scales",
        "TN 512×16×4096 bf16_r",
        "TN 9216×16384×3072 ?",
    ]
    assert Fact("aiter_tables", "/srv/cfg/bf16_tuned_gemm.csv:/srv/cfg/other.csv") in records


def test_calls_are_those_of_the_process_that_the_line_names(store: Store) -> None:
    ingest([str(SAMPLE)], store, run="job")
    found = store.query("select coalesce(pid, 0) as pid, count(*) as n from calls group by all order by all")
    assert found.to_numpy().tolist() == [[0, 4], [4242, 5], [4243, 4]]
    split = store.query("select splits, foreign_lines from sources")
    assert split.iloc[0].tolist() == [0, 2]


def test_a_logged_shape_belongs_to_its_row(store: Store) -> None:
    """A shape in aiter's log is recognised as the same matrix product as the row in aiter's table that is used for it.

    Properties that only the log or only the table states may differ.
    """
    table = SAMPLES / "tables" / "aiter_bf16_tuned_gemm.csv"
    (row, *_) = [line.split(",") for line in table.read_text().splitlines()[1:]]
    ingest([str(table), str(SAMPLE)], store, run="job")
    values = dict(zip(table.read_text().splitlines()[0].split(","), row, strict=True))
    line = (
        f"[aiter] shape is M:{values['M']}, N:{values['N']}, K:{values['K']} dtype='{values['dtype']}'"
        f" otype='{values['outdtype']}' bias={values['bias']}, scaleAB=False, bpreshuffle=False, not found tuned config"
        " in /tmp/bf16_tuned_gemm.csv, will use default config! using torch solution:0"
    )
    (call,) = calls(list(aiter_log.read(line).records))
    assert call.problem.text in set(store.measurements()["problem"])


def test_recommend_writes_what_the_tuners_read(store: Store, tmp_path: Path) -> None:
    ingest([str(SAMPLE)], store, run="job")
    settings = Settings()
    written, _ = write(advise(store, settings), settings, tmp_path)
    files = {one.path.name: one.path.read_text().splitlines() for one in written}
    assert files["bf16_untuned_gemm.csv"] == [
        "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle",
        "1,129280,7168,True,torch.bfloat16,torch.float32,False,False",
        "256,7168,2048,False,torch.bfloat16,torch.bfloat16,False,False",
    ]
    assert files["a8w8_blockscale_untuned_gemm.csv"] == ["M,N,K", "16,1536,7168", "8192,1536,7168"]
    assert files["a8w8_untuned_gemm.csv"] == ["M,N,K,q_dtype_w", "64,9216,3584,torch.int8"]
    assert len([name for name in files if "untuned" in name]) == 3, "of CKGEMM the table is not named"
    head = Head("bf16_untuned_gemm.csv", "\n".join(files["bf16_untuned_gemm.csv"]).encode())
    assert aiter.FORMAT.recognise(head)


MISS = ", not found tuned config in /x/{}, will use default config!"
BF16 = "shape is M:{}, N:2, K:3 dtype='torch.bfloat16'"


def test_every_untuned_shape_is_written() -> None:
    """If aiter's log names shapes without tuned kernels, logparse writes all of them to a file for aiter's tuner."""
    # If only some log lines state a data type, there are two files, because a tuner reads one set of columns per file.
    miss = MISS.format("a8w8_tuned_gemm.csv")
    lines = [f"shape is M:1, N:2, K:3{miss}", f"shape is M:1, N:2, K:3, q_dtype_w:torch.int8{miss}", "no lookup"]
    first, second = aiter_log.write_untuned_shapes(lines).files
    assert (first.name, first.data) == ("a8w8_untuned_gemm.csv", b"M,N,K,q_dtype_w\n1,2,3,torch.int8\n")
    assert (second.name, second.data) == ("a8w8_untuned_gemm-2.csv", b"M,N,K\n1,2,3\n")
    for file in (first, second):
        assert "csrc/ck_gemm_a8w8/gemm_a8w8_tune.py -i {path} -o {folder}/a8w8_tuned_gemm.csv" in file.use
        assert aiter.FORMAT.recognise(Head(file.name, file.data))
    assert aiter_log.write_untuned_shapes([]) == ([], [])


def test_what_an_older_version_does_not_print_is_filled_in() -> None:
    miss = MISS.format("bf16_tuned_gemm.csv")
    lines = [
        f"{BF16.format(1)} otype='torch.float32' bias=True, scaleAB=False, bpreshuffle=True{miss}",
        f"{BF16.format(4)} otype='torch.bfloat16' bias=False, scaleAB=False{miss}",
        f"{BF16.format(8)} bias=False{miss}",
        f"{BF16.format(16)} bias=False scaleAB=False bpreshuffle=False{MISS.format('bf16_gemm.csv')}",
        f"{BF16.format(32)} ...{miss}",
    ]
    made = aiter_log.write_untuned_shapes(lines)
    whole, rest = made.files
    assert whole.data.decode().splitlines() == [
        "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle",
        "1,2,3,True,torch.bfloat16,torch.float32,False,True",
        *(f"{m},2,3,False,torch.bfloat16,torch.bfloat16,False,False" for m in (4, 8, 16)),
    ]
    assert rest.data == b"M,N,K,dtype\n32,2,3,torch.bfloat16\n"
    assert made.notes == []


def test_what_is_left_out_is_counted() -> None:
    lines = [
        f"shape is M:{m}, N:2, K:3{MISS.format(table)}" for m in (1, 2) for table in ("bf16_tuned_gemm.csv", "x.csv")
    ]
    assert aiter_log.write_untuned_shapes([*lines, *lines]) == (
        [],
        [
            "aiter: 2 shapes not written: bf16_tuned_gemm.csv: no line of the log states the operand types of this "
            "shape",
            "aiter: 2 shapes not written: x.csv: logparse knows no tuner for this table of aiter",
        ],
    )


@pytest.mark.parametrize(
    ("table", "tuner"),
    [
        ("bf16_tuned_gemm.csv", "gradlib/gradlib/gemm_tuner.py --input_file {path} --tuned_file {folder}/bf16_tuned"),
        ("a8w8_blockscale_bpreshuffle_tuned_gemm.csv", "gemm_a8w8_blockscale_tune.py --preshuffle -i {path} -o "),
        ("a16wfp4_tuned_gemm.csv", "in <aiter>/csrc/"),
    ],
)
def test_every_table_has_a_tuner_of_its_own(table: str, tuner: str) -> None:
    (file,) = aiter_log.write_untuned_shapes(
        [
            f"shape is M:1, N:2, K:3 dtype='torch.bfloat16' otype='torch.bfloat16' bias=False, scaleAB=False, "
            f"bpreshuffle=False, not found tuned config in /x/{table}, will use default config!"
        ]
    ).files
    assert tuner in file.use


def test_lines_of_aiter_before_0_1_12() -> None:
    of = "dtype={} bias=True, scaleAB=False"
    old = f"[aiter] using hipblaslt solution:192883 for m=64 n=256 k=5120 {of.format('torch.bfloat16')}"
    (call,) = aiter_log.read(old).records
    assert isinstance(call, Call)
    assert (call.problem.label, call.solution) == (
        "TN 256×64×5120 bf16_r BIAS",
        Solution("hipblaslt", "192883", raw="hipblaslt solution:192883"),
    )
    missed = "shape is M:1, N:2, K:3, not found tuned config in /x/bf16_tuned_gemm.csv, will use default config!"
    using = f"using torch solution:0 for M=1 N=2 K=3 {of}"
    lines = [using.format(repr(f"torch.{name}")) for name in ("bfloat16", "float16")]
    (message,) = aiter_log.read(f"[aiter] {lines[0]}").records
    assert message == Message(category=aiter_log.CATEGORY, function=aiter_log.DEFAULT, text=lines[0])
    (file,) = aiter_log.write_untuned_shapes([missed, *lines]).files
    assert file.data.decode().splitlines() == [
        "M,N,K,bias,dtype,outdtype,scaleAB",
        "1,2,3,True,torch.bfloat16,torch.bfloat16,False",
        "1,2,3,True,torch.float16,torch.float16,False",
    ]
    assert aiter_log.write_untuned_shapes([missed]).files == [], "without a type its tuner could not read the row"
