"""Test of all of logparse with the real hipBLASLt, from a job's log to the proof that the job got faster.

The virtual GPU gives each kernel the time that the test chooses.
"""

# logparse writes a tuning file that makes the job faster. The times are chosen, so the right result is known. Each
# matrix product has about a dozen kernels.

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from logparse.libraries.hipblaslt.tuning_file import TUNING_COLUMNS
from logparse.model import GemmProblem
from tests.conformance.loop import BEST_US, OTHER_US, OWN_US, Loop
from tests.conformance.rocm import Rocm
from tests.conformance.test_hipblaslt_files import GIT, entry

BF16, F32 = 14, 0
CALL = ["T", "N", 96, 64, 128, 1, [BF16, BF16, F32, F32], 2, 0]
CALLS = 40


@pytest.fixture
def loop(rocm: Rocm, tmp_path: Path) -> Loop:
    return Loop(rocm, tmp_path)


def solutions(loop: Loop) -> dict[int, str]:
    """Return the kernels that hipBLASLt offers for the matrix product: {index: part of the kernel's name}.

    The library's own choice is first. The part of the name occurs in no other kernel's name.
    """
    lines = loop.run(*loop.job("hipblaslt_job", CALL, 1, 20)).splitlines()
    return {index: launches[0] for index, launches in map(json.loads, lines)}


def before(loop: Loop) -> None:
    """Run the job under ``logparse capture``, then measure the real library's kernels with ``logparse replay``."""
    loop.capture("before", loop.job("hipblaslt_job", CALL, CALLS))
    loop.replay("hipblaslt")


def test_the_planted_best_is_found_written_used_and_verified(loop: Loop) -> None:
    """logparse finds the fastest correct kernel, writes it to a file, and verifies that the job uses it.

    Some kernels are traps: one is faster but computes wrong values, others hang or crash. The clock is unsteady, too.
    """
    words = solutions(loop)
    best, *faulty = loop.plant_product(words, better=True)
    before(loop)
    loop.faults_found("hipblaslt", *faulty)
    loop.logparse("recommend")
    (tuning,) = loop.folder.glob("overrides/*/hipblaslt_tuning.txt")
    assert f",{best},gfx90a" in tuning.read_text(encoding="utf-8")
    lines = loop.launches("after", loop.job("hipblaslt_job", CALL, CALLS), f". {tuning.parent / 'apply.sh'}")
    assert [line.startswith(words[best].split()[0]) for line in lines] == [True] * CALLS
    verdict = loop.logparse("verify", "before", "after", str(tuning))
    assert verdict.startswith("verify: took effect: ")


def test_nothing_better_is_nothing_worth_doing(loop: Loop) -> None:
    loop.plant_product(solutions(loop), better=False)
    before(loop)
    assert "nothing worth doing" in loop.logparse("recommend")
    assert not list(loop.folder.glob("overrides/*/hipblaslt_tuning.txt"))


def test_a_row_also_serves_a_size_between_two_measured_sizes(loop: Loop) -> None:
    """``recommend --ladder`` also makes calls faster whose size lies between two measured sizes."""
    # Products with n = 64 and n = 96 were measured. The line that is written for 96 also applies to a call with n = 80,
    # for which the library's own choice is slow, too.
    words = solutions(loop)
    own, best = list(words)[:2]
    times = ((OWN_US, words[own]), (BEST_US, words[best]), (OTHER_US, "Cijk_A"), (2, "PostGSU"))
    loop.plant(times)
    low, high, between = ([*CALL[:3], n, *CALL[4:]] for n in (64, 96, 80))
    jobs = " && ".join(shlex.join(loop.job("hipblaslt_job", call, CALLS)) for call in (low, high))
    loop.capture("before", ["bash", "-c", jobs])
    printed = loop.replay("hipblaslt", "--ladder", "16")
    assert f"to n = 96: hipblaslt:{best} regret " in printed
    assert loop.logparse("recommend", "--ladder", "16").count("ladder   1 row on 1 of 1 rungs") == 1
    (script,) = loop.folder.glob("overrides/*/apply.sh")
    lines = loop.launches("after", loop.job("hipblaslt_job", between, CALLS), f". {script}")
    assert [line.startswith(words[best].split()[0]) for line in lines] == [True] * CALLS


def test_bisect_names_both_rows_of_a_kernel(loop: Loop) -> None:
    """``logparse bisect`` names both rows of a file that make the library run a certain kernel.

    Both rows are for the same product. If the first one is left out, the library uses the second one.
    """
    index = list(solutions(loop))[1]
    types = {"a_type": "bf16_r", "b_type": "bf16_r", "c_type": "f32_r", "d_type": "f32_r", "compute_type": "f32_r"}
    call = GemmProblem(trans_a="T", trans_b="N", m=96, n=64, k=128, batch_count=1, **types)  # type: ignore[arg-type]
    rows = [replace(call, m=m) for m in (32, 48, 96, 160, 96, 192)]
    lines = [GIT, *(line for row in rows for line in entry(row, index, TUNING_COLUMNS))]
    (loop.folder / "tuning.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    check = f"! {shlex.join(loop.job('hipblaslt_job', CALL, 1))} | grep -q '^.{index},'"
    done = loop.run(sys.executable, "-m", "logparse", "bisect", "tuning.txt", "--check", check).splitlines()
    assert done[0].startswith("2 rows of 6 make the check fail (")
    assert [line.split(":")[0] for line in done[1:3]] == ["  line 7", "  line 11"]
    assert done[3].startswith("confirmed: ")
