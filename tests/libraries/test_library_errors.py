"""Tests of messages, such as errors, that rocBLAS, hipBLASLt and MIOpen print without being asked.

Ordinary sentences in a log must not be taken for such messages. The tests also check the remarks on messages.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.compare.verify import signs
from analyzers.evidence.runs import tables_to_analyse
from analyzers.evidence.tables import Settings
from analyzers.findings.completeness import find, missing
from logparse.ingest import ingest
from logparse.libraries.own import library_errors
from logparse.libraries.own.library_errors import ERROR, WARNING, meaning
from logparse.store import Store
from tests.conftest import SAMPLES
from tests.program import run

LOG = SAMPLES / "rocblas" / "errors.log"


def test_the_sample(store: Store) -> None:
    [result] = ingest([str(LOG)], store, run="r")
    assert (result.format, result.units["message"], result.units["reject"]) == ("library-errors", 10, 0)
    assert result.units["foreign"] == 3, "a line of the job, prose, and the mark of a rank"
    rows = store.sql("select category, function, count(*) as n from messages group by all order by all")
    assert list(rows.itertuples(index=False, name=None)) == [
        ("library_error", "MIOpen", 1),
        ("library_error", "hipBLASLt", 3),
        ("library_error", "rocBLAS", 2),
        ("library_note", "rocBLAS", 2),
        ("library_warning", "rocBLAS", 2),
    ]


def test_a_warning_of_pytorch_is_read_behind_its_place(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "x.err"
    log.write_text(
        "/venv/torch/linear.py:125: UserWarning: Attempting to use hipBLASLt on an unsupported architecture! "
        "Overriding blas backend to hipblas (Triggered internally at ../aten/src/ATen/Context.cpp:310.)\n"
    )
    [result] = ingest([str(log)], store, run="r")
    assert (result.format, result.units["message"]) == ("library-errors", 1)
    assert any("PyTorch passes the matrix products of this GPU to rocBLAS" in x for x in missing(store))


def test_status_and_recommend_state_what_they_mean(store: Store) -> None:
    ingest([str(LOG)], store, run="r")
    lines = missing(store)
    assert lines == [x.message for x in find(tables_to_analyse(store, "r"), Settings())]
    [fallback] = [x for x in lines if "falling back" in x]
    assert fallback.startswith("'rocBLAS warning: hipBlasLT failed, falling back to tensile.' (1 line): rocBLAS ran")
    [kernels] = [x for x in lines if "Cannot read" in x]
    assert "(2 lines in 2 different texts): the library does not find its kernels for this GPU" in kernels
    assert [x for x in lines if x.endswith("(1 line)")], "a text of unknown meaning is stated alone"


def test_recommend_tells_the_errors_of_a_run_that_holds_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("ingest", str(LOG), "--run", "r")
    first, *told = run("recommend").stdout.splitlines()
    assert first.endswith("the run holds no calls and no times of matrix products or convolutions")
    assert "hipBLASLt found no kernel for matrix products" in " ".join(" ".join(told).split())
    assert told[-1].endswith("more: `logparse status`")


LOGGED = """\
MIOpen(HIP): Warning [IsEnoughWorkspace] [GetSolutionsFallback WTI] Solver <GemmFwdRest>, workspace required: 463872, provided ptr: 0 size: 0
MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, workspace required: 96, provided ptr: 0 size: 0
MIOpen(HIP): Error [BuildHip] HIPRTC status = HIPRTC_ERROR_COMPILATION (6), source file: naive_conv.cpp
MIOpen(HIP): Warning [SetUserDb] some warning of no known meaning
MIOpen(HIP): Warning [ParseAndLoadDb] File is unreadable: "/opt/rocm/share/miopen/db/gfx1201_32.HIP.fdb.txt"
[2026-05-05 12:00:00][HIPBLASLT][7][Error][validateMatmulArgs] invalid args=datatype matA=R_16F
[2026-05-05 12:00:01][HIPBLASLT][7][Error][validateMatmulArgs] invalid args=datatype matA=R_32F
"""  # noqa: E501 - lines as they are printed


def test_errors_and_known_warnings_of_logs_are_stated(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(LOGGED)
    ingest([str(log)], store, run="r")
    lines = [x for x in missing(store) if "mask" not in x]
    assert len(lines) == 4
    assert any("could not compile a kernel" in x for x in lines)
    assert any("has no database of this kind for this GPU" in x for x in lines)
    assert lines[1] == "'[validateMatmulArgs] invalid args=datatype matA=R_16F' (2 lines in 2 different texts)"
    assert any(
        "(2 lines in 2 different texts): MIOpen skipped solvers that need more workspace" in x for x in lines[2:]
    ), "warnings come last"


def test_a_file_that_a_library_refused_is_stated(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "reading tuning results from tunableop_results0.csv\n"
        "results validator check failed\n"
        "[2026-05-05 12:00:00][HIPBLASLT][7][Info][f] The hipBLASLt git version and the override file git version are "
        "not the same.\n"
    )
    ingest([str(log)], store, run="r")
    lines = "\n".join(missing(store))
    assert "(1 line): PyTorch rejected a TunableOp file" in lines
    assert "(1 line): hipBLASLt used no row of its tuning file" in lines


def test_verify_reports_rows_that_rocblas_did_not_take(store: Store) -> None:
    ingest([str(LOG)], store, run="r")
    assert list(signs(tables_to_analyse(store, "r"))) == [
        "rocBLAS ignored rows of the override table, or found no row in the table (1 times)"
    ]


@pytest.mark.parametrize(
    ("text", "category", "means"),
    [
        ("hipBLASLt error: Heuristic Fetch Failed!", ERROR, "found no kernel"),
        ("rocBLAS error: hipBLASLt default heuristic fetch failed!", ERROR, "found no kernel"),
        ("hipBLASLt error: Cannot find specified solution index!", ERROR, "made for another build"),
        ("hipBLASLt error: algo not supported.", ERROR, "This happens when TunableOp searches"),
        ("hipblaslt: algo not supported: insufficient workspace.", ERROR, "less workspace"),
        (
            "Attempting to use hipBLASLt on an unsupported architecture! Overriding blas",
            WARNING,
            "to rocBLAS and not to hipBLASLt",
        ),
        ("rocBLAS warning: No Tensile solution found for XF32, fall back to FP32", WARNING, "ran them in FP32"),
        (
            "rocBLAS error: No Tensile solution found, but exception thrown for { a_type }",
            ERROR,
            "a matrix product failed",
        ),
        ("rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek", ERROR, "kernels"),
        ("rocblaslt warning: No paths matched /opt/rocm/lib/*gfx906*co. Make sure that", WARNING, "kernels"),
        ("MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:304: Code object build failed.", ERROR, "compile"),
        ("MIOpen Error: sqlite_db.cpp:224: Internal error while accessing SQLite database", ERROR, "MIOPEN_USER_DB"),
        ("MIOpen Error: ../src/ocl/tensorocl.cpp:1404: ", ERROR, None),
    ],
)
def test_texts_of_the_sources(text: str, category: str, means: str | None) -> None:
    [message] = library_errors.read(text).records
    assert getattr(message, "category") == category  # noqa: B009 - a record of any kind
    why = meaning(text)
    assert (why is None) if means is None else (why is not None and means in why)


@pytest.mark.parametrize(
    ("line", "means"),
    [
        (
            "MIOpen Error: C:\\src\\sqlite_db.cpp:298: SQLite prepare error: no such column: mode",
            "MIOpen found a database of another version",
        ),
        (
            "MIOpen Error: /src/sqlite_db.cpp:298: SQLite: no such table: config",
            "MIOpen found a database of another version",
        ),
        ("MIOpen Error: /src/sqlite_db.cpp:220: SQLite: unable to open database file", "must name folders on a local"),
        ("MIOpen(HIP): Warning [SQLiteBase] database is locked: /home/u/.config/miopen/a.ukdb", "a folder of its own"),
        ("MIOpen Error: /src/sqlite_db.cpp:220: database disk image is malformed", "a damaged database"),
        (
            "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1030_36.kdb Performance may degrade. "
            "Please follow instructions to install: https://github.com/ROCm/MIOpen#installing-miopen-kernels-package",
            "MIOpen compiles each kernel at its first use",
        ),
        (
            "MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmBwdRest>, workspace required: 96, "
            "provided ptr: 0 size: 0",
            "which may be far slower",
        ),
    ],
)
def test_messages_of_miopen_and_what_they_mean(line: str, means: str, store: Store, tmp_path: Path) -> None:
    (tmp_path / "job.err").write_text(line + "\n", encoding="utf-8")
    ingest([str(tmp_path / "job.err")], store, run="r")
    (remark,) = missing(store)
    assert means in remark
    assert "no failure" not in remark
