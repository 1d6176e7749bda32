"""Tests of reading MIOpen's log and what MIOpenDriver prints."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.kinds.line_prefixes import SHARED
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.model import Call, ConvProblem, Fact, Measurement, Message, Record, Reject
from tests import conftest
from tests.conftest import needs_corpus
from tests.libraries.miopen.streams import read

CORPUS, SAMPLES = conftest.CORPUS / "miopen", conftest.SAMPLES / "miopen"
KEY = "256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W_g32"


def rows(records: list[Record]) -> list[tuple[str, str, str, float | None, int | None]]:
    return [
        (r.origin, r.solution.id, r.status, r.time_us and round(r.time_us, 3), r.workspace_bytes)
        for r in records
        if isinstance(r, Measurement)
    ]


IMMEDIATE = """\
MIOpen(HIP): Info [AmdRocmMetadataVersionDetect] ROCm MD version AMDHSA_COv3, HIP version 7.2.53211, \
MIOpen version 3.5.1.
MIOpen(HIP): Info [CompileSolution] solver_id = GemmWrwUniversal
MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 1 -c 16 -H 14 -W 14 -k 32 -y 3 -x 3 -p 1 -q 1 \
-u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 4 -t 1 -S 0
MIOpen(HIP): Info [ConvolutionWrwImmediate] solver_id = GemmWrwUniversal, workspace = 56448
"""
"""Log lines of MIOpen 3.5.1 about calls in its immediate mode, in which it chooses a solver without a search."""


def test_a_call_of_immediate_mode_names_its_solver() -> None:
    records, units = read((IMMEDIATE * 2).encode())
    assert units == {"call": 2, "fact": 2, "message": 2, "measurement": 2}
    chosen = [r for r in records if isinstance(r, Measurement)]
    assert rows(records) == [("miopen-chosen", "GemmWrwUniversal", "no_time", None, 56448)] * 2
    calls = {r.problem.text for r in records if isinstance(r, Call)}
    assert {r.problem.text for r in chosen} == calls
    assert Fact("miopen_tweak", "") in records


def test_a_call_whose_command_is_missing_is_not_of_the_last_look_up() -> None:
    line = IMMEDIATE.splitlines(keepends=True)[-1]
    look_up = f'MIOpen(HIP): Info2 [FindRecordUnsafe] Looking for key {KEY} in cache for file "x.ufdb.txt"\n'
    assert not rows(read((look_up + line).encode())[0])


def test_the_command_states_the_problem_where_no_key_does() -> None:
    text = (
        "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n 128 -c 192 -H 17 -W 17 -k 192 "
        "-y 3 -x 3 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 4 -t 1\n"
        "MIOpen(HIP)   0.1: Info [x] not ours: the blank\n"
        "MIOpen(HIP)   0.100: Info [EvaluateInvokers] GemmWrwUniversal: : 8.5 < 3.40282e+38\n"
        "MIOpen(HIP)   0.100: Info [EvaluateInvokers] solution(current vs best):ConvX: a/b: 0.5 >= 0.2\n"
        "MIOpen(HIP)   0.100: Info [EvaluateInvokers] GemmFwdRest: : 1 < 2\n"
    )
    records, units = read(text)
    assert rows(records) == [
        ("miopen-log", "GemmWrwUniversal", "ok", 8500.0, None),
        ("miopen-log", "ConvX", "ok", 500.0, None),
    ]
    # a forward solver belongs to another find
    assert units == {"call": 1, "foreign": 1, "measurement": 2, "message": 1}


def test_times_of_a_fallback_are_no_measurements() -> None:
    look_up = (
        f'MIOpen(HIP): Info2 [FindRecordUnsafe] Looking for key {KEY} in cache for file "/x/gfx942130.HIP.fdb.txt"\n'
    )
    chosen = "MIOpen(HIP): Info [FillFindReturnParameters] BWrW Chosen Algorithm: GemmWrwUniversal , 12, 20\n"
    fallback = "MIOpen(HIP): Info2 [GetSolutionsFallback] Using TunaNet Fallback\n"
    assert rows(read(look_up + chosen)[0]) == [("miopen-chosen", "GemmWrwUniversal", "ok", 20000.0, 12)]
    records, _ = read(look_up + fallback + chosen)
    assert rows(records) == [("miopen-chosen", "GemmWrwUniversal", "no_time", None, 12)]
    assert any("estimate" in (r.error or "") for r in records if isinstance(r, Measurement))


def test_threads_keep_their_finds_apart() -> None:
    other = KEY.replace("-64-", "-32-")
    text = "".join(
        f"host {tid} MIOpen(HIP): Info [SetValues] {key}, content inserted: a:1,0,miopenConvolutionBwdWeightsAlgoGEMM\n"
        for tid, key in ((1, KEY), (2, other))
    ) + "".join(f"host {tid} MIOpen(HIP): Info [EvaluateInvokers] GemmWrwX: : 1 < 2\n" for tid in (1, 2))
    records, _ = read(text)
    assert [r.key_text for r in records if isinstance(r, Measurement)] == [KEY, other, KEY, other]


def thread(height: int, ms: float) -> list[str]:
    """Return what one thread writes to MIOpen's log at level 5, including the driver commands.

    The thread makes one search for solvers (Find), two calls in immediate mode, and one call with an algorithm.
    """
    command = (
        f"./bin/MIOpenDriver conv -n 2 -c 16 -H {height} -W 8 -k 16 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 "
        "-m conv -g 1 -F 1 -t 1"
    )
    key = f"16-{height}-8-3x3-16-{height}-8-2-1x1-1x1-1x1-0-NCHW-FP32-F"
    call = f"MIOpen(HIP): Command [LogCmdConvolution] {command}"
    ran = f"MIOpen(HIP): Info [ConvolutionForwardImmediate] solver_id = GemmFwdRest, workspace = {height}"
    return [
        f"MIOpen(HIP): Command [LogCmdFindConvolution] {command}",
        f"MIOpen(HIP): Info [FindConvolution] Find Start: {key}, findMode: DYNAMIC_HYBRID(5)",
        f"MIOpen(HIP): Info [EvaluateInvokers] GemmFwdRest: : {ms} < 3.40282e+38",
        f"MIOpen(HIP): Info [EvaluateInvokers] Selected: GemmFwdRest: : {ms}, workspace_sz = {height}",
        f"MIOpen(HIP): Info [EvaluateInvokers] ConvDirectNaiveConvFwd: naive_conv: {2 * ms} < 3.40282e+38",
        f"MIOpen(HIP): Info [FindConvolution] Find Ended: {key}",
        f"MIOpen(HIP): Info [FillFindReturnParameters] FW Chosen Algorithm: GemmFwdRest , {height}, {ms}",
        *(call, ran, call, ran, call, "MIOpen(HIP): Info [ConvolutionForward] algo = 1, workspace = 0"),
    ]


def read_times(lines: list[str]) -> set[tuple[str, ...]]:
    records, _ = read("\n".join(lines) + "\n")
    found = [r for r in records if isinstance(r, Measurement)]
    return {(r.problem.text, r.solution.id, r.origin, str(r.time_us), str(r.workspace_bytes)) for r in found}


@given(st.permutations([0] * 13 + [1] * 13), st.sampled_from(["", "[rank{}]: ", "[default{}]:", "(Worker pid={}) "]))
def test_times_of_ranks_are_not_confused(order: list[int], mark: str) -> None:
    """If several ranks write into one MIOpen log, no convolution gets the time of another rank's convolution.

    If each line begins with its rank, every time is read. Otherwise a time may be left out.
    """
    ranks = thread(8, 0.25), thread(40, 64)
    both = read_times(ranks[0]) | read_times(ranks[1])
    assert len(both) == 8
    left = tuple(iter(lines) for lines in ranks)
    found = read_times([mark.format(rank) + next(left[rank]) for rank in order])
    assert {row[:4] for row in found} <= {row[:4] for row in both}
    if mark:
        assert found == both


def test_times_of_simultaneous_searches_are_left_out() -> None:
    """If two searches for solvers run at once in a log, their times are left out, and a remark says so."""
    # It would be unclear to which search a time belongs. Times after the end of the first search are not given to the
    # second one either.
    one, other = thread(8, 0.25), thread(40, 64)
    records, units = read("\n".join([*one[:2], *other[:2], *one[2:7], *other[2:7]]))
    assert [r.problem.n for r in records if isinstance(r, Measurement)] == [2, 2]
    assert sum(isinstance(r, Message) and r.text == SHARED for r in records) == 4
    assert units["reject"] == 0


@pytest.mark.parametrize("digits", [19, 5000])
def test_a_workspace_with_too_many_digits_is_rejected(digits: int) -> None:
    """A size of a workspace with too many digits is rejected without an error.

    Python raises an error for numbers of more than 4,300 digits.
    """
    size = "9" * digits
    log = f"""\
./bin/MIOpenDriver conv -n 8 -F 1
MIOpen(HIP): Info [ConvolutionForward] FW Chosen Algorithm: GemmFwdRest , {size}, 8.5
Forward Conv solutions available: 1
- id: 16 algo: 1, time: 4.0 ms, ws: {size}, name: ConvAsm3x3U
"""
    records, _ = read(log)
    assert not any(isinstance(x, Measurement) for x in records)


def test_lines_of_the_driver_inside_the_log_are_messages() -> None:
    text = (
        "MIOpen(HIP): MIOpenDriver Info2 [GPUMem] hipMalloc 53218620 at 0x7f4888367000 Ok\n"
        "MIOpen(HIP): MIOpenDriver Info2 [DebugPrintWorkspaceDev] ptr=0 size=0\n"
    )
    records, units = read(text)
    assert units == {"message": 2}
    assert [(m.category, m.function) for m in records if isinstance(m, Message)] == [
        ("miopen_info2", "GPUMem"), ("miopen_info2", "DebugPrintWorkspaceDev")
    ]  # fmt: skip


@needs_corpus
@pytest.mark.parametrize("name", ["find_F_level6.log.gz", "find_W_level6.log.gz"])
def test_logs_of_the_real_library(name: str) -> None:
    data = gzip.decompress((CORPUS.parent / "realrocm" / "miopen-3.5.1" / name).read_bytes())
    _, units = read(data)
    assert units["reject"] == 0
    assert units["call"] == 3


def test_lines_of_api_blocks_are_messages() -> None:
    records, units = read(
        "MIOpen(HIP): miopenStatus_t miopenCreate(miopenHandle_t *){\nMIOpen(HIP): \thandle = 0x7fffaa00\n"
    )
    assert [(x.category, x.text.strip()) for x in records if isinstance(x, Message)] == [
        ("miopen_api", "miopenStatus_t miopenCreate(miopenHandle_t *){"),
        ("miopen_api", "handle = 0x@"),
    ]
    assert units == {"message": 2}


def test_driver_output() -> None:
    records, units = read((SAMPLES / "driver_output.txt").read_bytes())
    assert units == {"call": 2, "message": 4, "fact": 2, "measurement": 11}
    measured = [r for r in records if isinstance(r, Measurement)]
    assert [
        (r.origin, r.problem.direction, r.solution.id, r.status) for r in measured if isinstance(r.problem, ConvProblem)
    ] == [
        ("driver", "F", "ConvBinWinogradRxSf3x2", "ok"),
        ("driver-list", "W", "GemmWrwUniversal", "no_time"),
        ("driver-list", "W", "ConvDirectNaiveConvWrw", "no_time"),
        ("driver", "W", "GemmWrwUniversal", "ok"),
    ]
    assert measured[-1].problem == problem_from_key(KEY)
    assert measured[-1].workspace_bytes == 6422528
    assert measured[-1].solution.algorithm == "miopenConvolutionBwdWeightsAlgoGEMM"
    facts = {r.name: r.value for r in records if isinstance(r, Fact)}
    assert facts["device"] == "AMD Instinct MI300X"
    assert all(r.by_tool for r in records if isinstance(r, Call))


def test_a_failed_verification_is_wrong_not_slow() -> None:
    text = (
        "MIOpenDriver convfp16 -n 4 -c 8 -F 4\n"
        "MIOpen Backward Weights Conv. Algorithm: 1, Solution: 25/ConvOclBwdWrW1x1 \n"
        "GPU Kernel Time Backward Weights Conv. Elapsed: 0.5 ms (average)\n"
        "Backward Convolution Weights FAILED: 0.163441 > 0.0164\n"
    )
    assert rows(read(text)[0]) == [("driver", "ConvOclBwdWrW1x1", "wrong", 500.0, None)]


def test_output_whose_command_was_damaged_is_of_an_unknown_problem() -> None:
    text = (
        "MIOpenDriver conv -n 4x -c 8 -F 4\nMIOpen Backward Weights Conv. Algorithm: 1, Solution: 25/ConvOclBwdWrW1x1\n"
    )
    records, units = read(text)
    assert units == {"reject": 1, "measurement": 1}
    assert [r.text for r in records if isinstance(r, Message)] == ["W of an unknown problem: ConvOclBwdWrW1x1"]


@needs_corpus
@pytest.mark.parametrize("path", sorted([*CORPUS.glob("log*"), *CORPUS.glob("driver*")]), ids=lambda p: p.name)
def test_corpus_lines_that_bear_a_marker_are_read(path: Path) -> None:
    records, units = read(path.read_bytes())
    assert units["foreign"] == 0
    rejects = [r.reason for r in records if isinstance(r, Reject)]
    # Two commands of this excerpt were cut by hand, already in the public text.
    assert len(rejects) == (2 if path.name == "log_therock_plain_prefix.txt" else 0)


@needs_corpus
def test_corpus_measurements() -> None:
    def of(name: str) -> list[tuple[str, str, str, float | None, int | None]]:
        return rows(read((CORPUS / name).read_bytes())[0])

    assert of("log_level5_find_gfx906_mlir_wrw.issue2017.log") == [
        ("miopen-log", "GemmWrwUniversal", "ok", 8560.64, 442368),
        ("miopen-log", "ConvOclBwdWrW2NonTunable", "ok", 13641.2, 169869312),
        ("miopen-log", "ConvDirectNaiveConvWrw", "ok", 28036.1, None),
    ]
    assert of("driver_fwd_rocm7_windows.issue1899.out") == [("driver", "ConvWinoFuryRxS<2-3>", "ok", 10839.644, None)]
    assert of("driver_wrw_rocm37_to_42.issue437_issue670.out") == [
        ("driver", "ConvHipImplicitGemmV4R1WrW", "wrong", 6782.609, None),
        ("driver", "ConvOclBwdWrW1x1", "wrong", None, None),
    ]
    assert [row[3] for row in of("driver_three_directions_old.issue97.out")] == [19.243, 23.737, 114.917]
    assert [row[1] for row in of("log_legacy_setvalues.issue1110_issue77.log")] == ["ConvOclDirectFwd", "gemm"]
