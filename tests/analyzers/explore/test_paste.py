"""Tests of texts that a user can copy from the web page: a sentence, a command, a line for an override file.

An override file is the user's choice of kernels.
"""

# If there is no line for a matrix product, the page states the reason.

from __future__ import annotations

import math

import pandas as pd
import pytest

from analyzers.explore.load.job import PageVerdict
from analyzers.explore.page.paste import advice
from analyzers.explore.plain_text import percent, sentence
from analyzers.explore.point_table import tabulate_findings
from logparse.model import Finding, Override, Problem, Solution, UseRows
from tests.analyzers.example import W, gemm

HERE = {"arch": "gfx942", "cu_count": "304", "miopen_version": "3.4.0", "miopen_tweak": "7c1e0a9d2"}


@pytest.fixture
def told(example_points: pd.DataFrame) -> pd.Series:
    """Return what the web page knows of a weight gradient that takes three times as long as with the fastest kernel.

    The slow kernel is the library's own choice.
    """
    row = example_points[example_points["problem"] == W.text].iloc[0].copy()
    row["pick"], row["pick_us"], row["finding"] = "miopen:ConvDirectNaiveConvWrw", row["best_us"] * 3, None
    row["loss_us"], row["proposed"] = row["best_us"] * 2, None
    return row


def proposed(problem: Problem, solution: Solution, target: dict[str, str]) -> str:
    """Return the text that the web page shows in the column ``proposed`` if logparse advises to use this kernel."""
    override = Override(problem=problem, solution=solution, target=target, time_us=10.0, workspace_bytes=0)
    finding = Finding(analyzer="a", message="", problem=problem, remedy=UseRows(override))
    return str(tabulate_findings([finding])["proposed"].item())


def with_override(row: pd.Series, solver: str, algorithm: str, target: dict[str, str]) -> pd.Series:
    solution = Solution("miopen", solver, solver, f"miopenConvolutionBwdWeightsAlgo{algorithm}")
    row["proposed"] = proposed(W, solution, target)
    return row


def test_a_losing_pick_gets_the_row_that_the_library_reads(told: pd.Series) -> None:
    made = advice(with_override(told, "GemmWrwUniversal", "GEMM", HERE), HERE, PageVerdict())
    assert str(told["best"]) in made.sentence
    assert made.command.text.startswith("MIOpenDriver conv")
    assert str(told["best"]).partition(":")[2] in made.override.text
    assert made.override.name.endswith(".ufdb.txt")
    assert made.override.note == "for gfx942, 304 CUs"


def test_only_proposed_kernels_have_a_row_to_copy(told: pd.Series) -> None:
    """The web page offers a line for an override file only for kernels that ``logparse recommend`` proposes.

    An override file is the user's choice of kernels. A kernel that once took less time is not yet proven to be faster.
    """
    told["proposed"] = None
    made = advice(told, HERE, PageVerdict())
    assert (made.override.text, made.override.note) == (
        "",
        "None: the best known time is not a proven gain, so recommend writes no override",
    )
    assert advice(told, HERE).override.note == "there is no override yet, because the analyzers are still running"


def test_the_row_is_of_the_proposed_solution_not_of_the_fastest_time(told: pd.Series) -> None:
    made = advice(with_override(told, "ConvDirectNaiveConvWrw", "Direct", HERE), HERE, PageVerdict()).override
    assert "ConvDirectNaiveConvWrw" in made.text
    assert str(told["best"]).partition(":")[2] not in made.text


def test_unknown_facts_of_the_machine_are_listed(told: pd.Series) -> None:
    known = {"arch": "gfx942", "cu_count": "304"}
    made = advice(with_override(told, "GemmWrwUniversal", "GEMM", known), known, PageVerdict())
    assert not made.override.text
    assert "miopen_version of the target is unknown" in made.override.note


def test_the_best_pick_needs_nothing(told: pd.Series) -> None:
    told["pick"], told["pick_us"], told["loss_us"], told["proposed"] = told["best"], told["best_us"], 0.0, None
    made = advice(told, HERE, PageVerdict())
    assert "nothing to do" in made.sentence
    assert not made.override.text
    assert "the job already runs the fastest known solution" in made.override.note


def test_a_pick_alone_is_not_called_the_best(told: pd.Series) -> None:
    told["pick"], told["pick_us"], told["loss_us"], told["basis"] = told["best"], math.nan, math.nan, "default"
    told["proposed"] = None
    made = advice(told, {}, PageVerdict())
    assert "there is nothing to compare it with" in made.sentence
    assert made.override.note == "None: only the solution that the job runs is timed"
    told["basis"] = "incomparable"  # the same index in another build is another solution
    assert "The library's pick is not timed" in advice(told, {}, PageVerdict()).sentence


def test_no_gain_is_claimed_if_the_device_of_the_calls_is_unknown(told: pd.Series) -> None:
    """No log names the GPU of the calls, and the run's files name two. The best time is shown with its file."""
    told["apart"], told["file"] = True, "gfx942130.HIP.fdb.txt"
    said = advice(told, HERE, PageVerdict()).sentence
    assert "in gfx942130.HIP.fdb.txt. No log states the device of this run's calls" in said
    assert "no gain is claimed" in said


def test_nvidia_has_no_bench_command(told: pd.Series) -> None:
    made = advice(told, {"arch": "sm_90"}, PageVerdict())
    assert not made.command.text
    assert "logparse replay" in made.command.note


def test_a_finding_is_a_sentence_with_its_remedy(told: pd.Series) -> None:
    told["finding"], told["advice"] = "the library hints: 'pad it to 8.'", "pad 50257 to 50264"
    assert advice(told, HERE, PageVerdict()).sentence == "The library hints: 'pad it to 8.' Pad 50257 to 50264."


def test_a_call_through_the_cpp_class_gets_a_second_row() -> None:
    """For a bf16 call through hipBLASLt's C++ class, the web page offers a second line for the override file.

    An override file is the user's choice of kernels.
    """
    # The log line of such a call has --api_method cpp. Up to version 1.2.2, hipBLASLt then looks for a line with the
    # compute type f32_bf16_r instead of f32_r.
    problem = gemm(a_type="bf16_r")
    texts = {"problem": problem.text, "best": "hipblaslt:7", "pick": "hipblaslt:1", "finding": None, "basis": "trace"}
    row = {
        **texts,
        "best_us": 10.0,
        "pick_us": 20.0,
        "time_us": 20.0,
        "then_us": 10.0,
        "loss_us": 10.0,
        "saving_from": "measured",
        "apart": False,
        "w_us": None,
    }
    facts = {"arch": "gfx942", "cu_count": "304", "hipblaslt_revision": "3b3d59eb", "hipblaslt_version": "100202"}
    row["proposed"] = proposed(problem, Solution("hipblaslt", "7", "7"), facts)

    def pasted(*called: Problem) -> list[str]:
        made = advice(row, facts, PageVerdict(objects=tuple(x.text for x in called)))
        return [x for x in made.override.text.splitlines() if ",7," in x]

    assert len(pasted()) == len(pasted(gemm(m=2048, a_type="bf16_r"))) == 1
    one, other = pasted(problem)
    assert (",f32_r," in one, ",f32_bf16_r," in other) == (True, True)
    assert "C++ class Gemm" in advice(row, facts, PageVerdict(objects=(problem.text,))).override.note


def test_words_for_people() -> None:
    assert [percent(x) for x in (None, 0.0, 0.00005, 0.0036, 0.026, 0.0996, 0.93)] == [
        *("unknown", "0%", "<0.1%", "0.4%", "2.6%", "10%", "93%")
    ]
    assert sentence("gfx942130.HIP.fdb.txt: 7 are slow") == "gfx942130.HIP.fdb.txt: 7 are slow."
    assert sentence("miopen:Conv takes 3 ms.") == "miopen:Conv takes 3 ms."
    assert sentence("") == ""
