"""Tests of reading the lines that the library Tensile prints about each launch of a kernel.

Only they show which kernel each matrix product of rocBLAS ran.
"""

from __future__ import annotations

from logparse.libraries.rocblas import logs as rocblas
from logparse.libraries.tensile import launches
from logparse.model import Call, GemmProblem, Message
from tests.conftest import SAMPLES
from tests.libraries.reading import read_lines

TEXT = (SAMPLES / "rocblas/launches.txt").read_text()
TARGET = {"rocblas_version": "5.2.0"}


def calls(text: str = TEXT) -> list[Call]:
    found, _ = read_lines(text, [launches.FORMAT])
    return [x for x in found if isinstance(x, Call)]


def test_each_product_is_a_call_with_its_kernel() -> None:
    one, again, split, preloaded = calls()
    assert one == again
    assert one.solution is not None
    assert one.solution.text.startswith("tensile:Cijk_Alik_Bjlk_BBS_BH_MT128x256x32_")
    assert one.problem.label == "TT 96×64×128 bf16_r"
    assert preloaded.problem.label == "NN 96×64×128 f32_r"
    assert split.problem.label == "TN 96×64×4096 b3 f16_r β≠0"


def test_a_launch_has_the_key_of_its_override_row() -> None:
    """From a kernel launch that Tensile prints, logparse computes which line of an override file is for this call.

    An override file is the user's choice of kernels.
    """
    # A line states all properties of the matrix product, and Tensile prints all of them. This includes the strides of
    # the output if the product is split along K and another kernel adds up the parts.
    one, _, split, _ = calls()
    assert rocblas.key(one.problem, TARGET) == "T,T,96,64,1,128,1,0,128,64,96,bf16_r,bf16_r,f32_r"
    assert isinstance(split.problem, GemmProblem)
    assert (split.problem.ldd, split.problem.stride_d, split.problem.beta) == (100, 6400, "nonzero")


def test_every_line_is_accounted_for_and_a_cut_launch_is_a_message() -> None:
    found, units = read_lines(TEXT, [launches.FORMAT])
    assert sum(units.values()) == len(TEXT.splitlines())
    assert units["foreign"] == 3
    (cut,) = (x for x in found if isinstance(x, Message))
    assert cut.text.endswith("(its arguments are cut off)")


def test_slices_without_their_sum_and_a_sum_without_slices_are_no_call() -> None:
    first, second = TEXT.index("Kernel Cijk_Alik_Bljk_HHS"), TEXT.index("Kernel Cijk_H_PostGSU4")
    assert calls(TEXT[first:second]) == []
    assert calls(TEXT[second : TEXT.index("step 1")]) == []
