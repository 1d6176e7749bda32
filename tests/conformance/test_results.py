"""Tests that logparse accepts the results of real kernels, with epilogues, scales, groups and 3-D convolutions.

The virtual GPU really computes the kernels, so each result is compared with a reference as on a GPU.
"""

# Some kernels write a matrix and a vector besides the result D. These are checked, too.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from logparse.libraries.hipblaslt import bench, log, profile
from logparse.libraries.kinds.correctness import error_bound
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.links import find_link_level
from logparse.model import Call, GemmProblem, Problem
from tests.conformance.loop import Loop
from tests.conformance.rocm import Rocm

GFX90A = {"VGPU_ARCH": "gfx90a:sramecc+:xnack-", "VGPU_CUS": "104"}
GFX1201 = {"VGPU_ARCH": "gfx1201", "VGPU_CUS": "64"}
"""The only GPU in Debian's build of the libraries whose matrix units can multiply 8-bit floats."""
KEPT: Mapping[str, Any] = {"aux": True, "aux_type": "f16_r"}
SUMS: Mapping[str, Any] = {"gradient": True, "bias": True, "bias_type": "f32_r"}
EPILOGUES: Mapping[str, Mapping[str, Any]] = {
    "GELU_BIAS": {"activation": "gelu", "bias": True, "bias_type": "f16_r"},
    "RELU_AUX": {"activation": "relu", **KEPT},
    "GELU_AUX": {"activation": "gelu", **KEPT},
    "GELU_AUX_BIAS": {"activation": "gelu", "bias": True, "bias_type": "f16_r", **KEPT},
    "DGELU": {"activation": "gelu", "gradient": True, **KEPT},
    "DGELU_BGRAD": {"activation": "gelu", **KEPT, **SUMS, "bias_source": "d"},
    "BGRADA": {**SUMS, "bias_source": "a"},
    "BGRADB": {**SUMS, "bias_source": "b"},
}
INTO_BF16: Mapping[str, Any] = {"c_type": "bf16_r", "d_type": "bf16_r"}
SCALED: Sequence[Mapping[str, Any]] = (
    {"scale_a": "scalar", "scale_b": "scalar", **INTO_BF16},
    {"scale_a": "row", "scale_b": "row", **INTO_BF16},
    {"scale_a": "scalar", "scale_b": "scalar", "scale_d": "scalar"},
    {"scale_a": "scalar", "scale_b": "scalar", "m": 32, "n": 32, "k": 4096, **INTO_BF16},
)

MIOPEN = {
    "VGPU_ARCH": "gfx942:sramecc+:xnack-",
    "VGPU_CUS": "304",
    "MIOPEN_DEBUG_GCN_ASM_KERNELS": "0",
    "MIOPEN_DEBUG_CONV_WINOGRAD": "0",  # Debian has no assembler sources
}
DEEP = [
    (direction, f"{first}-{filter_}-{last}-2-{pad}-1x1x1-1x1x1")
    for direction, first, last in [("F", "4-6-14-12", "8-6-14-12"), *((x, "8-6-14-12", "4-6-14-12") for x in "BW")]
    for filter_, pad in (("3x3x3", "1x1x1"), ("1x1x1", "0x0x0"))
]
"""Directions of 3-D convolutions, and the beginnings of the keys by which MIOpen names them.

The first tensor of a key is the image or, in the backward directions, the output.
"""


def product(kind: str = "f16_r", trans: str = "NN", **fields: Any) -> GemmProblem:
    plain: dict[str, Any] = {"m": 97, "n": 61, "k": 131, "batch_count": 1, "beta": "zero", "compute_type": "f32_r"}
    plain |= {"activation": "none", "bias": False} | dict.fromkeys(("a_type", "b_type", "c_type", "d_type"), kind)
    return GemmProblem(**plain | {"trans_a": trans[0], "trans_b": trans[1]} | fields)


def check_results(loop: Loop, backend: str, problems: Sequence[Problem], most: int) -> list[list[tuple[float, str]]]:
    """Run up to ``most`` kernels of a library for each matrix product, and check their results.

    Returns for each product a list of (relative error, description of a fault or an empty text).
    """
    lines = loop.run(*loop.job("checks", backend, [x.text for x in problems], most)).splitlines()
    return [json.loads(line) for line in lines]


def all_right(loop: Loop, backend: str, problems: Sequence[Problem], most: int) -> None:
    for problem, found in zip(problems, check_results(loop, backend, problems, most), strict=True):
        assert found, problem
        assert all(error < error_bound(problem) and not fault for error, fault in found), (problem, found)


def logged(folder: Path, problems: Sequence[Problem]) -> None:
    """Check that hipBLASLt's log has exactly these matrix products, in each kind of line: bench, trace and profile."""
    (path,) = folder.glob("hipblaslt_*.log")
    found: dict[str, list[Problem]] = {"bench": [], "trace": [], "profile": []}
    for line in dict.fromkeys(path.read_text(encoding="utf-8").splitlines()):
        outcomes = [format.read(line) for format in (bench, log, profile)]
        (call,) = (x for outcome in outcomes if outcome.unit == "call" for x in outcome.records if isinstance(x, Call))
        found[call.category].append(call.problem)
    for texts in found.values():
        assert all(any(find_link_level(problem, x) for x in texts) for problem in problems)
        assert all(any(find_link_level(problem, x) for problem in problems) for x in texts)


def test_epilogues_are_right(rocm: Rocm, tmp_path: Path) -> None:
    """Products with every kind of epilogue (such as bias and GELU) give right results, and all logs name it."""
    problems = [product(**fields) for fields in EPILOGUES.values()]
    assert [x.epilogue for x in problems] == list(EPILOGUES)
    written = {"HIPBLASLT_LOG_MASK": "98", "HIPBLASLT_LOG_FILE": str(tmp_path / "hipblaslt_%i.log")}
    all_right(Loop(rocm, tmp_path, GFX90A | written), "hipblaslt", problems, 8)
    logged(tmp_path, problems)


def test_a_vector_of_alphas_is_right(rocm: Rocm, tmp_path: Path) -> None:
    """Products with a vector of alphas give right results, also with a bias, and also if the sum along K is split.

    The vector multiplies each row of D by a factor of its own, before C is added.
    """
    plain: Mapping[str, Any] = {"scale_alpha_vector": True, "beta": "nonzero"}
    bias: Mapping[str, Any] = {"bias": True, "bias_type": "f16_r", "activation": "relu"}
    problems = [product(**plain), product(**plain, **bias, m=32, n=32, k=4096)]
    all_right(Loop(rocm, tmp_path, dict(GFX90A)), "hipblaslt", problems, 40)


def test_scaled_products_are_right(rocm: Rocm, tmp_path: Path) -> None:
    """Real kernels for 8-bit floats with scales give results that logparse finds right.

    Some kernels split the sum of 4,096 products along K, and scale the partial sums.
    """
    problems = [product("f8_r", "TN", **fields) for fields in SCALED]
    written = {"HIPBLASLT_LOG_MASK": "98", "HIPBLASLT_LOG_FILE": str(tmp_path / "hipblaslt_%i.log")}
    all_right(Loop(rocm, tmp_path, GFX1201 | written), "hipblaslt", problems, 40)
    logged(tmp_path, problems)


def test_deep_convolutions_are_right(rocm: Rocm, tmp_path: Path) -> None:
    """MIOpen's GEMM solvers and naive solvers compute 3-D convolutions, and logparse finds their results right.

    Some GEMM solvers copy the image into 3-D columns first, and others do not.
    """
    folders = {f"MIOPEN_{name}": str(tmp_path) for name in ("SYSTEM_DB_PATH", "USER_DB_PATH", "CUSTOM_CACHE_DIR")}
    problems = [problem_from_key(f"{key}-0-NCDHW-FP16-{direction}") for direction, key in DEEP]
    all_right(Loop(rocm, tmp_path, MIOPEN | folders), "miopen", problems, 9)


@pytest.mark.parametrize(
    ("several", "kernel", "fault"),
    [
        ([EPILOGUES["GELU_AUX"], EPILOGUES["DGELU"]], "Cijk_A", "an element differs"),
        ([EPILOGUES["DGELU_BGRAD"]], "Reduction", "an element of bias differs"),
    ],
)
def test_a_wrong_kernel_is_found(
    rocm: Rocm, tmp_path: Path, several: Sequence[Mapping[str, Any]], kernel: str, fault: str
) -> None:
    """A kernel that computes wrong values is noticed, even if only a second output is wrong.

    An example of a second output is a bias gradient.
    """
    problems = [product(**fields) for fields in several]
    loop = Loop(rocm, tmp_path, GFX90A | {"VGPU_WRONG": kernel})
    for ((_, text),) in check_results(loop, "hipblaslt", problems, 1):
        assert text.startswith(fault)
