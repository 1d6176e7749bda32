"""Tests of ``logparse lint`` on perf-dbs, the files in which MIOpen stores tuned parameters of its solvers.

``lint`` must name each broken rule, and report no error for rows that MIOpen wrote.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import merge
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.libraries.miopen import perf_db
from logparse.store import Store
from tests.analyzers.example import W
from tests.analyzers.overrides.test_miopen_find_db import TARGET
from tests.conftest import CORPUS, SAMPLES, needs_corpus

NAME = "gfx942130.HIP.3_4_0_7c1e0a9d2.udb.txt"
KEY = str(perf_db.key(W, {}))
ITEM = "ConvHipImplicitGemmGroupWrwXdlops:DeviceGroupedConvBwdWeight<64>+1"
ROW = f"{KEY}={ITEM}\n"


def inspect_text(text: str, name: str = NAME, target: dict[str, str] = TARGET) -> OverrideFile:
    return inspect(name, text.encode("utf-8", "surrogatepass"), target, "miopen-perf-db")


def rules(text: str) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.severity, note.rule) for note in inspect_text(text).notes]


def test_files_of_batch_normalisations_are_not_used(store: Store, tmp_path: Path) -> None:
    """logparse recognises a perf-db (MIOpen's file of tuned parameters) for batch normalisations, but does not use it.

    The file is not checked, merged or read. MIOpen 3.5.1 keeps the lines of batch normalisations in a file of their
    own.
    """
    path = tmp_path / f"batchnorm_{NAME}"
    path.write_text("2x4x64x14x14x1x1x1x0xNCHWxTrnxFP32x1=BnFwdTrainingSpatial:Variant1-1\n", encoding="utf-8")
    own = inspect(path.name, path.read_bytes(), TARGET)
    assert (own.accepted, len(own.rows), [x.severity for x in own.notes]) == (True, 0, ["info"])
    with pytest.raises(InputError, match="cannot be merged"):
        merge([str(path)] * 2)
    ingest([str(path)], store)
    assert store.frames()["sources"][["foreign_lines", "reject_lines"]].to_numpy().tolist() == [[1, 0]]


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
        (ROW.replace("ConvHip", "MyHip"), [(1, "info", "unknown-solver")]),
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
        "mine.udb.txt",
    ],
)
def test_a_name_that_the_target_never_opens(name: str) -> None:
    file = inspect_text(ROW, name)
    assert [(note.rule, note.severity) for note in file.notes] == [("file-name", "error")]
    assert file.rows[0].dead
    assert NAME in file.notes[0].remedy


def test_text_is_read_from_3_2_on() -> None:
    old = TARGET | {"miopen_version": "3.1.0"}
    (note,) = inspect_text(ROW, NAME.replace("3_4_0", "3_1_0"), old).notes
    assert (note.severity, "sqlite" in note.message) == ("error", True)
    assert inspect_text(ROW, "gfx942130.db.txt").ok


def test_the_sample() -> None:
    file = inspect("gfx942130.db.txt", (SAMPLES / "miopen/gfx942130.db.txt").read_bytes(), {})
    assert (file.format, file.ok, len(file.rows)) == ("miopen-perf-db", True, 42)
    assert {note.rule for note in file.notes} == set()


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
    file = inspect_text(f"{KEY}=ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm:{parameters}\n")
    assert ["crash"] * crashes == [note.rule for note in file.notes if note.severity == "error"]
    assert file.rows[0].live == (not crashes)


@pytest.mark.parametrize(
    ("solver", "parameters", "version", "warned"),
    [
        ("ConvHipImplicitGemmGroupWrwXdlops", "DeviceGroupedConvBwdWeight<64>+4", "3.5.0", True),
        ("ConvHipImplicitGemmGroupWrwXdlops", "DeviceGroupedConvBwdWeight<64>+4", "3.4.0", True),
        ("ConvHipImplicitGemmGroupWrwXdlops", "DeviceGroupedConvBwdWeight<64>+1", "3.5.0", False),
        ("ConvHipImplicitGemmGroupWrwXdlops", "DeviceGroupedConvBwdWeight<64>+4", "3.5.1", False),
        ("ConvHipImplicitGemmGroupWrwXdlops", "DeviceGroupedConvBwdWeight<64>+4", "", False),
        ("ConvBinWinogradRxSf3x2", "257", "3.5.0", False),
    ],
)
def test_split_k_solvers_with_too_little_workspace(solver: str, parameters: str, version: str, warned: bool) -> None:
    """``lint`` warns of solvers that split the sum along K, because MIOpen gives them too little workspace.

    This is true up to MIOpen 3.5.0. If the version is unknown, there is no warning.
    """
    name = f"gfx942130.HIP.{(version or '3.4.0').replace('.', '_')}_7c1e0a9d2.udb.txt"
    target = {"miopen_version": version} if version else {}
    file = inspect(name, f"{KEY}={solver}:{parameters}\n".encode(), target, "miopen-perf-db")
    assert ("split-k" in [x.rule for x in file.notes]) is warned
