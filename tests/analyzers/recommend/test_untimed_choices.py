"""Tests of what ``recommend`` says if MIOpen's log names kernels that nothing timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program import run

COMMAND = (
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convbfp16 -n 8 -c 96 -H 40 -W 40 -k 48 -y 3 -x 3 "
    "-p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F {forw} -t 1 -S 0\n"
)
RAN = "MIOpen(HIP): Info [{function}] solver_id = {solver}, workspace = 4096\n"
FORWARD = RAN.format(function="ConvolutionForwardImmediate", solver="GemmFwdRest")
NAIVE = RAN.format(function="ConvolutionWrwImmediate", solver="ConvDirectNaiveConvWrw")
CHOSEN = "MIOpen(HIP): Info [FindConvFwdAlgorithm] FW Chosen Algorithm: GemmFwdRest , 4096, 0.5\n"
LOST = (
    "MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, workspace required: 4096, "
    "provided ptr: 0 size: 0\n"
)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            (COMMAND.format(forw=1) + FORWARD) * 3,
            "MIOpen chose the kernels of 1 problem without timing any, and nothing was timed with more than one kernel",
        ),
        (FORWARD * 3, "MIOpen's log names 3 choices of a kernel, but does not name the convolutions"),
        (FORWARD * 3 + NAIVE * 2, "names 5 choices of a kernel, 2 of them slow naive kernels, but does not name"),
        (CHOSEN, "MIOpen's log names 1 choice of a kernel, but does not name"),
        (LOST * 4, "MIOpen's log has 4 warnings of too little workspace, but does not name the convolutions"),
        (
            "MIOpen(HIP): Info [SetStream] stream: 0, device_id: 0\n",
            "the run holds no calls and no times of matrix products or convolutions",
        ),
    ],
    ids=["immediate mode", "without commands", "naive kernels", "a search without a key", "warnings", "nothing"],
)
def test_a_log_of_choices_without_times_says_what_is_known(
    log: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "miopen.log").write_text(log, encoding="utf-8")
    run("ingest", "miopen.log", "--run", "r")
    text = " ".join(run("recommend").stdout.split())
    assert "no verdict: " in text
    assert said in text
    assert "not used" not in text, "a line that names the library's choice is used"


def test_a_timed_choice_is_not_called_untimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = "96-40-40-3x3-48-40-40-8-1x1-1x1-1x1-0-NCHW-BF16-F"
    (tmp_path / "miopen.log").write_text(COMMAND.format(forw=1) + FORWARD, encoding="utf-8")
    (tmp_path / "gfx942130.HIP.fdb.txt").write_text(
        f"{key}=GemmFwdRest:0.5,4096,miopenConvolutionFwdAlgoGEMM\n", encoding="utf-8"
    )
    run("ingest", "miopen.log", "gfx942130.HIP.fdb.txt", "--run", "r")
    assert "without timing" not in " ".join(run("recommend").stdout.split())
