"""Each broken rule of a perf-db is named, MIOpen's own rows have no errors, and dead rows serve no call."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.coverage import coverage
from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import merge
from logparse.errors import InputError
from logparse.formats.miopen import perf_db
from logparse.formats.override_format import OverrideFile
from logparse.ingest import ingest
from logparse.model import ConvProblem, Override, Solution
from logparse.store import Store
from tests.analyzers.build import tables, work
from tests.analyzers.example import F, W
from tests.analyzers.overrides.test_miopen_find_db import TARGET
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.formats.miopen.test_find_db import problems

NAME = "gfx942130.HIP.3_4_0_7c1e0a9d2.udb.txt"
KEY = str(perf_db.key(W, {}))
ITEM = "ConvHipImplicitGemmGroupWrwXdlops:DeviceGroupedConvBwdWeight<64>+1"
ROW = f"{KEY}={ITEM}\n"


def judged(text: str, name: str = NAME, target: dict[str, str] = TARGET) -> OverrideFile:
    return inspect(name, text.encode("utf-8", "surrogatepass"), target, "miopen-perf-db")


def rules(text: str) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in judged(text).notes]


def test_rows_of_batch_normalisations_are_no_convolutions(store: Store, tmp_path: Path) -> None:
    """MIOpen 3.5.1 keeps them in a file of their own: nothing of it is judged, merged or read."""
    path = tmp_path / f"batchnorm_{NAME}"
    path.write_text("2x4x64x14x14x1x1x1x0xNCHWxTrnxFP32x1=BnFwdTrainingSpatial:Variant1-1\n", encoding="utf-8")
    own = inspect(path.name, path.read_bytes(), TARGET)
    assert (own.accepted, len(own.rows), [x.severity for x in own.notes]) == (True, 0, ["info"])
    with pytest.raises(InputError, match="not merged"):
        merge([str(path)] * 2)
    ingest([str(path)], store)
    assert store.frames()["sources"][["foreign_lines", "reject_lines"]].to_numpy().tolist() == [[1, 0]]


def test_what_the_writer_writes_is_clean() -> None:
    solver, _, parameters = ITEM.partition(":")
    one = Override(problem=W, solution=Solution("miopen", solver), target=TARGET, parameters=parameters)
    [made] = perf_db.write([one], TARGET)
    file = inspect(made.name, made.data, TARGET)
    assert (file.accepted, file.notes, made.data.decode()) == (True, (), ROW)
    assert [(row.live, row.key) for row in file.rows] == [(True, KEY)]
    assert [use.state for use in coverage(file, tables(workload=[work(W.text, 2)])).uses] == ["hit"]
    assert [use.state for use in coverage(file, tables(workload=[work(F.text, 2)])).uses] == ["miss"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (ROW.replace("=", "", 1), [(1, "error", "no-key")]),
        (ROW + ROW, [(2, "error", "duplicate")]),
        (ROW.replace("\n", f";{ITEM}\n"), [(1, "warning", "duplicate")]),
        (ROW.replace("\n", ";\n"), []),
        (ROW.replace("NCHW", "NCHV"), [(1, "error", "bad-key")]),
        (ROW.replace("FP16", "FP17"), [(1, "error", "bad-key")]),
        (ROW.replace("xW=", "xQ="), [(1, "error", "bad-key")]),
        (ROW.replace("x256x", "x0256x", 1), [(1, "error", "bad-key")]),
        (ROW.replace("2x256x28x28x1x", "2x256x28x28x2x"), [(1, "error", "bad-key")]),
        ("\ufeff" + ROW, [(1, "error", "bad-key")]),
        (ROW.replace(":", ""), [(1, "error", "item")]),
        (f"{KEY}=ConvBinWinogradRxSf3x2:\n", [(1, "error", "parameters")]),
        (ROW.replace("\n", "\r\n"), [(1, "error", "line-ends")]),
        (ROW.replace("GroupWrw", "GroupFwd"), [(1, "error", "solver-direction")]),
        (ROW.replace("ConvHip", "MyHip"), [(1, "warning", "unknown-solver")]),
        (f"{KEY}=GemmWrwUniversal:1\n", [(1, "info", "not-tunable")]),
        ("\n", [(None, "error", "empty")]),
    ],
)
def test_rules(text: str, wanted: list[tuple[int | None, str, str]]) -> None:
    assert rules(text) == wanted


@pytest.mark.parametrize(
    "name",
    [
        "gfx90a6e.HIP.3_4_0_7c1e0a9d2.udb.txt",
        "gfx942130.HIP.3_4_0_other.udb.txt",
        "gfx942_304.HIP.3_4_0_7c1e0a9d2.udb.txt",
        "gfx942130.HIP.3_4_0.udb.txt",
        "gfx942130.HIP.udb.txt",
        "gfx90a6e.db.txt",
        "mine.udb.txt",
    ],
)
def test_a_name_that_the_target_never_opens(name: str) -> None:
    file = judged(ROW, name)
    assert [(note.rule, note.severity) for note in file.notes] == [("file-name", "error")]
    assert file.rows[0].dead
    assert NAME in file.notes[0].remedy


def test_text_is_read_from_3_2_on() -> None:
    old = TARGET | {"miopen_version": "3.1.0"}
    (note,) = judged(ROW, NAME.replace("3_4_0", "3_1_0"), old).notes
    assert (note.severity, "sqlite" in note.message) == ("error", True)
    assert judged(ROW, "gfx942130.db.txt").ok
    assert [note.rule for note in inspect("gfx942130.db", b"SQLite format 3\0perf_db(", {}).notes] == ["sqlite"]


def test_the_sample() -> None:
    file = inspect("gfx942130.db.txt", (SAMPLES / "miopen/gfx942130.db.txt").read_bytes(), {})
    assert (file.format, file.ok, len(file.rows)) == ("miopen-perf-db", True, 42)
    assert {note.rule for note in file.notes} == set()


EDITS = ("x", "0", "1", "=", ";", ":", "NCHW", "FP16", "W", "\r", " ", "2")


@given(st.lists(problems(), min_size=1, max_size=5), st.data())
def test_a_dead_row_serves_no_call(written: list[ConvProblem], data: st.DataObject) -> None:
    """MIOpen takes the first record of a key and the first item of a solver; lint calls neither of them dead."""
    texts = [perf_db.key(problem, {}) for problem in written]
    lines = [f"{key}=ConvBinWinogradRxSf3x2:{n};ConvAsm1x1U:{n},1" for n, key in enumerate(texts)]
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        at, cut = data.draw(st.integers(0, len(lines[place]))), data.draw(st.integers(0, 3))
        lines[place] = lines[place][:at] + data.draw(st.sampled_from(EDITS)) + lines[place][at + cut :]
    file = judged("\n".join(lines))
    read: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines, start=1):
        key, equals, payload = line.partition("=")
        if not equals or not key or key in read:
            continue
        solvers = read.setdefault(key, {})
        for item in payload.split(";"):
            solver, colon, _ = item.partition(":")
            if colon and solver:
                solvers.setdefault(solver, number)
    dead = {(row.line, row.solution.id) for row in file.rows if row.dead and row.solution}
    live = {(row.line, row.solution.id) for row in file.rows if not row.dead and row.solution}
    for problem in written:
        for solver, number in read.get(str(perf_db.key(problem, {})), {}).items():
            assert (number, solver) in live or (number, solver) not in dead


@given(st.text(alphabet="=:;,-x0123456789NCHWFPgGemrw\r\n", max_size=200))
def test_any_text_is_judged(noise: str) -> None:
    for text in (noise, ROW + noise, KEY + "=" + noise):
        assert all(row.live or row.verdicts.why for row in judged(text).rows)


@needs_corpus
def test_shipped_rows_have_no_errors() -> None:
    data = (CORPUS / "miopen/gfx942130.excerpt.db.txt").read_bytes()
    file = inspect("gfx942130.db.txt", data, {})
    assert file.rows
    assert [note for note in file.notes if note.severity in ("error", "warning")] == []


@pytest.mark.parametrize(
    ("parameters", "crashes"),
    [
        ("32,128,8,32,64,1,16,64,16,0,1", False),
        ("32,128,8,32,64,1,16,64,0,0,1", True),
        ("32,128,8,32,64,1,16,n,16,0,1", True),
        ("32,128,8,32,64,1,0x16,64,16,0,1", True),
        ("32,128,8,32,64,1,16,4294967296,16,0,1", True),
        ("32,128,8,32,n,1,0,64,16,0,1", False),
        ("32,128,8,32,64,1,,64,16,0,1", False),
    ],
)
def test_parameters_by_which_the_library_divides_are_not_0(parameters: str, crashes: bool) -> None:
    file = judged(f"{KEY}=ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm:{parameters}\n")
    assert ["crash"] * crashes == [note.rule for note in file.notes if note.severity == "error"]
    assert file.rows[0].live == (not crashes)
