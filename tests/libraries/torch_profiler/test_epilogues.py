"""Tests of finding elementwise operators in a trace that run right after a matrix product, such as a bias or GELU."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.libraries.torch_profiler.epilogues import (
    LONGEST,
    STEPS,
    ElementWise,
    Kernels,
    gelu_gradients,
    is_tanh,
    step,
    tails,
)
from logparse.model import GemmProblem

PRODUCT = GemmProblem(m=3, n=2, k=5, batch_count=1, a_type="bf16_r")
BATCHED = GemmProblem(m=3, n=1, k=5, batch_count=2, a_type="bf16_r")
PARTIAL = GemmProblem(m=3, n=2, k=5, a_type="bf16_r")
GELU, BIAS, OTHER = ElementWise("gelu", 6), ElementWise("bias", 6), ElementWise("relu", 7)
PROBLEMS, ALL_STEPS = [PRODUCT, BATCHED, PARTIAL], [GELU, BIAS, OTHER, ElementWise("copy", 7)]


def found(*rows: tuple[str, str], devices: str = "") -> list[tuple[int, list[str], list[float]]]:
    """Return which elementwise operators logparse finds right after each matrix product in a series of kernels.

    Each kernel takes 1 µs. It is given as the name of its operator and a letter for the kind of kernel:

    - p, b or ?: a matrix product.
    - g, i, r, C or t: an elementwise operator (C: a copy of another size; t: a GELU by tanh).
    - any other letter: neither of them.
    """
    count = len(rows)
    operators = {name: i for i, name in enumerate(dict.fromkeys(x for x, _ in rows))}
    kernels = Kernels(
        start=np.arange(count, dtype=np.float64),
        us=np.ones(count),
        device=np.array([int(x) for x in devices] or [0] * count, dtype=np.int64),
        operator=np.array([operators[x] for x, _ in rows], dtype=np.int64),
        problem=np.array(["pb?".find(y) for _, y in rows], dtype=np.int64),
        step=np.array(["girC".find(y.replace("t", "g")) for _, y in rows], dtype=np.int64),
        tanh=np.array([y == "t" for _, y in rows]),
    )
    values = [json.loads(x.value) for x in tails(kernels, PROBLEMS, ALL_STEPS)]
    return [(x["calls"], x["tail"], x["us"]) for x in values]


def test_tails() -> None:
    assert found(("a", "p"), ("b", "g")) == [(1, ["gelu"], [1.0])]
    assert found(("a", "p"), ("b", "i"), ("c", "g"), ("d", "-"), ("e", "g")) == [(1, ["bias", "gelu"], [1.0, 1.0])]
    assert found(("a", "p"), ("b", "g"), ("c", "p"), ("d", "g")) == [(2, ["gelu"], [2.0])]
    assert found(("a", "b"), ("b", "g")) == [(1, ["gelu"], [1.0])]  # a batch of two rows of three
    assert found(("a", "p"), ("b", "t"), ("c", "p"), ("d", "g")) == [(1, ["gelu_tanh"], [1.0]), (1, ["gelu"], [1.0])]


def test_copies_of_other_sizes_stand_between_steps() -> None:
    assert found(("a", "p"), ("b", "i"), ("c", "C"), ("d", "g"), ("e", "C")) == [(1, ["bias", "gelu"], [1.0, 1.0])]
    assert found(("a", "p"), ("c", "C"), ("d", "g")) == [], "the first step follows the product"


def test_the_form_of_gelu_is_in_its_kernels_name() -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
        "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#3}::operator()() const::"
        "{lambda(c10::Half)#1}, std::array<char*, 2ul> >"
    )
    assert not is_tanh(name)
    assert is_tanh(name.replace("GeluType)::{lambda()#2}", "GeluType)::{lambda()#1}"))
    assert not is_tanh(name.replace("Gelu", "GeluBackward").replace("{lambda()#2}", "{lambda()#1}"))


def test_a_step_of_several_kernels_is_one_step() -> None:
    assert found(("a", "p"), ("a", "p"), ("b", "g"), ("b", "g")) == [(1, ["gelu"], [2.0])]


@pytest.mark.parametrize(
    ("rows", "devices"),
    [
        ([("a", "p"), ("b", "-"), ("c", "g")], ""),
        ([("a", "p"), ("b", "r")], ""),  # seven elements
        ([("a", "?"), ("b", "g")], ""),  # a problem of unknown size
        ([("a", "-"), ("b", "g")], ""),
        ([("a", "p"), ("b", "p")], ""),
        ([("a", "p"), ("b", "g")], "01"),  # on another device
        ([("b", "g"), ("a", "p")], ""),
        ([], ""),
    ],
)
def test_no_tail(rows: list[tuple[str, str]], devices: str) -> None:
    assert found(*rows, devices=devices) == []


def test_the_longest_tail() -> None:
    [(calls, words, us)] = found(("a", "p"), *((f"{i}", "g") for i in range(40)))
    assert (calls, len(words), len(us)) == (1, LONGEST, LONGEST)


@given(st.lists(st.sampled_from(["p", "b", "?", "g", "i", "r", "-"]), max_size=30))
def test_every_product_that_a_step_follows_is_counted_once(kinds: list[str]) -> None:
    rows = [(str(i), kind) for i, kind in enumerate(kinds)]
    followed = sum(a in "pb" and b in "gi" for a, b in itertools.pairwise(kinds))
    assert sum(calls for calls, _, _ in found(*rows)) == followed


junk: Any = st.recursive(
    st.none() | st.integers() | st.text(max_size=3), lambda x: st.lists(x, max_size=4), max_leaves=9
)


@given(st.sampled_from(sorted(STEPS)), st.dictionaries(st.sampled_from(["Input Dims", "Concrete Inputs", "x"]), junk))
def test_inputs_of_any_kind_never_raise(name: str, args: dict[str, Any]) -> None:
    made = step(name, args)
    assert made is None or made.elements >= 0


def test_a_bias_is_a_vector_along_the_last_axis() -> None:
    def word(*dims: list[int]) -> str | None:
        made = step("aten::add", {"Input Dims": list(dims)})
        return made.word if made else None

    assert word([2, 3], [3]) == "bias"
    assert word([2, 3], [2]) == "add"
    assert word([2, 3], [2, 3]) == "add"
    assert word([3], [3]) == "add"
    assert word([2, 3], []) == "add"
    assert step("aten::add", {}) is None


def test_the_gradient_of_a_gelu_that_is_written_out_is_a_run_of_its_steps() -> None:
    steps = [ElementWise(x, 6) for x in ("mul", "tanh_backward", "pow", "copy")] + [
        ElementWise("mul", 7),
        ElementWise("copy", 7),
    ]

    def gradients(kinds: str, devices: str = "") -> list[tuple[int, int, list[str], float]]:
        """Make logparse look for the backward passes of a GELU in a series of kernels, and return what it finds.

        ``kinds`` has one character for each kernel of 1 µs.
        """
        # A letter starts a new operator and tells its kind: m is a multiplication. + is another kernel of the same
        # operator.
        count = len(kinds)
        operators = np.cumsum([x != "+" for x in kinds])
        known = [kinds[: i + 1].replace("+", "")[-1] for i in range(count)]
        kernels = Kernels(
            start=np.arange(count, dtype=np.float64),
            us=np.ones(count),
            device=np.array([int(x) for x in devices] or [0] * count, dtype=np.int64),
            operator=operators.astype(np.int64),
            problem=np.full(count, -1, dtype=np.int64),
            step=np.array(["mtpcMC".find(x) for x in known], dtype=np.int64),
            tanh=np.zeros(count, dtype=np.bool_),
        )
        values = [json.loads(x.value) for x in gelu_gradients(kernels, steps)]
        return [(x["calls"], x["elements"], x["steps"], x["us"]) for x in values]

    words = ["mul", "tanh_backward", "pow"]
    assert gradients("-mtp-") == [(1, 6, words, 3.0)]
    assert gradients("mtp-mt+p") == [(2, 6, words, 7.0)]
    assert gradients("mtpMmtp") == [(2, 6, words, 6.0)], "another size ends a run"
    assert gradients("mtpmtp", "000111") == [(2, 6, words, 6.0)], "and another device"
    assert gradients("-CcCmtCp-c") == [(1, 6, ["copy", *words], 4.0)], "copies of weights stand between"
    assert gradients("mt-mp") == [], "the gradient of another function"
    assert gradients("-m-") == []
