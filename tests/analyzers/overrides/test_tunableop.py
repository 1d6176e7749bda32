"""Tests of TunableOp results files: what ``logparse lint`` says about them, and what PyTorch would read.

What PyTorch reads was observed with torch 2.11 on a GPU.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from analyzers.overrides.lint import inspect
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.libraries.tunableop import results
from logparse.libraries.tunableop.results_rules import OVERRIDE_FORMAT
from tests.conftest import CORPUS, SAMPLES, needs_corpus

HEAD = "Validator,PT_VERSION,2.11.0\n"
KEY = "GemmTunableOp_BFloat16_TN,tn_96_48_64_ld_64_64_96"
ROW = f"{KEY},Default,0.01\n"
CUDA = {"validator:PT_VERSION": "2.11.0", "pytorch_version": "2.11.0", "backend": "CUDA"}
ROCM = {
    "validator:PT_VERSION": "2.9.1",
    "validator:HIP_VERSION": "701",
    "validator:HIPBLASLT_VERSION": "100000-3b3d59eb",
    "validator:GCN_ARCH_NAME": "gfx942:sramecc+:xnack-",
    "validator:ROCBLAS_VERSION": "5.0.0.3b3d59eb",
    "pytorch_version": "2.9.1",
    "backend": "HIP",
}

CUBLASLT = "Gemm_Cublaslt_id_66_tile_2_stages_3_splitk_1_red_0_swizzle_0_custom_4"

# name, file, accepted, loaded (solution, ms) of the key, rules that lint names
TRIED: tuple[tuple[str, str | bytes, bool, tuple[str, float] | None, set[str]], ...] = (
    ("ok", HEAD + ROW, True, ("Default", 0.01), set()),
    ("three fields", HEAD + f"{KEY},Default\n", True, ("Default", 0.0), set()),
    ("two fields", HEAD + f"{KEY}\n", True, None, {"few-fields"}),
    ("five fields", HEAD + f"{KEY},Default,0.01,x\n", True, ("Default", 0.01), set()),
    ("a comment", HEAD + "# text\n" + ROW, True, ("Default", 0.01), {"few-fields"}),
    ("a lone comma", HEAD + ",\n" + ROW, True, ("Default", 0.01), {"few-fields"}),
    ("a header row", HEAD + "op,params,solution,time\n" + ROW, True, ("Default", 0.01), {"no-op"}),
    ("blank lines", HEAD + "\n\n" + ROW, True, ("Default", 0.01), set()),
    ("no final newline", HEAD + ROW[:-1], True, ("Default", 0.01), {"no-final-newline"}),
    ("no validators", ROW, False, None, {"validators"}),
    ("empty file", "", False, None, {"empty"}),
    ("wrong PT_VERSION", "Validator,PT_VERSION,2.9.1\n" + ROW, False, None, {"validators"}),
    ("extra validator", HEAD + "Validator,ROCM_VERSION,6\n" + ROW, False, None, {"validators"}),
    ("validator twice, wrong first", "Validator,PT_VERSION,1\n" + HEAD + ROW, True, ("Default", 0.01), set()),
    ("validator twice, wrong last", HEAD + "Validator,PT_VERSION,1\n" + ROW, False, None, {"validators"}),
    ("validator after the rows", ROW + HEAD, True, ("Default", 0.01), set()),
    ("validator without a value", HEAD + "Validator,PT_VERSION\n" + ROW, True, ("Default", 0.01), {"few-fields"}),
    ("blank before the value", "Validator,PT_VERSION, 2.11.0\n" + ROW, False, None, {"validators"}),
    ("blank behind the value", "Validator,PT_VERSION,2.11.0 \n" + ROW, False, None, {"validators"}),
    ("CRLF", (HEAD + ROW).replace("\n", "\r\n"), False, None, {"validators"}),
    ("CRLF on a row", HEAD + ROW.replace("\n", "\r\n"), True, ("Default", 0.01), set()),
    ("CRLF on three fields", HEAD + f"{KEY},Default\r\n", True, ("Default\r", 0.0), {"unknown-solution"}),
    ("BOM", b"\xef\xbb\xbf" + (HEAD + ROW).encode(), False, None, {"byte-order-mark", "validators", "no-op"}),
    (
        "BOM and a second PT_VERSION",
        b"\xef\xbb\xbf" + (HEAD + HEAD + ROW).encode(),
        True,
        ("Default", 0.01),
        {"byte-order-mark", "no-op"},
    ),
    ("blank before the solution", HEAD + f"{KEY}, Default,0.01\n", True, (" Default", 0.01), {"unknown-solution"}),
    ("unknown solution", HEAD + f"{KEY},Gemm_Hipblaslt_42,0.01\n", True, ("Gemm_Hipblaslt_42", 0.01), {"backend"}),
    ("empty solution", HEAD + f"{KEY},,0.01\n", True, ("", 0.01), {"unknown-solution"}),
    (
        "first row wins",
        HEAD + f"{KEY},Gemm_Hipblaslt_1,0.5\n" + ROW,
        True,
        ("Gemm_Hipblaslt_1", 0.5),
        {"conflict", "backend"},
    ),
    ("quoted", HEAD + '"' + ROW.replace(",", '","', 2), True, None, {"bad-key"}),
    ("lower case", HEAD + ROW.lower(), True, None, {"bad-key"}),
    ("inf", HEAD + f"{KEY},Default,inf\n", True, ("Default", math.inf), {"every-candidate-failed"}),
    ("nan", HEAD + f"{KEY},Default,nan\n", True, ("Default", math.nan), set()),
    ("negative", HEAD + f"{KEY},Default,-1\n", True, ("Default", -1.0), set()),
    ("no number", HEAD + f"{KEY},Default,fast\n", True, ("Default", 0.0), set()),
    ("no time", HEAD + f"{KEY},Default,\n", True, ("Default", 0.0), set()),
    ("glued", HEAD + ROW[:-1] + ROW.replace("96_48", "97_48"), True, ("Default", 0.01), {"glued"}),
)


def data_of(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def inspect_text(data: str | bytes, target: dict[str, str], name: str = "tunableop_results0.csv") -> OverrideFile:
    return inspect(name, data_of(data), target, "tunableop-results")


def test_tried_on_a_gpu() -> None:
    for case, text, accepted, loaded, rules in TRIED:
        reading = OVERRIDE_FORMAT.reader("tunableop_results0.csv", data_of(text), CUDA)
        assert reading.accepted is accepted, case
        kept = [mine for mine, row in zip(reading.parsed.entries, reading.rows, strict=True) if row.kept]
        found = [(row.name, row.time_ms) for row in kept if row.key == KEY]
        assert str(found) == str([loaded] if loaded else []), case  # as texts, because nan is not equal to itself
        file = inspect_text(text, CUDA)
        assert {note.rule for note in file.notes} == rules, case
        hit = any(row.live and row.key == KEY for row in file.rows)
        assert hit is bool(loaded and loaded[0] == "Default"), case


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5Gemm", 0.5), (" 1e2", 100.0), ("1e999", math.inf), ("-.5", -0.5), ("e5", 0.0), ("", 0.0)],
)
def test_a_time_is_read_as_far_as_it_is_a_number(text: str, value: float) -> None:
    row = results.row(f"{KEY},Default,{text}", 1)
    assert row is not None
    assert row.time_ms == value


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("GemmTunableOp_Half_TN,tn_96_48_64,Default,1", "key-dialect"),
        ("GemmTunableOp_Half_TN,tn_096_48_64_ld_64_64_96,Default,1", "key-spelling"),
        ("GemmTunableOp_Half_TN,tn_96_*_64_ld_64_64_96,Default,1", "bad-key"),
        ("GemmTunableOp_Half_TN,tn_96_48_64_ld_64_64_96,Gemm_Hipblaslt_TN_5,1", "solution-dialect"),
        ("GemmAndBiasTunableOp_Half_TN,tn_96_48_64_ld_64_64_96,Gemm_Rocblas_5,1", "no-candidate"),
        (f"GemmTunableOp_Half_TN,tn_96_48_64_ld_64_64_96,{CUBLASLT},1", "backend"),
        ("GemmTunableOp_Half_TN,tn_96_48_64_ld_64_64_96,1219,1", "unknown-solution"),
    ],
)  # fmt: skip
def test_rows_of_another_pytorch(row: str, rule: str) -> None:
    head = "".join(f"Validator,{k[10:]},{v}\n" for k, v in ROCM.items() if k.startswith("validator:"))
    file = inspect_text(f"{head}{row}\n", ROCM)
    assert file.accepted
    assert [(note.line, note.rule) for note in file.notes] == [(6, rule)]
    assert not file.rows[0].live
    assert file.rows[0].verdicts.why


VALIDATORS = "".join(f"Validator,{k[10:]},{v}\n" for k, v in ROCM.items() if k.startswith("validator:"))
OLD = (
    "Validator,PT_VERSION,2.6.0\nValidator,ROCM_VERSION,6.2.0.0-66-98a50c5\n"
    "Validator,HIPBLASLT_VERSION,800-50015815\nValidator,GCN_ARCH_NAME,gfx90a:sramecc+:xnack-\n"
    "Validator,ROCBLAS_VERSION,4.2.0-50015815\n"
)


@pytest.mark.parametrize(
    ("head", "stated", "why"),
    [
        (
            VALIDATORS,
            {"arch": "gfx950"},
            "GCN_ARCH_NAME is 'gfx942:sramecc+:xnack-', but the target's arch is 'gfx950'",
        ),
        (VALIDATORS, {"arch": "gfx942:sramecc+:xnack+"}, "the target's arch is 'gfx942:sramecc+:xnack+'"),
        (
            VALIDATORS,
            {"pytorch_version": "2.10.0"},
            "PT_VERSION is '2.9.1', but the target's pytorch_version is '2.10.0'",
        ),
        (VALIDATORS, {"hip_version": "7.2.53211"}, "HIP_VERSION is '701', but the target's hip_version is '7.2.53211'"),
        (VALIDATORS, {"hipblaslt_version": "1.2.2"}, "the target's hipblaslt_version is '1.2.2'"),
        (VALIDATORS, {"hipblaslt_revision": "50015815"}, "the target's hipblaslt_revision is '50015815'"),
        (VALIDATORS, {"rocblas_version": "5.2.0"}, "the target's rocblas_version is '5.2.0'"),
        (VALIDATORS, {"arch": "sm_90"}, "validator GCN_ARCH_NAME is not used by a PyTorch for CUDA"),
        (VALIDATORS, {"backend": "CUDA"}, "validator GCN_ARCH_NAME is not used by a PyTorch for CUDA"),
        (
            VALIDATORS,
            {"validator:PT_VERSION": "2.10.0"},
            "PT_VERSION is '2.9.1' in the file, but '2.10.0' on the target",
        ),
        (VALIDATORS, {"validator:ROCM_VERSION": "7.0.1"}, "validator ROCM_VERSION is missing"),
        (HEAD, {"arch": "gfx942"}, "validator ROCBLAS_VERSION is missing"),
        (HEAD, {"backend": "HIP"}, "validator ROCBLAS_VERSION is missing"),
        (
            OLD,
            {"rocm_version": "6.3.1"},
            "ROCM_VERSION is '6.2.0.0-66-98a50c5', but the target's rocm_version is '6.3.1'",
        ),
        (OLD, {"arch": "gfx942"}, "GCN_ARCH_NAME is 'gfx90a:sramecc+:xnack-', but the target's arch is 'gfx942'"),
        (VALIDATORS, {"pytorch_version": "2.9"}, ""),
        (VALIDATORS, {"pytorch_version": "2.9.1+rocm7.1", "arch": "gfx942"}, ""),
        (VALIDATORS, {"hip_version": "7.1.52802", "hipblaslt_version": "1.0.0"}, ""),
        (VALIDATORS, {"validator:PT_VERSION": "2.9.1"}, ""),
        (VALIDATORS, {"validator:GCN_ARCH_NAME": "gfx942:sramecc+:xnack-", "arch": "gfx942"}, ""),
        (OLD, {"rocm_version": "6.2.0", "hipblaslt_version": "0.8.0"}, ""),
        (HEAD, {"arch": "sm_90", "pytorch_version": "2.11.0"}, ""),
    ],
)
def test_a_file_for_another_version_is_rejected(head: str, stated: dict[str, str], why: str) -> None:
    """``lint`` rejects a TunableOp file if its version lines ("validators") differ from what the user states.

    PyTorch would reject such a file. If the stated versions are the same, PyTorch may still reject the file, because it
    compares all version lines.
    """
    file = inspect_text(head + ROW, stated)
    assert file.accepted is (False if why else None)
    assert [why in note.message for note in file.notes if note.rule == "validators"] == ([True] if why else [])
    if why:
        assert not file.ok
        assert why in file.rows[0].verdicts.why


def test_old_pytorch() -> None:
    old = {"validator:PT_VERSION": "2.5.1", "pytorch_version": "2.5.1"}
    text = (
        "Validator,PT_VERSION,2.5.1\nGemmTunableOp_Half_TN,tn_96_48_64,Gemm_Hipblaslt_TN_5,1\n"
        f"GemmTunableOp_Half_NN,nn_96_48_64,Gemm_Hipblaslt_TN_5,1\n{ROW}GemmTunableOp_Half_TN,tn_1_48_64,Gemm_Hipblaslt_5,1\n"
    )
    rules = {(note.line, note.rule) for note in inspect_text(text, old).notes}
    assert rules == {(3, "solution-dialect"), (4, "key-dialect"), (5, "solution-dialect")}


def test_names() -> None:
    text = HEAD + ROW
    assert [n.rule for n in inspect_text(text, CUDA, "tuned.csv").notes] == ["file-name"]
    assert "tuned0.csv" in inspect_text(text, CUDA, "tuned.csv").notes[0].remedy
    assert inspect_text(text, CUDA | {"gpus": "8"}, "tuned7.csv").ok
    assert not inspect_text(text, CUDA | {"gpus": "8"}, "tuned8.csv").ok


def test_without_a_target_a_file_is_judged_by_its_own_validators() -> None:
    file = inspect("t0.csv", (SAMPLES / "tunableop/tunableop_results0.csv").read_bytes(), {})
    assert (file.accepted, file.ok, file.notes) == (None, True, ())
    assert file.rows[0].verdicts.read is None
    assert inspect_text(HEAD + f"{KEY},Gemm_Hipblaslt_TN_4,1\n", {}).rows[0].live is False


def test_damaged_sample() -> None:
    file = inspect("tunableop_results0.csv", (SAMPLES / "tunableop/damaged/tunableop_results0.csv").read_bytes(), {})
    assert [(n.line, n.severity, n.rule) for n in file.notes] == [
        (7, "error", "conflict"),
        (8, "warning", "every-candidate-failed"),
        (11, "warning", "few-fields"),
        (12, "warning", "no-op"),
        (13, "warning", "few-fields"),
        (15, "error", "bad-key"),
        (16, "error", "bad-key"),
        (17, "error", "glued"),
    ]


@needs_corpus
@pytest.mark.parametrize("path", sorted(CORPUS.glob("tunableop/**/*results*.csv")), ids=lambda p: p.name)
def test_files_that_pytorch_wrote_have_no_unexplained_errors(path: Path) -> None:
    file = inspect(path.name, path.read_bytes(), {}, "tunableop-results")
    # PyTorch itself wrote these files. Their only faults are duplicates from two processes, failed keys and an empty
    # file.
    assert {n.rule for n in file.notes if n.severity == "error"} <= {"conflict", "empty", "validators"}
    assert not any(row.verdicts.matched is False for row in file.rows)
