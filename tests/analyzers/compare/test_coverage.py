"""Tests of ``logparse coverage``, which tells for which calls of a run an override file has a row.

An override file is the user's choice of kernels.
"""

# The tests check counts, times, rows that nearly fit a call, keys that are not known, and rows that share a key.

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.evidence.tables import Tables
from analyzers.overrides.coverage import coverage, served_by, times_of, with_idle
from analyzers.overrides.coverage import lines as coverage_lines
from analyzers.overrides.lint import facts_of_run, inspect, lint, with_collisions
from analyzers.overrides.lint import lines as lint_lines
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.hipblaslt import tuning_file
from logparse.libraries.miopen import find_db
from logparse.libraries.tunableop import signature
from logparse.model import Override, Solution
from logparse.store import Store
from tests.analyzers.build import facts, frame, measurement, tables, work
from tests.analyzers.example import ARCH, F, W, gemm
from tests.conftest import SAMPLES

CUDA = {"validator:PT_VERSION": "2.15.0", "pytorch_version": "2.15.0", "backend": "CUDA"}
HEAD = "Validator,PT_VERSION,2.15.0\n"
ONE, TWO, PADDED = gemm(), gemm(2048), gemm(lda=1088)
KEY = str(signature.key(ONE, CUDA))


def run() -> Tables:
    return tables(
        workload=[work(ONE.text, 90), work(TWO.text, 8), work(PADDED.text, 2), work(W.text, 5)],
        measurements=[
            measurement(ONE.text, "Default", 50.0),
            measurement(ONE.text, "hipblaslt:7", 40.0),
            measurement(TWO.text, "Default", 30.0),
            measurement(TWO.text, "hipblaslt:7", 60.0),
        ],
    )


def test_shares_of_calls_and_time() -> None:
    file = inspect("r0.csv", f"{HEAD}{KEY},Default,0.01\n".encode(), CUDA)
    found = coverage(file, run())
    assert {use.problem: (use.state, use.line) for use in found.uses} == {
        ONE.text: ("hit", 2),
        TWO.text: ("miss", None),
        PADDED.text: ("miss", None),
    }
    assert found.share("calls") == pytest.approx(0.9)
    assert found.share("time_us") == pytest.approx(90 * 50 / (90 * 50 + 8 * 30))
    assert found.idle == ()


def test_rows_that_never_hit_state_the_reason() -> None:
    text = (
        f"{HEAD}{KEY},Default,0.01\n{KEY},Default,0.02\n{KEY.replace('1024_1024_4096', '1024_1024_4160')},Default,1\n"
    )
    text += "GemmTunableOp_Half_TN,tn_7_7_7_ld_7_7_7,Default,1\nGemmTunableOp_Half_TN,tn_7_7_7,Default,1\n"
    found = coverage(inspect("r0.csv", text.encode(), CUDA), run())
    idle = {line: (x.never, x.reason) for x in found.idle for line in x.lines}
    assert idle[3] == (True, "line 2 already has this key, and PyTorch uses the first row")
    near = "no call; one call differs only in that it has ld=1024,1024,-,4096, while the row has ld=1024,1024,4160,4160"
    assert idle[4] == (False, near)
    assert idle[5] == (False, "no call of the run")
    assert idle[6][0]
    assert set(idle) == {3, 4, 5, 6}
    told = lint_lines(with_idle(inspect("r0.csv", text.encode(), CUDA), run()))
    assert f"  info [no-call] line 4: {near} → no call of run r uses this row" in told
    assert "  info [no-call] line 5: no call of the run → no call of run r uses this row" in told


def test_a_log_that_lacks_the_key() -> None:
    vague = replace(ONE, lda=None)
    file = inspect("r0.csv", f"{HEAD}{KEY},Default,0.01\n".encode(), CUDA)
    t = tables(workload=[work(vague.text, 3), work(replace(TWO, lda=None).text, 1)])
    found = coverage(file, t)
    assert {use.problem: use.state for use in found.uses} == {
        vague.text: "unknown",
        replace(TWO, lda=None).text: "miss",
    }
    assert found.idle == ()
    assert found.share("calls", "unknown") == pytest.approx(0.75)


def test_a_rejected_file_serves_nothing() -> None:
    file = inspect("r0.csv", f"Validator,PT_VERSION,2.9.1\n{KEY},Default,0.01\n".encode(), CUDA)
    found = coverage(file, run())
    assert not found.hits
    assert found.idle[0].never
    assert "rejects" in found.idle[0].reason


def test_of_a_miopen_record_the_fastest_item_serves() -> None:
    key = find_db.key(W, {})
    text = (
        f"{key}=ConvDirectNaiveConvWrw:16.0,0,miopenConvolutionBwdWeightsAlgoDirect;"
        "GemmWrwUniversal:3.9,6422528,miopenConvolutionBwdWeightsAlgoGEMM\n"
    )
    file = inspect("gfx942130.HIP.3_4_0_x.ufdb.txt", text.encode(), {})
    served = served_by(file, [W.text, F.text])
    assert {k: row.solution.text for k, row in served.items() if row.solution} == {W.text: "miopen:GemmWrwUniversal"}
    assert [use.state for use in coverage(file, run()).uses] == ["hit"]
    of_b = text.replace("-W_", "-B_").replace("Wrw", "Bwd").replace("BwdWeights", "BwdData")
    others = coverage(inspect(file.name, of_b.encode(), {}), run())
    assert coverage_lines(others)[-1] == "  2 (line 1): no call of the run", "another pass is no near miss"


def test_calls_that_share_an_entry() -> None:
    padded = replace(ONE, lda=1088)
    made = tuning_file.write(
        [Override(problem=ONE, solution=Solution("hipblaslt", "7"), target={"arch": ARCH})],
        {"arch": ARCH, "hipblaslt_revision": "r"},
    )
    t = tables(
        workload=[work(ONE.text, 90), work(padded.text, 8)],
        measurements=[
            measurement(ONE.text, "Default", 50.0),
            measurement(ONE.text, "hipblaslt:7", 40.0),
            measurement(padded.text, "Default", 30.0),
            measurement(padded.text, "hipblaslt:7", 60.0),
        ],
    )
    file = with_collisions(inspect("t.txt", made[0].data, {}), t)
    assert [(n.rule, n.severity) for n in file.notes] == [("loses", "warning"), ("collision", "info")]
    assert "slower than the default for 1 of its 2" in file.notes[0].message


def test_a_row_is_compared_with_the_librarys_own_choice() -> None:
    """logparse warns if an override file names a slower kernel than the library would choose by itself.

    An override file tells a GPU library which kernel to use for an operation.
    """
    # Here the file names hipBLASLt's kernel 7 (50 µs), and the library would choose its kernel 5 (40 µs). PyTorch's
    # default kernel (60 µs) does not matter.
    target = {"arch": ARCH, "hipblaslt_revision": "r"}
    made = tuning_file.write([Override(problem=ONE, solution=Solution("hipblaslt", "7"), target=target)], target)
    times = {"hipblaslt:5": 40.0, "hipblaslt:7": 50.0, "Default": 60.0}
    t = tables(
        workload=[work(ONE.text, 90)],
        measurements=[measurement(ONE.text, name, us, origin="replay", source_id="x") for name, us in times.items()],
        facts=facts("x", pick="hipblaslt:5"),
    )
    file = inspect("t.txt", made[0].data, {})
    assert [n.rule for n in with_collisions(file, t).notes] == ["loses"]
    assert with_collisions(file, replace(t, facts=frame("facts", ()))).notes == ()


def test_two_texts_of_one_call_are_no_collision() -> None:
    made = tuning_file.write(
        [Override(problem=ONE, solution=Solution("hipblaslt", "7"), target={"arch": ARCH})],
        {"arch": ARCH, "hipblaslt_revision": "r"},
    )
    t = tables(workload=[work(ONE.text, 90), work(replace(ONE, scale_type=None, beta=None).text, 90, pid=2)])
    assert with_collisions(inspect("t.txt", made[0].data, {}), t).notes == ()


def test_a_recorded_workspace_that_is_too_small() -> None:
    key = find_db.key(W, {})
    text = f"{key}=GemmWrwUniversal:3.9,{{}},miopenConvolutionBwdWeightsAlgoGEMM\n"
    measured = [measurement(W.text, "miopen:GemmWrwUniversal", 3.9, workspace_bytes=6422528)]
    t = tables(workload=[work(W.text, 1)], measurements=measured)
    for size, rules in ((6422528, []), (6422527, ["workspace"]), (7000000, [])):
        file = inspect("gfx942130.HIP.3_4_0_x.ufdb.txt", text.format(size).encode(), {})
        assert [note.rule for note in with_collisions(file, t).notes] == rules


def test_a_record_of_solvers_that_no_file_of_the_build_names() -> None:
    key, algorithm = find_db.key(W, {}), "miopenConvolutionBwdWeightsAlgo"
    text = f"{key}=ConvHipImplicitGemmGroupWrwXdlops:0.2,0,{algorithm}ImplicitGEMM{{}}\n"
    build = {"miopen_version": "3.4.0", "miopen_tweak": "x"}
    known = measurement(W.text, "miopen:GemmWrwUniversal", 3.9, source_id="ufdb")
    for more, told, rules in (
        ("", build, ["overwritten"]),
        (f";GemmWrwUniversal:3.9,0,{algorithm}GEMM", build, []),
        ("", build | {"miopen_version": "3.5.0"}, []),
    ):
        t = tables(measurements=[known], facts=facts("ufdb", **told))
        file = inspect("gfx942130.HIP.3_4_0_x.ufdb.txt", text.format(more).encode(), {})
        found = with_collisions(file, t).notes
        assert [note.rule for note in found if note.severity == "warning"] == rules


def test_times_of_a_trace_win() -> None:
    kernel = {
        "source_id": "t",
        "run": "r",
        "device": 0,
        "op": "aten::mm",
        "problem": ONE.text,
        "kernel": "k",
        "calls": 9,
    }
    t = run()
    traced = replace(t, kernels=tables(kernels=[kernel | {"total_us": 123.0}]).kernels)
    assert times_of(traced)[ONE.text] == 123.0
    assert times_of(traced)[TWO.text] == 240.0


def test_lint_reads_the_targets_facts_from_the_run(store: Store, tmp_path: Path) -> None:
    ingest([str(SAMPLES / "tunableop/tunableop_results0.csv"), str(SAMPLES / "hipblaslt")], store)
    t = Tables(run=store.latest_run(), **store.frames())
    assert facts_of_run(t)["validator:PT_VERSION"] == "2.9.1"
    good = lint(str(SAMPLES / "tunableop/tunableop_results0.csv"), against=t)
    assert (good.accepted, good.ok) == (True, True)
    found = coverage(good, t)
    assert found.hits
    assert (found.share("calls") or 0) > 0.5
    other = tmp_path / "tunableop_results0.csv"
    other.write_text(HEAD + f"{KEY},Default,1\n")
    assert lint(str(other), against=t).accepted is False
    with pytest.raises(InputError, match=r"(?i)no such file"):
        lint(str(tmp_path / "none.csv"))
    (tmp_path / "x.txt").write_text("hello\n")
    with pytest.raises(InputError, match="not an override file"):
        lint(str(tmp_path / "x.txt"))


def test_shapes_in_a_servers_log_that_have_no_row_are_named(store: Store, tmp_path: Path) -> None:
    """If a server used a shape that is not in aiter's table of tuned 8-bit kernels, ``coverage`` says what to add."""
    # aiter also looks up larger values of M (the number of rows). For example, a table row for M = 320 or M = 512 would
    # also be used for M = 300.
    table, missed = "a8w8_bpreshuffle_tuned_gemm.csv", "not found tuned config in /x/{}, will use default config!"
    log = tmp_path / "server.log"
    sizes = ((1, table), (30, table), (300, table), (64, "a8w8_blockscale_tuned_gemm.csv"))
    log.write_text(
        "".join(
            f"[aiter] shape is M:{m}, N:1280, K:8192, q_dtype_w:torch.float8_e4m3fnuz, {missed.format(name)}\n"
            for m, name in sizes
        )
    )
    ingest([str(log)], store)
    rows = "".join(
        f"gfx942,304,{m},1280,8192,torch.float8_e4m3fnuz,ck,34,0,20.5,a8w8_256,1.02,510.5,0.0\n" for m in (1, 32)
    )
    head = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
    file = inspect(table, (head + rows).encode(), {"arch": "gfx942", "cu_count": "304"})
    uses = coverage(file, Tables(run=store.latest_run(), **store.frames())).uses
    found = {int(use.key.split(",")[2]): (use.state, use.line, use.reason) for use in uses if use.key is not None}
    assumed = "the row is used only if the target machine has the library build that wrote the file"
    assert found.pop(300) == (
        "miss",
        None,
        "no row matches the call (a row with 320 instead of 300 or 512 instead of 300 would also be used for it)",
    )
    assert found == {1: ("hit", 2, assumed), 30: ("hit", 3, assumed)}


def test_a_padded_row_of_aiter_serves_a_call() -> None:
    target = {"arch": ARCH, "cu_count": "304"}
    call = gemm(4096, n=50, k=1024)
    made = aiter.write(
        [Override(problem=replace(call, n=64), solution=Solution("hipblaslt", "7"), target=target)], target
    )
    file = inspect(made[0].name, made[0].data, target)
    other = gemm(4096, n=70, k=1024)
    found = coverage(file, tables(workload=[work(call.text, 3), work(other.text, 1)]))
    assert {use.problem: use.state for use in found.uses} == {call.text: "hit", other.text: "miss"}
    assert found.idle == ()
