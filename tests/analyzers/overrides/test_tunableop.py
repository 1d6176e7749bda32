"""What PyTorch does with a results file, case by case as torch 2.11 on a GPU answered, and what lint reports."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overrides.lint import inspect
from logparse.formats.override_format import OverrideFile
from logparse.formats.tunableop import signature
from logparse.formats.tunableop.validated import atof, lookup, predict, read
from logparse.model import GemmProblem
from tests.conftest import CORPUS, SAMPLES, needs_corpus

RUNNING = {"PT_VERSION": "2.11.0"}
HEAD = "Validator,PT_VERSION,2.11.0\n"
KEY = "GemmTunableOp_BFloat16_TN,tn_96_48_64_ld_64_64_96"
OP, PARAMS = KEY.split(",")
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
    ("three fields", HEAD + f"{KEY},Default\n", True, ("Default", 0.0), {"no-time"}),
    ("two fields", HEAD + f"{KEY}\n", True, None, {"few-fields"}),
    ("five fields", HEAD + f"{KEY},Default,0.01,x\n", True, ("Default", 0.01), set()),
    ("a comment", HEAD + "# text\n" + ROW, True, ("Default", 0.01), {"few-fields"}),
    ("a lone comma", HEAD + ",\n" + ROW, True, ("Default", 0.01), {"few-fields"}),
    ("a header row", HEAD + "op,params,solution,time\n" + ROW, True, ("Default", 0.01), {"no-op"}),
    ("blank lines", HEAD + "\n\n" + ROW, True, ("Default", 0.01), set()),
    ("no final newline", HEAD + ROW[:-1], True, ("Default", 0.01), {"no-final-newline"}),
    ("no validators", ROW, False, None, {"validators"}),
    ("empty file", "", False, None, {"empty", "validators"}),
    ("wrong PT_VERSION", "Validator,PT_VERSION,2.9.1\n" + ROW, False, None, {"validators"}),
    ("extra validator", HEAD + "Validator,ROCM_VERSION,6\n" + ROW, False, None, {"validators"}),
    ("validator twice, wrong first", "Validator,PT_VERSION,1\n" + HEAD + ROW, True, ("Default", 0.01), set()),
    ("validator twice, wrong last", HEAD + "Validator,PT_VERSION,1\n" + ROW, False, None, {"validators"}),
    ("validator after the rows", ROW + HEAD, True, ("Default", 0.01), set()),
    ("validator without a value", HEAD + "Validator,PT_VERSION\n" + ROW, True, ("Default", 0.01), {"few-fields"}),
    ("blank before the value", "Validator,PT_VERSION, 2.11.0\n" + ROW, False, None, {"validators"}),
    ("blank behind the value", "Validator,PT_VERSION,2.11.0 \n" + ROW, False, None, {"validators"}),
    ("CRLF", (HEAD + ROW).replace("\n", "\r\n"), False, None, {"line-ends", "validators"}),
    ("CRLF on a row", HEAD + ROW.replace("\n", "\r\n"), True, ("Default", 0.01), set()),
    ("CRLF on three fields", HEAD + f"{KEY},Default\r\n", True, ("Default\r", 0.0), {"carriage-return", "no-time"}),
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
    ("nan", HEAD + f"{KEY},Default,nan\n", True, ("Default", math.nan), {"no-time"}),
    ("negative", HEAD + f"{KEY},Default,-1\n", True, ("Default", -1.0), {"no-time"}),
    ("no number", HEAD + f"{KEY},Default,fast\n", True, ("Default", 0.0), {"no-time"}),
    ("no time", HEAD + f"{KEY},Default,\n", True, ("Default", 0.0), {"no-time"}),
    ("glued", HEAD + ROW[:-1] + ROW.replace("96_48", "97_48"), True, ("Default", 0.01), {"glued"}),
)


def data_of(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def judged(data: str | bytes, target: dict[str, str], name: str = "tunableop_results0.csv") -> OverrideFile:
    return inspect(name, data_of(data), target, "tunableop-results")


@pytest.mark.parametrize(("text", "accepted", "loaded", "rules"), [x[1:] for x in TRIED], ids=[x[0] for x in TRIED])
def test_tried_on_a_gpu(text: str | bytes, accepted: bool, loaded: tuple[str, float] | None, rules: set[str]) -> None:
    found = predict(data_of(text), RUNNING)
    assert found.accepted is accepted
    assert bool(found.reason) is not accepted
    row = next(((x.solution, x.time_ms) for x in found.rows if x.key == KEY), None)
    if loaded and math.isnan(loaded[1]):
        assert row is not None
        assert math.isnan(row[1])
    else:
        assert row == loaded
    file = judged(text, CUDA)
    assert {note.rule for note in file.notes} == rules
    assert file.accepted is accepted
    hit = lookup(found, OP, PARAMS, {"Default"}, (2, 11)) == "hit"
    assert any(row.live and row.key == KEY for row in file.rows) is hit


def test_what_a_call_does() -> None:
    found = predict((HEAD + f"{KEY},Gemm_Hipblaslt_42,0.01\n").encode(), RUNNING)
    assert lookup(found, OP, PARAMS, {"Default"}, (2, 11)) == "raises"
    assert lookup(found, OP, PARAMS, {"Default"}, (2, 14)) == "default"
    assert lookup(found, OP, PARAMS, {"Default", "Gemm_Hipblaslt_42"}, (2, 11)) == "hit"
    assert lookup(found, OP, "tn_1_1_1", {"Default"}, (2, 11)) == "miss"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5Gemm", 0.5), (" 1e2", 100.0), ("0x1p3", 8.0), ("1e999", math.inf), ("-.5", -0.5), ("e5", 0.0), ("", 0.0)],
)
def test_atof(text: str, value: float) -> None:
    assert atof(text) == value


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
    file = judged(f"{head}{row}\n", ROCM)
    assert file.accepted
    assert [(note.line, note.rule) for note in file.notes] == [(6, rule)]
    assert not file.rows[0].live
    assert file.rows[0].verdicts.why


def test_old_pytorch() -> None:
    old = {"validator:PT_VERSION": "2.5.1", "pytorch_version": "2.5.1"}
    text = (
        "Validator,PT_VERSION,2.5.1\nGemmTunableOp_Half_TN,tn_96_48_64,Gemm_Hipblaslt_TN_5,1\n"
        f"GemmTunableOp_Half_NN,nn_96_48_64,Gemm_Hipblaslt_TN_5,1\n{ROW}GemmTunableOp_Half_TN,tn_1_48_64,Gemm_Hipblaslt_5,1\n"
    )
    rules = {(note.line, note.rule) for note in judged(text, old).notes}
    assert rules == {(3, "solution-dialect"), (4, "key-dialect"), (None, "mixed-dialect"), (5, "solution-dialect")}


def test_names() -> None:
    text = HEAD + ROW
    assert [n.rule for n in judged(text, CUDA, "tuned.csv").notes] == ["file-name"]
    assert "tuned0.csv" in judged(text, CUDA, "tuned.csv").notes[0].remedy
    assert judged(text, CUDA | {"gpus": "8"}, "tuned7.csv").ok
    assert not judged(text, CUDA | {"gpus": "8"}, "tuned8.csv").ok


def test_without_a_target_a_file_is_judged_by_its_own_validators() -> None:
    file = inspect("t0.csv", (SAMPLES / "tunableop/tunableop_results0.csv").read_bytes(), {})
    assert (file.accepted, file.ok, file.notes) == (None, True, ())
    assert file.rows[0].verdicts.read is None
    assert judged(HEAD + f"{KEY},Gemm_Hipblaslt_TN_4,1\n", {}).rows[0].live is False


def test_damaged_sample() -> None:
    file = inspect("tunableop_results0.csv", (SAMPLES / "tunableop/damaged/tunableop_results0.csv").read_bytes(), {})
    assert [(n.line, n.severity, n.rule) for n in file.notes] == [
        (7, "error", "conflict"),
        (8, "warning", "every-candidate-failed"),
        (9, "info", "no-time"),
        (10, "info", "no-time"),
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
    # what PyTorch itself wrote: only duplicates of two processes, failed keys and an empty file
    assert {n.rule for n in file.notes if n.severity == "error"} <= {"conflict", "empty", "validators"}
    assert not any(row.verdicts.matched is False for row in file.rows)


# ---------------------------------------------------------------------------------------- what no call may contradict

types = st.sampled_from(["f16_r", "bf16_r", "f32_r", "f64_r", "f32_c", "f8_fnuz_r"])
size = st.sampled_from([1, 48, 64, 96])


@st.composite
def calls(draw: st.DrawFn) -> GemmProblem:
    a_type = draw(types)
    narrow = a_type == "f8_fnuz_r"
    ldd = draw(size)
    bias = draw(st.booleans())
    scale = draw(st.sampled_from(["scalar", "row"]))
    return GemmProblem(
        trans_a=draw(st.sampled_from(["N", "T", "C"])),
        trans_b=draw(st.sampled_from(["N", "T"])),
        m=draw(size),
        n=draw(size),
        k=draw(size),
        batch_count=1 if narrow or bias else draw(st.sampled_from([1, 6])),
        lda=draw(size),
        ldb=draw(size),
        ldc=ldd,
        ldd=ldd,
        a_type=a_type,
        b_type=a_type,
        c_type="bf16_r" if narrow else a_type,
        d_type="bf16_r" if narrow else a_type,
        compute_type=draw(st.sampled_from(["f32_r", "xf32_r"])) if a_type == "f32_r" else None,
        bias=bias,
        bias_type=("bf16_r" if narrow else a_type) if bias else None,
        activation="none",
        gradient=False,
        aux=False,
        beta="zero",
        scale_a=scale if narrow else None,
        scale_b=scale if narrow else None,
    )


EDITS = ("tn", "nt", "0", "_", "*", "96", "ld", "Half", "float", "tf32", "Default", ",", "\r", " ")
TARGETS = (CUDA, ROCM, ROCM | {"validator:PT_VERSION": "2.5.1", "pytorch_version": "2.5.1"})


@given(st.lists(calls(), min_size=1, max_size=6), calls(), st.data())
def test_a_dead_row_serves_no_call(written: list[GemmProblem], call: GemmProblem, data: st.DataObject) -> None:
    """Rows of any target's keys, damaged anywhere: a line that lint calls dead is never the line that PyTorch uses."""
    target = data.draw(st.sampled_from(TARGETS))
    keys = [signature.key(p, data.draw(st.sampled_from(TARGETS))) for p in (*written, call)]
    lines = [f"{key},{data.draw(st.sampled_from(['Default', 'Gemm_Hipblaslt_7']))},0.01" for key in keys if key]
    for _ in range(data.draw(st.integers(0, 3))):
        if lines:
            place = data.draw(st.integers(0, len(lines) - 1))
            at = data.draw(st.integers(0, len(lines[place])))
            cut = data.draw(st.integers(0, 3))
            lines[place] = lines[place][:at] + data.draw(st.sampled_from(EDITS)) + lines[place][at + cut :]
    running = {k[10:]: v for k, v in target.items() if k.startswith("validator:")}
    head = [f"Validator,{k},{v}" for k, v in running.items()]
    text = "\n".join([*head, *lines, ""]).encode()
    dead = {row.line for row in judged(text, target).rows if row.dead}
    used = {row.key: row.line for row in predict(text, running).rows}
    for problem in (*written, call):
        key = signature.key(problem, target)
        if key is not None and key in used:
            assert used[key] not in dead


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda x: x.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_judged(noise: bytes) -> None:
    for data in (noise, HEAD.encode() + noise, HEAD.encode() + ROW.encode() + noise):
        file = judged(data, CUDA)
        assert file.accepted is predict(data, RUNNING).accepted
        reading = read(data)
        assert len({x.line for x in reading.entries} | set(reading.ignored)) == len(reading.entries) + len(
            reading.ignored
        )
