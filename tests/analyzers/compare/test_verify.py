"""Tests of ``logparse verify`` on override files (the user's choice of kernels).

``verify`` tells whether the library used the lines of the file, and whether the promised time was saved. The tests
cover every way in which ``verify`` can fail.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analyzers.compare.candidates import candidates
from analyzers.compare.verify import SIGNS, find_promised_savings, in_run, same_solution, verify
from analyzers.compare.verify import lines as verify_lines
from analyzers.compare.verify import rows as verify_rows
from analyzers.evidence.tables import Tables
from analyzers.overrides.coverage import coverage
from analyzers.overrides.lint import inspect, note_rows, row_rows
from analyzers.overrides.lint import lines as lint_lines
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.libraries.hipblaslt import tuning_file
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.libraries.miopen import find_db
from logparse.model import Gain, Override, Problem, Solution, problem_from_text
from logparse.store import Store
from tests.analyzers.build import call, facts, measurement, tables, work
from tests.analyzers.example import ARCH, W, gemm

HERE = {"arch": ARCH, "hipblaslt_revision": "3b3d59eb", "cu_count": "304", "hipblaslt_version": "100000"}
ONE, TWO, GONE = gemm(4096), gemm(2048), gemm(77)


def file(target: dict[str, str] = HERE) -> OverrideFile:
    wanted = [Override(problem=p, solution=Solution("hipblaslt", "7"), target=HERE) for p in (ONE, TWO, GONE)]
    return inspect("tuning.txt", tuning_file.write(wanted, HERE)[0].data, target)


def run(label: str, one: str, two: str | None, times: tuple[float, float], **more: object) -> Tables:
    kernel = {"source_id": "t", "run": label, "device": 0, "op": "mm", "calls": 10}
    kernels = [
        kernel | {"problem": p.text, "kernel": f"k{s}", "total_us": t}
        for p, s, t in zip((ONE, TWO), (one, two), times, strict=True)
    ]
    calls = [call(p.text, f"hipblaslt:{s}", 10, run=label) for p, s in ((ONE, one), (TWO, two)) if s is not None]
    works = [work(p.text, 10, run=label) for p in (ONE, TWO)]
    return tables(label, calls=calls, workload=works, kernels=kernels, facts=facts("log", **HERE), **more)  # type: ignore[arg-type]


def test_applied_and_gained() -> None:
    found = verify(
        run("a", "1", "1", (1000.0, 500.0)),
        run("b", "7", "7", (800.0, 500.0)),
        [file()],
        {ONE.text: 25.0},
    )
    assert [(x.label, x.effect, x.move, x.gained_us) for x in found.outcomes] == [
        (TWO.label, "applied", "same", pytest.approx(0.0)),
        (ONE.label, "applied", "faster", pytest.approx(200.0)),
    ]
    assert found.ok
    assert (found.gained_us, found.promised_us) == (pytest.approx(200.0), 250.0)
    assert [(name, x.never, x.reason) for name, x in found.idle] == [("tuning.txt", False, "no call of the run")]
    assert (
        verify_lines(found)[0]
        == "verify: verified: 2 applied (problems with a row); gained 200 µs a run (promised 250 µs)"
    )
    assert [x["effect"] for x in verify_rows(found)] == ["applied", "applied"]


def test_candidates_for_kernel_writing_tools_have_both_names_and_their_row(tmp_path: Path) -> None:
    path = tmp_path / "tuning.txt"
    row = Override(problem=ONE, solution=Solution("hipblaslt", "7"), target=HERE)
    path.write_bytes(tuning_file.write([row], HERE)[0].data)
    engaged, idle, silent = (run("a", one, "1", (900.0, 100.0)) for one in ("7", "1", "7"))
    silent = replace(silent, calls=silent.calls[:0])
    for tables_of_run, state in ((engaged, True), (idle, False), (silent, None)):
        made = candidates(tables_of_run, [str(path)], HERE)
        first, second = json.loads(made.files[0].data)["hot_kernels"]
        assert first.pop("override") == {"file": "tuning.txt", "line": 3, "solution": "hipblaslt:7", "engaged": state}
        assert (first["kernel_id"], first["name"], first["device_kernel_name"][0]) == ("k001", "mm", "k")
        assert (first["gpu_pct"], first["call_count"], first["problem"]) == (90.0, 10, ONE.label)
        assert (second["override"], second["step_pct"]) == (None, None)
        assert len(made.notes) == 2
    made = candidates(engaged, [], {}, 1)
    assert made.notes == ("1 kernel, 90.0% of the GPU time of computation",)
    with pytest.raises(InputError, match="run r has no GPU kernels"):
        candidates(tables(), [], {})


def test_a_line_of_a_file_is_printed_once() -> None:
    """A line of a find-db lists several solvers. It is one line for the reader, whatever the file's format."""
    found = verify(run("a", "1", "1", (1000.0, 500.0)), run("b", "7", "7", (800.0, 500.0)), [file()], {})
    [(name, idle)] = found.idle
    doubled = replace(found, idle=((name, replace(idle, lines=[*idle.lines, *idle.lines])),))
    assert verify_lines(doubled, 10_000) == verify_lines(found, 10_000)
    assert verify_lines(doubled) == verify_lines(found)


def test_another_solution_ran() -> None:
    found = verify(run("a", "1", "1", (1000.0, 500.0)), run("b", "1", "7", (1000.0, 400.0)), [file()])
    assert not found.ok
    assert found.failures == (f"{ONE.label}: hipblaslt:7 was intended, but hipblaslt:1 ran (tuning.txt, line 3)",)


def test_a_kernel_that_ran_without_the_file_proves_nothing() -> None:
    """``logparse verify`` reports that a file had no provable effect if the same kernels also ran without the file.

    The file is an override file, which tells a GPU library which kernel to use for each operation.
    """
    # If at least one operation got another kernel than before, the effect is proved.
    times = (1000.0, 500.0)
    found = verify(run("a", "7", "7", times), run("b", "7", "7", times), [file()])
    assert {x.effect for x in found.outcomes} == {"as before"}
    assert found.failures == (
        "it cannot be shown that an override row took effect, because the kernels that the rows name also ran in the "
        "first run",
    )
    found = verify(run("a", "7", "1", times), run("b", "7", "7", times), [file()])
    assert {(x.problem, x.effect) for x in found.outcomes} == {(ONE.text, "as before"), (TWO.text, "applied")}
    assert found.ok


def test_slower_with_the_override() -> None:
    found = verify(run("a", "1", "1", (1000.0, 500.0)), run("b", "7", "7", (1200.0, 500.0)), [file()])
    assert found.failures == (f"{ONE.label}: slower with the override, 100 to 120 µs",)
    assert found.gained_us == pytest.approx(-200.0)
    assert "lost 200 µs" in verify_lines(found)[0]


def test_kernels_stand_in_for_picks() -> None:
    def silent(label: str, *kernels: str) -> Tables:
        t = run(label, *kernels, (1000.0, 500.0))  # type: ignore[arg-type]
        return type(t)(**{**vars(t), "calls": t.calls[:0]})

    same = verify(silent("a", "1", "1"), silent("b", "1", "2"), [file()])
    assert sorted(x.effect for x in same.outcomes) == ["changed kernel", "unchanged kernel"]
    assert same.failures == (
        f"{ONE.label}: hipblaslt:7 was intended, but the same kernel as before ran (tuning.txt, line 3)",
    )


def test_nothing_can_be_shown() -> None:
    t = tables("a", workload=[work(ONE.text, 3, run="a")], facts=facts("log", **HERE))
    found = verify(t, t, [file()])
    assert found.failures[0].startswith("it cannot be shown that an override row took effect")
    nothing = tables("a", workload=[work(gemm(5).text, 3, run="a")], facts=facts("log", **HERE))
    assert verify(nothing, nothing, [file()]).failures == (
        "no row of the override files took effect: no call of the second run matches a row",
    )


def test_a_refused_file_and_the_logs_complaints() -> None:
    a, b = run("a", "1", "1", (1000.0, 500.0)), run("b", "1", "1", (1000.0, 500.0))
    found = verify(a, b, [file(HERE | {"hipblaslt_revision": "other"})])
    assert found.failures[0].startswith("this machine's library does not accept tuning.txt")
    for text, meaning in SIGNS:
        message = {"source_id": "log", "run": "b", "category": "error", "function": "f", "pid": 1, "count": 3}
        said = tables(messages=[message | {"text": f"x {text}: y"}]).messages
        signs = verify(a, type(b)(**{**vars(b), "messages": said}), [file()]).signs
        assert signs == (f"{meaning} (3 times)",)


def test_shapes_without_a_row_are_no_failure() -> None:
    """hipBLASLt's message "No valid solution index found in override file." does not make ``verify`` fail.

    The library prints it for every shape without a row in the file (log mask 8). It says nothing about the other
    shapes.
    """
    a, b = run("a", "1", "1", (1000.0, 500.0)), run("b", "1", "1", (1000.0, 500.0))
    message = {"source_id": "log", "run": "b", "category": "info", "function": "problem_override_from_file", "pid": 1}
    text = "No valid solution index found in override file."
    logged = type(b)(**{**vars(b), "messages": tables(messages=[message | {"text": text, "count": 4}]).messages})
    assert (verify(a, logged, [file()]).signs, verify(a, logged, [file()]).failures) == (
        (),
        verify(a, b, [file()]).failures,
    )


KEPT = replace(ONE, activation="gelu", aux=True, aux_type="bf16_r")
"""A matrix product with the same key in an override file as ``ONE``, although other kernels must compute it."""


def two_kinds(label: str, plain: str, kept: str) -> Tables:
    picks = ((ONE, plain), (KEPT, kept))
    calls = [call(p.text, f"hipblaslt:{pick}", 10, run=label) for p, pick in picks]
    works = [work(p.text, 10, run=label) for p, _ in picks]
    return tables(label, calls=calls, workload=works, facts=facts("log", **HERE))


@pytest.mark.parametrize(
    ("before", "after", "applied", "not_applied", "covered"),
    [
        (("1", "2"), ("7", "2"), [ONE], [], {ONE: "hit", KEPT: "miss"}),
        (("1", "2"), ("1", "7"), [KEPT], [], {ONE: "miss", KEPT: "hit"}),
        # Nothing shows the kind of kernel.
        (("1", "2"), ("1", "2"), [], [ONE, KEPT], {ONE: "hit", KEPT: "unknown"}),
    ],
)
def test_row_is_not_blamed_for_calls_that_its_kernel_cannot_compute(
    before: tuple[str, str],
    after: tuple[str, str],
    applied: list[Problem],
    not_applied: list[Problem],
    covered: dict[Problem, str],
) -> None:
    """A line of an override file is not called ineffective because of calls that its kernel cannot compute.

    An override file is the user's choice of kernels.
    """
    # Some hipBLASLt kernels write an extra matrix besides the result, others do not. The file does not state which sort
    # a line is for, so a line can also match a call that needs the other sort.
    found = verify(two_kinds("a", *before), two_kinds("b", *after), [file()])
    effects = {(x.problem, x.effect) for x in found.outcomes}
    expected = {(x.text, "applied") for x in applied} | {(x.text, "not applied") for x in not_applied}
    assert effects == expected
    assert found.ok is bool(applied)
    uses = {x.problem: x for x in coverage(file(), two_kinds("b", *after)).uses}
    assert {text: x.state for text, x in uses.items()} == {p.text: state for p, state in covered.items()}
    needs = {"miss": "but this call needs", "unknown": "if its kernels are for an auxiliary matrix"}
    assert all(re.search(needs[x.state], x.reason) for x in uses.values() if x.state in needs)


@pytest.mark.parametrize(
    ("need", "given", "state", "reason"),
    [
        (
            4096,
            [0],
            "miss",
            "hipblaslt:7 needs 4,096 bytes of workspace, but the call provides only 0 bytes, so the library takes",
        ),
        (4096, [4095], "miss", "the call provides only 4,095 bytes"),
        (4096, [4096], "hit", ""),
        (4096, [0, 8192], "unknown", "some of these calls provide only 0 bytes"),
        (4096, [None], "unknown", "no log states how much workspace the call provides"),
        (0, [0], "hit", ""),
        (None, [0], "unknown", "whether hipblaslt:7 needs workspace is unknown"),
        (None, [8192], "hit", ""),
        (None, [None], "hit", ""),
    ],
)
def test_a_row_is_not_used_by_calls_with_too_little_workspace(
    need: int | None, given: list[int | None], state: str, reason: str
) -> None:
    """If a call gives less workspace than the row's kernel needs, ``coverage`` says that the row has no effect."""
    # hipBLASLt skips such a kernel. The file does not state how much workspace it needs, so this is known only if the
    # kernel was measured.
    after = with_workspace("hipblaslt:1", need, given)
    use = next(x for x in coverage(file(), after).uses if x.problem == ONE.text)
    assert use.state == state
    assert reason in use.reason
    assert use.line == (3 if state == "hit" else None)
    found = verify(run("a", "1", "1", (1000.0, 500.0)), after, [file()])
    effects = {x.problem: (x.effect, bool(x.why)) for x in found.outcomes}
    assert effects[ONE.text] == ("not applied", bool(reason))


@pytest.mark.parametrize(("given", "covered"), [([0], ("hit", "")), ([0, 8192], None)])
def test_a_kernel_that_ran_had_enough_workspace(given: list[int | None], covered: tuple[str, str] | None) -> None:
    """If the log shows that a kernel from an override file ran, ``verify`` says that the file's line was applied.

    An override file is the user's choice of kernels.
    """
    # The kernel needs workspace, and some calls of the same matrix product gave too little of it. The log does not tell
    # which of the calls ran the kernel, but it did run.
    after = with_workspace("hipblaslt:7", 4096, given)
    use = next(x for x in coverage(file(), after).uses if x.problem == ONE.text)
    assert covered is None or (use.state, use.reason) == covered
    found = verify(run("a", "1", "1", (1000.0, 500.0)), after, [file()])
    assert [x.effect for x in found.outcomes if x.problem == ONE.text] == ["applied"]


def with_workspace(pick: str, need: int | None, given: list[int | None]) -> Tables:
    """Return made-up data of a job in which a matrix product ran with the kernel ``pick``.

    * ``given`` has the bytes of workspace of each call.
    * ``need`` is the workspace in bytes of hipBLASLt's kernel 7.
    """
    # The user had asked for kernel 7.
    trace = [call(ONE.text, None, 1, run="b", category="trace", workspace_bytes=x) for x in given]
    return tables(
        "b",
        calls=[call(ONE.text, pick, 10, run="b"), *trace],
        workload=[work(ONE.text, 10, run="b")],
        facts=facts("log", **HERE),
        measurements=[measurement(ONE.text, "hipblaslt:7", 5.0, origin="replay", workspace_bytes=need)],
    )


def test_miopens_chosen_solver() -> None:
    def chosen(label: str, solver: str, us: float) -> Tables:
        rows = [
            measurement(W.text, f"miopen:{solver}", None, run=label, origin="miopen-chosen", source_id=label),
            measurement(W.text, f"miopen:{solver}", us, run=label, origin="driver", source_id=label),
        ]
        return tables(label, measurements=rows, workload=[work(W.text, 4, run=label)])

    text = f"{find_db.key(W, {})}=GemmWrwUniversal:3.9,6422528,miopenConvolutionBwdWeightsAlgoGEMM\n"
    mine = inspect("gfx942130.HIP.3_4_0_x.ufdb.txt", text.encode(), {})
    found = verify(chosen("a", "ConvDirectNaiveConvWrw", 16000.0), chosen("b", "GemmWrwUniversal", 4000.0), [mine])
    assert [(x.effect, x.basis, x.gained_us) for x in found.outcomes] == [("applied", "driver", pytest.approx(48000.0))]
    assert found.ok


def test_one_kernel_under_two_names() -> None:
    rocblas = Solution("rocblas", "478")
    assert same_solution(rocblas, Solution("hipblaslt", "477"), "5.0.0.3b3d59eb")
    assert not same_solution(rocblas, Solution("hipblaslt", "477"), "4.2.0-1d9f3c2b")
    assert not same_solution(Solution("rocblas", "-9"), Solution("hipblaslt", "477"), "5.0.0")
    assert not same_solution(Solution("miopen", "x"), Solution("miopen", "y"), "")


def test_whole_runs_are_compared_where_their_traces_did_the_same_work() -> None:
    logged = [run(label, "1", "1", times) for label, times in (("a", (1000.0, 500.0)), ("b", (800.0, 500.0)))]
    a, b = (replace(x, workload=x.workload.assign(calls_from="profiler")) for x in logged)
    assert in_run(a, b) == Gain(1500.0, 1300.0)
    assert in_run(a, tables("b")) is None
    assert in_run(a, replace(b, workload=b.workload[:1])) is None, "one is not called any more: that is other work"
    assert in_run(*logged) is None, "a log's calls are of the whole job"


def test_promised_gains_are_per_call() -> None:
    """The gain that ``logparse recommend`` predicts for a matrix product is read as the gain of a single call."""
    # The prediction may come from another execution of the job, with another number of calls. So the gain of all calls
    # would not be comparable.
    columns = {"problem": [ONE.text, TWO.text, None, ONE.text], "per_call_us": [25.0, None, 9.0, 20.0], "calls": 77}
    assert find_promised_savings(pd.DataFrame(columns)) == {ONE.text: 25.0}


def test_lint_renderings() -> None:
    judged = file(HERE | {"arch": "gfx90a", "cu_count": "104"})
    assert lint_lines(judged) == [
        "tuning.txt: hipblaslt-tuning-file, accepted; 0 of 3 rows are usable",
        "  error [arch] line 3, 5, 7: the row was tuned on gfx942, but the target is gfx90a: hipBLASLt does not check "
        "this, and on gfx90a the row's index names another kernel → tune again on the target with its hipblaslt-bench "
        "(set HIPBLASLT_TUNING_FILE)",
        "  warning [cu-count] line 3, 5, 7: the row was tuned on a GPU with 304 CUs, but the target has 104 CUs, on "
        "which another solution may be faster → tune again on the target with its hipblaslt-bench (set "
        "HIPBLASLT_TUNING_FILE)",
    ]
    assert [x["line"] for x in note_rows([judged])] == [3, 3, 5, 5, 7, 7]
    assert [x["honoured"] for x in row_rows(judged)] == [False] * 3
    assert [x["read"] for x in row_rows(judged)] == [True] * 3


def test_tables_of_aiter_are_judged_by_a_servers_log(store: Store, tmp_path: Path) -> None:
    """``verify`` tells from a server's log which rows of aiter's tables of tuned kernels had an effect."""
    # The log has a line for each shape that aiter looked up. A row had an effect if this line names the row's kernel,
    # or says that the row was found without naming a kernel.
    table = "a8w8_bpreshuffle_tuned_gemm.csv"
    shape = "[aiter] shape is M:{}, N:1280, K:8192, q_dtype_w:torch.float8_e4m3fnuz,"
    missed = f" not found tuned config in /x/{table}, will use default config!\n"
    found = " found padded_M: {}, N:1280, K:8192 is tuned on cu_num = 304 in /x/" + table
    found += ", libtype is ck, kernel name is {}!\n"
    sizes = (1, 30, 300)
    (tmp_path / "a.log").write_text("".join(shape.format(m) + missed for m in sizes))
    after = [
        shape.format(1) + found.format(1, "a8w8_16"),
        shape.format(30) + found.format(32, "a8w8_64"),
        shape.format(300) + missed,
    ]
    (tmp_path / "b.log").write_text("".join(after))
    for run_ in "ab":
        ingest([str(tmp_path / f"{run_}.log")], store, run=run_)
    head = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
    rows = ((1, "a8w8_16"), (32, "a8w8_256"), (320, "a8w8_256"))
    body = "".join(f"gfx942,304,{m},1280,8192,torch.float8_e4m3fnuz,ck,34,0,20.5,{x},1,510,0.0\n" for m, x in rows)
    tuned = inspect(table, (head + body).encode(), {"arch": "gfx942", "cu_count": "304"})
    a, b = (Tables(run=run_, **store.frames(run_)) for run_ in "ab")
    effects = {problem_from_text(x.problem).n: x.effect for x in verify(a, b, [tuned]).outcomes}  # type: ignore[union-attr]
    assert effects == {1: "applied", 30: "not applied", 300: "not applied"}  # 30: another kernel ran; 300: no row
    assert {x.effect for x in verify(a, a, [tuned]).outcomes} == {"not applied"}
