"""Each broken rule of aiter's table is named, and lint agrees with the reader itself: pandas, as aiter calls it."""

from __future__ import annotations

import io
from collections.abc import Hashable, Mapping
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.proof.lint import inspect, rules_of
from analyzers.proof.override_file import OverrideFile
from analyzers.proof.rules_aiter import padded
from logparse.errors import InputError
from logparse.formats.tables import aiter
from logparse.model import GemmProblem, Override
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.tables.test_aiter import TARGET, written

HEAD = ",".join(aiter.COLUMNS) + "\n"
KEY = "gfx942,304,64,256,5120,False,torch.bfloat16,torch.bfloat16,False,False"
ROW = f"{KEY},hipblaslt,192883,0,10.91,Cijk,0.0,15.4,306.4\n"
ASM = f"{KEY.replace(',64,', ',128,')},asm,5,13,7.9,_ZN5aiter,0.0,21.2,417.9\n"


def judged(text: str, target: dict[str, str] = TARGET) -> OverrideFile:
    return inspect("bf16_tuned_gemm.csv", text.encode("utf-8", "surrogatepass"), target, "aiter")


def rules(text: str) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in judged(text).notes if note.rule != "build"]


@given(st.lists(written, min_size=1, max_size=5, unique_by=lambda o: aiter.key(o.problem, TARGET)))
def test_what_the_writer_writes_is_clean(wanted: list[Override]) -> None:
    (file,) = aiter.write(wanted, TARGET)
    found = inspect(file.name, file.data, TARGET)
    assert (found.notes, [row.live for row in found.rows]) == ((), [True] * len(wanted))
    assert {row.key for row in found.rows} == {aiter.key(o.problem, TARGET) for o in wanted}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HEAD + ROW + ASM, []),
        ((HEAD + ROW).replace("\n", "\r\n"), []),
        ("\ufeff" + HEAD + "\n" + ROW, []),
        (HEAD + ROW.replace(",0.0,15.4,306.4", ""), [(2, "warning", "values")]),
        (HEAD + ROW + ASM.replace("\n", ",1\n"), [(3, "error", "values")]),
        (HEAD + "," + ROW, [(2, "warning", "values")]),
        (HEAD.replace("gfx,", "") + ROW.replace("gfx942,", ""), [(1, "warning", "columns")]),
        (HEAD.replace("solidx", "index") + ROW, [(1, "error", "columns")]),
        (HEAD + ROW.replace(",64,", ",x,"), [(2, "error", "type")]),
        (HEAD + ROW + ASM.replace(",128,", ",x,"), [(2, "error", "type"), (3, "error", "type")]),
        (HEAD + ROW.replace(",False,torch", ", False,torch"), [(2, "error", "type")]),
        (HEAD + ROW.replace(",64,", ", 64,"), []),
        (HEAD + ROW.replace(",64,", ",64.0,"), []),
        (HEAD + ROW.replace(",64,", ",64.5,"), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("False,torch", "0,torch"), []),
        (HEAD + ROW.replace(",torch.bfloat16", ", torch.bfloat16", 1), [(2, "error", "no-call")]),
        (HEAD + ROW.replace("gfx942", "gfx950"), [(2, "error", "device")]),
        (HEAD + ROW.replace(",304,", ",80,"), [(2, "error", "device")]),
        (HEAD + ROW + ROW, [(3, "info", "duplicate")]),
        (HEAD + ROW + ROW.replace("192883", "7"), [(3, "error", "duplicate")]),
        (HEAD + ROW.replace("hipblaslt", "rocblas"), [(2, "error", "backend")]),
        (HEAD + ROW.replace("192883", "1.5"), [(2, "error", "index")]),
        (HEAD + ASM.replace("_ZN5aiter", ""), [(2, "error", "kernel-name")]),
        (HEAD + ROW.replace("192883", "-1"), [(2, "info", "heuristic")]),
        (HEAD + ROW.replace("10.91", "inf"), [(2, "warning", "time")]),
        (HEAD, [(None, "error", "empty")]),
    ],
)
def test_rules(text: str, wanted: list[tuple[int | None, str, str]]) -> None:
    assert rules(text) == wanted


def test_samples() -> None:
    file = inspect("x.csv", (SAMPLES / "tables/aiter_bf16_tuned_gemm.csv").read_bytes(), TARGET)
    assert (file.format, file.accepted, file.facts) == ("aiter", None, {"arch": "gfx942", "cu_count": "304"})
    old = inspect("x.csv", (SAMPLES / "tables/aiter_old_tuned_gemm.csv").read_bytes(), {})
    assert {note.rule for note in old.notes} >= {"columns", "backend"}
    with pytest.raises(InputError):
        rules_of("a8w8.csv", (SAMPLES / "tables/a8w8_bpreshuffle_tuned_gemm.csv").read_bytes())


# ------------------------------------------------------------------------------------------------- aiter's own reader

FLAGS = ("False", "True")


def read(text: str) -> Mapping[Hashable, object] | None:
    """The dictionary that aiter looks calls up in; None where reading raises."""
    try:
        frame = pd.read_csv(io.StringIO(text)).drop_duplicates()
        out = frame.set_index(list(aiter.KEY_COLUMNS)).to_dict("index")
    except (KeyError, ValueError, pd.errors.ParserError):
        return None
    return out


def asked(key: str) -> tuple[object, ...]:
    """A call's key with the types that aiter's caller gives."""
    gfx, cu, m, n, k, bias, dtype, out, scaled, shuffled = key.split(",")
    flags = [FLAGS.index(x) == 1 for x in (bias, scaled, shuffled)]
    return (gfx, int(cu), int(m), int(n), int(k), flags[0], dtype, out, flags[1], flags[2])


EDITS = (",", " ", "0", "1", ".0", "x", "True", "torch.float16", "gfx950", "\r", "-", "nan", "304", "e2")


@given(st.lists(written, min_size=1, max_size=4), st.data())
def test_a_dead_row_serves_no_call(entries: list[Override], data: st.DataObject) -> None:
    """Damaged anywhere: where pandas hands aiter a row for a call, lint does not call that row dead."""
    lines = [HEAD.strip()]
    for number, override in enumerate(entries):
        lines.append(aiter.write([override], TARGET)[0].data.decode().splitlines()[1] + f"{number}")
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(1, len(lines) - 1))
        at, cut = data.draw(st.integers(0, len(lines[place]))), data.draw(st.integers(0, 3))
        lines[place] = lines[place][:at] + data.draw(st.sampled_from(EDITS)) + lines[place][at + cut :]
    text = "\n".join(lines) + "\n"
    file, known = judged(text), read(text)
    if known is None:
        return
    live = {row.key for row in file.rows if not row.dead}
    for override in entries:
        key = aiter.key(override.problem, TARGET)
        assert key is not None
        if asked(key) in known:
            assert key in live, file.notes


@given(st.text(alphabet='gfx,942 0123456789.-TrueFals"\r\n', max_size=300))
def test_any_text_is_judged(noise: str) -> None:
    for text in (HEAD + noise, HEAD + ROW + noise, noise):
        assert all(row.live or row.verdicts.why for row in judged(text).rows)


@pytest.mark.parametrize(
    ("m", "tries"),
    [("5", ["8", "16"]), ("50", ["64"]), ("64", []), ("300", ["320", "512"]), ("1030", ["1088", "2048"])],
)
def test_padding(m: str, tries: list[str]) -> None:
    key = KEY.replace(",64,", f",{m},")
    assert [x.split(",")[2] for x in padded(key)] == tries
    assert [x.split(",")[2] for x in padded(KEY.replace(",64,256,", ",9000,8192,"))] == ["9088", "8192", "16384"]


def test_problem_of_a_row() -> None:
    (row,) = judged(HEAD + ROW).rows
    assert isinstance(row.problem, GemmProblem)
    assert (row.problem.label, row.time_us, row.solution) == ("TN 256×64×5120 bf16_r", 10.91, row.solution)
    assert row.key == aiter.key(row.problem, TARGET) == KEY


@needs_corpus
@pytest.mark.parametrize("name", ["bf16_tuned_gemm.head.csv", "bf16_tuned_gemm_v9_f15277abe9.head.csv"])
def test_tables_of_aiter_have_no_errors(name: str) -> None:
    file = inspect(name, Path(CORPUS / "tunableop/aiter" / name).read_bytes(), {})
    assert file.rows
    assert [note for note in file.notes if note.severity in ("error", "warning")] == []
