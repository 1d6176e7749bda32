"""Tests of the names that TunableOp gives to kernels.

For a cuBLASLt algorithm, the name has a number for each setting. The numbers are compared with what cuBLASLt itself
prints.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.cublaslt import log as cublaslt
from logparse.libraries.cublaslt.names import ATTRIBUTES, CLUSTERS, STAGES, TILES, algorithm_text, algorithm_values
from logparse.libraries.tunableop.solutions import hipblaslt_index, name, solution, why_no_candidate
from logparse.model import DEFAULT, GemmProblem, Solution

GEMM = GemmProblem(trans_a="T", trans_b="N", m=1, n=2, k=3, batch_count=1, a_type="bf16_r", bias=False)
NEW = {"validator:PT_VERSION": "2.14.0"}

# Pairs of attributes, read through cublasLtMatmulAlgoConfigGetAttribute, and the Trace line of the same launch. The
# attributes are id, tile, stages, splitk, reduction, swizzle, custom, inner and cluster. cuBLASLt 13.1, NVIDIA H200.
PAIRS = [
    (
        (66, 209, 35, 1, 0, 0, 4, 0, 3),
        "algoId=66 tile=MATMUL_TILE_192x192 stages=MATMUL_STAGES_64xAUTO customOption=4"
        " clusterShape=CLUSTER_SHAPE_2x1x1",
    ),
    (
        (66, 31, 35, 1, 0, 0, 7, 0, 9),
        "algoId=66 tile=MATMUL_TILE_192x128 stages=MATMUL_STAGES_64xAUTO customOption=7"
        " clusterShape=CLUSTER_SHAPE_2x4x1",
    ),
    (
        (66, 448, 35, 1, 0, 0, 1, 0, 4),
        "algoId=66 tile=MATMUL_TILE_192x8 stages=MATMUL_STAGES_64xAUTO customOption=1 clusterShape=CLUSTER_SHAPE_4x1x1",
    ),
    ((24, 20, 0, 1, 0, 0, 0, 0, 0), "algoId=24 tile=MATMUL_TILE_128x128"),
    (
        (24, 24, 0, 19, 1, 0, 0, 0, 0),
        "algoId=24 tile=MATMUL_TILE_256x128 reductionScheme=REDUCTION_SCHEME_INPLACE numSplitsK=19",
    ),
    (
        (24, 20, 0, 8, 4, 0, 0, 0, 0),
        "algoId=24 tile=MATMUL_TILE_128x128 reductionScheme=REDUCTION_SCHEME_OUTPUT_TYPE numSplitsK=8",
    ),
    (
        (42, 15, 35, -1, 2, 1, 0, 0, 2),
        "algoId=42 tile=MATMUL_TILE_64x64 stages=MATMUL_STAGES_64xAUTO reductionScheme=REDUCTION_SCHEME_COMPUTE_TYPE"
        " numSplitsK=-1 ctaSwizzling=1 clusterShape=CLUSTER_SHAPE_1x1x1",
    ),
]
WORDS = ("id", "tile", "stages", "splitk", "red", "swizzle", "custom", "inner", "cluster")


@pytest.mark.parametrize(("numbers", "trace"), PAIRS)
def test_a_tunableop_name_and_a_trace_line_are_one_solution(numbers: tuple[int, ...], trace: str) -> None:
    text = "Gemm_Cublaslt_" + "_".join(f"{word}_{value}" for word, value in zip(WORDS, numbers, strict=True))
    from_log = cublaslt.solution(trace)
    assert from_log is not None
    assert solution(text).text == from_log.text
    assert name(from_log, GEMM, NEW) == text


@given(
    st.builds(
        lambda *numbers: dict(zip([x[0] for x in ATTRIBUTES], numbers, strict=True)),
        st.integers(0, 99), st.integers(0, 800), st.integers(0, 60), st.integers(-1, 99), st.sampled_from([0, 1, 2, 4]),
        st.integers(0, 3), st.integers(0, 99), st.integers(0, 6), st.integers(0, 60),
    )
)  # fmt: skip
def test_algorithm_numbers_to_text_to_numbers(values: dict[str, int]) -> None:
    assert algorithm_values(algorithm_text(values)) == values


def test_enum_anchors() -> None:
    assert [TILES[n] for n in (0, 36, 209, 311, 312, 630, 634)] == [
        "UNDEFINED", "8x128", "192x192", "768x64", "64x16", "768x80", "512x1024"
    ]  # fmt: skip
    assert (len(TILES), len(set(TILES.values()))) == (635, 635)
    assert (STAGES[29], STAGES[35], CLUSTERS[3], CLUSTERS[51], len(CLUSTERS)) == (
        "16x80", "64xAUTO", "2x1x1", "1x15x1", 51
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Default", "Default"),
        ("Gemm_Hipblaslt_477479", "hipblaslt:477479"),
        ("Gemm_Hipblaslt_TN_12683", "hipblaslt:12683"),
        ("Gemm_Rocblas_-621296644", "rocblas:-621296644"),
        ("Gemm_Ck_3", "torch:Gemm_Ck_3"),
        ("Default ", "torch:Default "),
    ],
)
def test_names(text: str, canonical: str) -> None:
    assert solution(text).text == canonical


def test_names_in_the_dialect_of_the_target() -> None:
    hip = Solution("hipblaslt", "7")
    assert name(hip, GEMM, {"validator:PT_VERSION": "2.6.0"}) == "Gemm_Hipblaslt_TN_7"
    assert name(hip, GEMM, {"validator:PT_VERSION": "2.7.0"}) == "Gemm_Hipblaslt_7"
    assert name(DEFAULT, GEMM, {}) == "Default"
    with pytest.raises(ValueError, match="version is unknown"):
        name(hip, GEMM, {})
    with pytest.raises(ValueError, match=r"from version 2\.14"):
        name(Solution("cublaslt", "id=24"), GEMM, {"validator:PT_VERSION": "2.13.0"})


def test_which_ops_have_which_candidates() -> None:
    bias = GemmProblem(a_type="bf16_r", bias=True)
    scaled = GemmProblem(a_type="f8_r", bias=False)
    complex_ = GemmProblem(a_type="f32_c", bias=False)
    assert why_no_candidate(Solution("rocblas", "3"), GEMM) is None
    assert why_no_candidate(Solution("rocblas", "3"), bias)
    assert why_no_candidate(Solution("rocblas", "3"), scaled)
    assert why_no_candidate(Solution("hipblaslt", "3"), complex_)
    assert why_no_candidate(Solution("miopen", "GemmBwd1x1"), GEMM)
    assert why_no_candidate(DEFAULT, bias) is None


def test_the_kernel_behind_a_rocblas_index() -> None:
    assert hipblaslt_index(Solution("rocblas", "477480"), "5.2.0.5b515cf1bc") == 477479
    assert hipblaslt_index(Solution("rocblas", "477480"), "4.4.0.80e5394d") is None
    assert hipblaslt_index(Solution("rocblas", "-9"), "5.2.0") is None
    assert hipblaslt_index(Solution("rocblas", "477480"), "") is None
