"""Tests of the cache file in which TransformerEngine keeps the hipBLASLt kernels that it chose.

The tests check which lines a library build uses, for which calls it uses them, and which files it refuses.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.overrides.look_up import look_up
from analyzers.overrides.write import make
from logparse.errors import EmissionError
from logparse.libraries.transformer_engine import cache
from logparse.libraries.transformer_engine.cache_rules import OVERRIDE_FORMAT as TE
from logparse.model import GemmProblem, Override, Solution
from tests.analyzers.example import gemm
from tests.conftest import CORPUS, SAMPLES

SAMPLE = (SAMPLES / "tables/te_hipblaslt_cache.csv").read_bytes()
TARGET = {"arch": "gfx942:sramecc+:xnack-", cache.COLUMNS: "20"}
HEADER, ROW = SAMPLE.decode().splitlines()[:2]
REAL = CORPUS / "serving/primus_te_hipblaslt_algo-v26.3.csv"


def find_broken_rules(*lines: str, header: str = HEADER, **target: str) -> dict[int | None, str]:
    """Return what ``logparse lint`` says about a cache file with these lines: {line number: name of the broken rule}.

    Remarks of the lowest severity, "info", are left out.
    """
    file = TE.inspect("x.csv", "\n".join([header, *lines, ""]).encode(), TARGET | target)
    return {x.line: x.rule for x in file.notes if x.severity != "info"}


def changed(**cells: str) -> str:
    """Return a line of the file in which Transformer Engine keeps its fastest kernels, with some columns changed."""
    return ",".join(cells.get(name, x) for name, x in zip(HEADER.split(","), ROW.split(","), strict=True))


def test_of_the_sample_the_job_ends_at_the_unknown_word() -> None:
    file = TE.inspect("x.csv", SAMPLE, TARGET)
    assert file.accepted is False
    assert {(x.line, x.rule) for x in file.notes if x.severity == "error"} == {(11, "words"), (10, "workspace")}


def test_what_a_build_keeps() -> None:
    whole = SAMPLE.decode().splitlines()
    file = TE.inspect("x.csv", "\n".join(whole[:-1]).encode(), TARGET)
    assert file.accepted is True
    kept = {row.line: (row.verdicts.why.partition(":")[0] if row.dead else "") for row in file.rows}
    assert kept == {
        2: "",
        3: "",
        4: "",
        5: "",
        7: "",
        8: "line 2 has the same key and an overlapping range of workspaces, so the first row is kept",
        9: "the row's dev_cap 905 (gfx950) differs from the target's 904, so TransformerEngine ignores the row",
        10: "the row's ws_min 67,108,864 is above its ws_max 0, so TransformerEngine drops the row",
    }


@pytest.mark.parametrize(
    ("cells", "rule"),
    [
        ({"epi": "relu"}, "words"),
        ({"trans_a": "C"}, "words"),
        ({"type_a": "int8"}, "words"),
        ({"comp": "f16"}, "words"),
        ({"m": ""}, "words"),
        ({"m": "9" * 30}, "words"),
        ({"algo_id": "\x1c34"}, "words"),  # white space to Python's `re`, but neither to C nor to `int`
        ({"scale": "bfloat16"}, "scale"),
        ({"ws_min": "9", "ws_max": "8"}, "workspace"),
        ({"aidx": "-1"}, "index"),
        ({"algo_id": "0"}, "solution"),
        ({"algo_id": str(1 << 40)}, "solution"),
        ({"dev_cap": "905"}, "device"),
    ],
)
def test_each_rule(cells: dict[str, str], rule: str) -> None:
    assert find_broken_rules(ROW) == {}
    assert find_broken_rules(changed(**cells)) == {2: rule}


def test_an_unknown_word_in_a_row_of_another_device_is_never_read() -> None:
    assert find_broken_rules(ROW, changed(dev_cap="905", epi="relu")) == {}
    assert find_broken_rules(ROW, changed(epi="relu")) == {3: "words"}


@pytest.mark.parametrize("header", ["\ufeff" + HEADER, HEADER + "\r", HEADER + ",x", HEADER.replace("epi", "epilogue")])
def test_a_header_that_differs_by_a_letter_refuses_the_file(header: str) -> None:
    assert find_broken_rules(ROW, header=header)[1] == "header"


def test_a_target_of_other_columns_refuses_the_file() -> None:
    assert find_broken_rules(ROW, **{cache.COLUMNS: "22"}) == {1: "header"}


def test_a_row_with_too_few_values() -> None:
    assert find_broken_rules(ROW, changed(m="8").rpartition(",")[0])[3] == "words"


def test_a_call_finds_the_row_of_its_key_alone() -> None:
    call = gemm(64, lda=4096, ldb=4096, ldc=64, ldd=64, bias=False, activation="none", gradient=False, aux=False)
    assert isinstance(call, GemmProblem)
    name = cache.key(call, TARGET)
    assert name is not None
    (file,) = make(
        cache.WRITER, [Override(problem=call, solution=Solution("hipblaslt", "7"), target=TARGET)], TARGET
    ).files
    reading = TE.reader(file.name, file.data, TARGET)
    assert look_up(TE, reading, call).state == "hit"
    biased = {"bias": True, "bias_type": "bf16_r"}
    for other in ({"m": 65}, {"lda": 8192}, {"ldd": 128}, {"trans_a": "N"}, {"a_type": "f16_r"}, biased):
        assert look_up(TE, reading, replace(call, **other)).state == "miss", other  # type: ignore[arg-type]
    assert look_up(TE, reading, replace(call, beta="nonzero")).state == "hit", "β is no part of the key"
    assert cache.key(replace(call, batch_count=2), TARGET) is None


def test_the_type_of_an_auxiliary_matrix_counts_in_files_that_state_it() -> None:
    call = replace(
        gemm(64, lda=4096, ldb=4096, ldc=64, ldd=64, activation="gelu", gradient=False, bias=False),
        aux=True,
        aux_type="f16_r",
    )
    for columns, other in (("20", "hit"), ("22", "miss")):
        target = TARGET | {cache.COLUMNS: columns}
        override = Override(problem=call, solution=Solution("hipblaslt", "7"), target=target)
        (file,) = make(cache.WRITER, [override], target).files
        reading = TE.reader(file.name, file.data, target)
        assert look_up(TE, reading, call).state == "hit"
        assert look_up(TE, reading, replace(call, aux_type="bf16_r")).state == other


def test_nothing_is_written_for_a_target_without_transformer_engine() -> None:
    override = Override(problem=gemm(), solution=Solution("hipblaslt", "7"), target={"arch": "gfx942"})
    assert not cache.WRITER.accepts(override)
    with pytest.raises(EmissionError, match="transformer_engine_columns"):
        cache.WRITER.write([override], {"arch": "gfx942"})


@pytest.mark.skipif(not REAL.is_file(), reason="the corpus is not here")
def test_a_real_file_serves_the_device_that_it_is_of() -> None:
    for arch, live in (("gfx950", 9), ("gfx942", 0)):
        reading = TE.reader(REAL.name, REAL.read_bytes(), {"arch": arch, cache.COLUMNS: "22"})
        assert sum(row.live for row in reading.rows) == live
        assert reading.accepted is True


def test_its_log_lines_say_whether_it_was_loaded() -> None:
    (record,) = cache.read_line("Incorrect algo storage legend. Expected dev_cap,m,n").records
    assert any(sign in getattr(record, "text", "") for sign, _ in TE.signs)
