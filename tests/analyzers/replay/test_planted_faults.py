"""Tests that logparse notices the wrong results of faulty kernels, and accepts all correct kernels.

Correct kernels may round in any way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from logparse.libraries.kinds.backend import Conditions
from logparse.libraries.kinds.correctness import error_bound, is_acceptable
from logparse.model import ConvProblem, GemmProblem
from tests.analyzers.replay.problems import SMALL_W
from tests.analyzers.replay.problems import gemm as small_gemm
from tests.conftest import sized

torch = pytest.importorskip("torch")
from logparse.libraries.kinds.device.operands import ConvOperands, GemmOperands, convolve  # noqa: E402
from logparse.libraries.kinds.device.torch_device import TorchRunnable, torch_device  # noqa: E402

M, N, TILE = 96, 80, 16
TYPES = ("bf16", "fp16", "fp32", "tf32", "fp8")
Kernel = Callable[[Any, Any, Any], Any]
"""A kernel under test, as a function: it gets x (n×k), y (k×m) and the previous output, and returns the output (n×m).

x and y are in single precision.
"""


def problem(kind: str, k: int, m: int = M, n: int = N) -> GemmProblem:
    words = {"bf16": "bf16_r", "fp16": "f16_r", "fp32": "f32_r", "tf32": "f32_r", "fp8": "f8_r"}
    types = dict.fromkeys(("a_type", "b_type"), words[kind])
    out = "bf16_r" if kind == "fp8" else words[kind]
    compute = "xf32_r" if kind == "tf32" else "f32_r"
    sizes = {"n": n, "k": k, "lda": m, "ldb": k, "ldc": m, "ldd": m}
    return replace(small_gemm(m, **sizes), **types, c_type=out, d_type=out, compute_type=compute)


def to_tf32(tensor: Any) -> Any:
    """Round to TF32 (10 bits of significand), with halves rounded up, as the GPU's matrix units do."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def runnable(kind: str, k: int, kernel: Kernel, m: int = M, n: int = N) -> TorchRunnable:
    device = torch_device("cpu")
    operands = GemmOperands(device, problem(kind, k, m, n), Conditions())
    before: list[Any] = [torch.zeros(n, m)]

    def call(i: int) -> Any:
        x, y = (t[i].float().contiguous() for t in (operands.x, operands.y))
        if kind == "tf32":
            x, y = to_tf32(x), to_tf32(y)
        out = kernel(x, y, before[0])
        before[0] = out
        operands.d[i].copy_(out)
        return operands.d[i]

    return TorchRunnable(device, operands, call)


def refused(made: TorchRunnable, bound: float) -> bool:
    """Tell whether logparse refuses a kernel because its result is wrong.

    First the error of the whole result is compared with ``bound``. Then logparse checks each element, and a product of
    matrices of integers, whose result must be exact.
    """
    return not is_acceptable(made.error(), bound) or bool(made.fault())


def dropped_tail(x: Any, y: Any, _before: Any) -> Any:
    return x[:, :-1] @ y[:-1]


def swapped_rows(x: Any, y: Any, _before: Any) -> Any:
    out = x @ y
    out[[3, 7]] = out[[7, 3]]
    return out


def wrong_tile(x: Any, y: Any, _before: Any) -> Any:
    """Compute a matrix product with a fault: in one tile of 30, a sixteenth of each sum is missing."""
    out = x @ y
    short = x.shape[1] - x.shape[1] // 16
    out[:TILE, :TILE] = x[:TILE, :short] @ y[:short, :TILE]
    return out


def wrong_alpha(x: Any, y: Any, _before: Any) -> Any:
    return 1.02 * (x @ y)


def stale_partials(x: Any, y: Any, before: Any) -> Any:
    """Compute a matrix product with a fault: the workspace was not cleared, so old values are added.

    In one tile, a sixteenth of an earlier result is added.
    """
    out = x @ y
    out[-TILE:, -TILE:] += torch.nan_to_num(before[-TILE:, -TILE:]) / 16
    return out


@pytest.mark.parametrize("fault", [dropped_tail, swapped_rows, wrong_tile, wrong_alpha, stale_partials])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("k", [257, 1024])
def test_every_fault_is_found_in_every_type(kind: str, k: int, fault: Kernel) -> None:
    assert refused(runnable(kind, k, fault), error_bound(problem(kind, k)))


@pytest.mark.parametrize("kind", TYPES)
def test_one_dropped_product_of_16385_is_found(kind: str) -> None:
    assert refused(runnable(kind, 16385, dropped_tail), error_bound(problem(kind, 16385)))


@pytest.mark.parametrize("kind", TYPES)
def test_one_wrong_tile_of_1024_is_found(kind: str) -> None:
    assert refused(runnable(kind, 256, wrong_tile, 512, 512), error_bound(problem(kind, 256, 512, 512)))


def test_64_dropped_products_of_1024_in_fp8_are_found() -> None:
    made = runnable("fp8", 1024, lambda x, y, _: x[:, :-64] @ y[:-64])
    assert refused(made, error_bound(problem("fp8", 1024)))


def test_an_output_that_is_not_all_written_is_found() -> None:
    device = torch_device("cpu")
    o = GemmOperands(device, problem("fp32", 64), Conditions())

    def call(i: int) -> Any:
        o.d[i][:-1].copy_((o.x[i] @ o.y[i])[:-1])
        return o.d[i]

    assert math.isnan(TorchRunnable(device, o, call).error())


def plain(x: Any, y: Any, _before: Any) -> Any:
    return x @ y


def reversed_order(x: Any, y: Any, _before: Any) -> Any:
    return x.flip(1) @ y.flip(0)


def split_k_in_the_output_type(x: Any, y: Any, _before: Any) -> Any:
    """Compute a matrix product as the sum of nine partial sums, each of which is first rounded to bfloat16."""
    out = torch.zeros(x.shape[0], y.shape[1], dtype=torch.bfloat16)
    for xs, ys in zip(x.chunk(9, 1), y.chunk(9, 0), strict=True):
        out += (xs @ ys).bfloat16()
    return out.float()


def one_by_one(x: Any, y: Any, _before: Any) -> Any:
    """Compute a matrix product correctly, but in the order with the largest rounding error.

    Blocks of 16 products are added one after another in single precision.
    """
    out = torch.zeros(x.shape[0], y.shape[1])
    for xs, ys in zip(x.split(16, 1), y.split(16, 0), strict=True):
        out += xs @ ys
    return out


@pytest.mark.parametrize("k", [16, 257, 4096])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("kernel", [plain, reversed_order, one_by_one])
def test_honest_kernels_pass_in_every_type(kind: str, k: int, kernel: Kernel) -> None:
    made, bound = runnable(kind, k, kernel), error_bound(problem(kind, k))
    assert is_acceptable(made.error(), bound)
    assert made.fault() == ""


@pytest.mark.parametrize(("k", "m", "n"), [(257, M, N), (4096, M, N), (512, 2048, 1024)])
def test_partial_sums_in_the_output_type_pass(k: int, m: int, n: int) -> None:
    made = runnable("bf16", k, split_k_in_the_output_type, m, n)
    assert is_acceptable(made.error(), error_bound(problem("bf16", k)))
    assert made.fault() == ""


@pytest.mark.parametrize("kind", TYPES)
def test_sums_of_integers_stay_exact_at_any_depth(kind: str) -> None:
    made = runnable(kind, sized(8_192, 60_000), plain, 256, 64)
    operands: Any = made._operands
    operands._fill_integers()
    assert 0 < float(operands._result().abs().max()) <= (256 if kind in ("bf16", "fp8") else 2048)
    assert made.fault() == ""


def test_the_random_data_are_back_after_the_integers() -> None:
    made = runnable("bf16", 64, plain)
    operands: Any = made._operands
    before = [x[0].clone() for x in operands._inputs()]
    assert made.fault() == ""
    assert all(torch.equal(a, x[0]) for a, x in zip(before, operands._inputs(), strict=True))
    assert made.error() < 0.01


RICH = replace(
    problem("fp32", 40),
    **dict.fromkeys(("scale_a", "scale_b"), "row"),
    bias=True,
    aux=True,
    beta="nonzero",
    activation="relu",
)


@pytest.mark.parametrize(
    "of",
    [
        RICH,
        replace(RICH, scale_b="scalar", activation="gelu", gradient=True),
        replace(problem("bf16", 24), batch_count=5, **{f"stride_{x}": 100 * 100 for x in "abcd"}),
        *(replace(SMALL_W, direction=x) for x in "FBW"),
    ],
    ids=["scales, bias, aux and C", "gradient of GELU", "batch", "F", "B", "W"],
)
def test_a_large_result_is_compared_in_parts(of: GemmProblem | ConvProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large result is checked part by part, with the same outcome as if it were checked at once.

    The expected values are in double precision, and some of them do not fit into memory as a whole.
    """
    make: Any = GemmOperands if isinstance(of, GemmProblem) else ConvOperands
    operands = make(torch_device("cpu"), of, Conditions())
    whole = operands._result()
    monkeypatch.setattr("logparse.libraries.kinds.device.operands._STRIPE", whole[0].numel())
    out = whole.to(operands._inputs()[0][0].dtype)
    assert not out.isnan().any()
    parts = [slice(at, at + 1) for at in range(len(whole))]
    assert len(parts) > 1
    for part in parts:
        torch.testing.assert_close(operands._result(part), whole[part])
        torch.testing.assert_close(operands._result(part, magnitudes=True), operands._result(magnitudes=True)[part])
    operands._beside = tuple  # no kernel ran that could have written them
    assert operands.error(out) < 0.01
    out[-1, ..., -1] += 3 * out.abs().max()
    assert "differs" in operands.fault(lambda: out)


@pytest.mark.parametrize("direction", ["F", "B", "W"])
def test_convolutions_without_a_tap_or_with_a_wrong_image_are_refused(direction: str) -> None:
    conv: ConvProblem = replace(SMALL_W, direction=direction)  # type: ignore[arg-type]
    device = torch_device("cpu")
    operands = ConvOperands(device, conv, Conditions())

    def made(change: Callable[[Any], Any]) -> TorchRunnable:
        def call(i: int) -> Any:
            return change(convolve(device, conv, operands.x[i], operands.w[i], operands.dy[i]))

        return TorchRunnable(device, operands, call)

    def one_wrong(out: Any) -> Any:
        out[0, 0, 0, 0] = out[0, 0, 0, 1]
        return out

    assert made(lambda out: out).fault() == ""
    assert made(one_wrong).fault()
    assert made(lambda out: 1.02 * out).fault()
