"""Tests of rocBLAS's override file (a choice of kernels): logparse predicts which line the real library uses.

The files are generated at random and then edited.
"""

# All calls have β = 0: the library compares the value of β, but logparse only knows whether β is 0.

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from analyzers.overrides.look_up import look_up
from logparse.libraries.rocblas.logs import HEADING, PLAIN, RESERVED, WRITER, solution_of
from logparse.libraries.rocblas.rules import OVERRIDE_FORMAT
from logparse.model import GemmProblem, Override, Solution
from tests.conformance.look_ups import Library, differences
from tests.conformance.mutations import Words, mutated
from tests.conformance.report import compared
from tests.conformance.rocm import CrashError, Rocm
from tests.conftest import sized

SETTINGS = {
    "VGPU_ARCH": "gfx942:sramecc+:xnack-",
    "VGPU_CUS": "304",
    "VGPU_COMPUTE": "0",  # the test asks which kernels are launched, and not for their results
    "ROCBLAS_USE_HIPBLASLT": "0",
}
TYPES = [
    *(("f16_r", "f16_r", "f32_r"), ("f16_r", "f16_r", "f16_r"), ("bf16_r", "bf16_r", "f32_r")),
    *(("f32_r", "f32_r", "f32_r"), ("f64_r", "f64_r", "f64_r"), ("i8_r", "i32_r", "i32_r")),
]
SHAPES = [(96, 64, 128, 1, 0), (64, 96, 128, 1, 0), (96, 64, 128, 1, 8), (96, 64, 128, 3, 0)]
"""Sizes of matrix products: m, n, k, batch, and by how much the leading dimensions exceed their least values."""
TRANSPOSES = [("N", "N"), ("T", "N"), ("N", "T")]
WORDS = Words(
    separator=",",
    texts=[
        *("f16_r", "bf16_r", "f32_r", "f64_r", "i8_r", "i32_r", "h", "s", "d", "c", "f32_c", "xf32_r", "f8_r", "junk"),
        *("96", "64", "128", "3", "0", "1", "inf", "nan", "0.0", "1e-3", "-0"),
    ],
    lines=[HEADING, f"{HEADING},", "transA", "a,b", "T,N,1"],
)


def calls() -> list[GemmProblem]:
    made = []
    for (ab, d, compute), (trans_a, trans_b), (m, n, k, batch, pad) in product(TYPES, TRANSPOSES, SHAPES):
        types = {"a_type": ab, "b_type": ab, "c_type": d, "d_type": d, "compute_type": compute}
        lda, ldb, ldc = (m if trans_a == "N" else k) + pad, (k if trans_b == "N" else n) + pad, m + pad
        strides = (lda * (k if trans_a == "N" else m), ldb * (n if trans_b == "N" else k), ldc * n)
        layout = {"lda": lda, "ldb": ldb, "ldc": ldc, "ldd": ldc}
        layout |= dict(zip(("stride_a", "stride_b", "stride_c", "stride_d"), (*strides, strides[2]), strict=True))
        fields: dict[str, Any] = {
            "trans_a": trans_a,
            "trans_b": trans_b,
            "m": m,
            "n": n,
            "k": k,
            "batch_count": batch,
            **layout,
            **types,
        }
        plain: dict[str, Any] = {"beta": "zero", "activation": "none", "bias": False}
        made.append(GemmProblem(**fields, **plain))
    return made


def list_arguments(call: GemmProblem) -> list[object]:
    sizes = [call.m, call.n, call.k, call.batch_count]
    strides = [call.stride_a, call.stride_b, call.stride_c]
    types = [call.a_type, call.d_type, call.compute_type]
    return [call.trans_a, call.trans_b, *sizes, [call.lda, call.ldb, call.ldc], strides, 0, *types]


def row(call: GemmProblem, index: int, strides: bool) -> str:
    """Return one line of a file that tells rocBLAS which kernel to use for a matrix product.

    The line looks as if rocblas-gemm-tune had written it. ``index`` is the number of the kernel in Tensile, rocBLAS's
    library of kernels.
    """
    sizes = [call.trans_a, call.trans_b, call.m, call.n, call.batch_count, call.k, 1, 0, call.lda, call.ldb, call.ldc]
    more = [call.stride_a, call.stride_b, call.stride_c] if strides else []
    return ",".join(map(str, [*sizes, *more, call.a_type, call.d_type, call.compute_type, index]))


def generated(seed: int, calls: Sequence[GemmProblem], choices: Sequence[Sequence[int]]) -> str:
    """Return a random override file (a choice of kernels) with rows for some of the calls.

    Some rows are for the same call, some have kernels of other calls, and rows of batched calls may have strides.
    """
    random_ = random.Random(seed)
    lines = [HEADING] if random_.random() < 0.8 else []
    for _ in range(random_.randrange(2, 17)):
        number = random_.randrange(len(calls))
        for _ in range(random_.choice((1, 1, 1, 2))):
            of = number if random_.random() < 0.9 else random_.randrange(len(calls))
            strides = (calls[number].batch_count or 1) > 1 and random_.random() < 0.5
            lines.append(row(calls[number], random_.choice(choices[of]), strides))
    return "\n".join(lines) + "\n"


def plain(calls: Sequence[GemmProblem], given: Mapping[int, Sequence[Solution]]) -> bytes:
    """Return the content of a file that tells rocBLAS which kernels to use for some calls.

    ``given`` maps the position of a call in ``calls`` to its kernels, with the preferred kernel first.
    """
    # The lines are written in reverse order, because rocBLAS tries the last line first.
    rows = [row(calls[n], -int(x.id) - RESERVED, False) for n, found in given.items() for x in reversed(found)]
    return "\n".join([HEADING, *rows, ""]).encode()


def test_rocblas_launches_what_the_reader_takes(rocm: Rocm, tmp_path: Path) -> None:
    every = calls()
    path = tmp_path / "override.csv"
    with rocm.driver("rocblas_lookup", SETTINGS) as driver:

        def ask(data: bytes) -> Sequence[str | None]:
            path.write_bytes(data)
            answer: list[str | None] = driver.ask(["file", str(path)])
            return answer

        target = {"rocblas_version": str(driver.ask([list_arguments(x) for x in every]))}
        listed = [x[:: max(1, len(x) // 6)] for x in driver.ask(["solutions"])]
        own = driver.ask(["launched", [[n, 0] for n in range(len(every))]])
        pairs = [(n, index) for n, indices in enumerate(listed) for index in indices]
        launches = dict(zip(pairs, driver.ask(["launched", pairs]), strict=True))
        choices = [
            [-i - RESERVED for i in indices if launches[n, i] not in (None, own[n])] for n, indices in enumerate(listed)
        ]
        good = [solution_of(x[0]) for x in choices]
        files = {}
        for seed in range(sized(300, 3_000)):
            text = generated(seed, every, choices)
            files[f"seed {seed}"] = text.encode() if seed % 12 == 0 else mutated(seed, text, WORDS)
        library = Library(OVERRIDE_FORMAT, target, every, ask, partial(plain, every), good, lazy=True)
        found, hits = differences(library, files)
    compared("rocBLAS override file", len(files), len(files) * len(every), hits, found)


def test_both_functions_use_the_rows_written_for_them(rocm: Rocm, tmp_path: Path) -> None:
    """rocBLAS uses the lines of its override file for calls of both functions that compute matrix products.

    An override file is the user's choice of kernels. ``rocblas_sgemm``, ``_hgemm`` and ``_dgemm`` use other lines than
    ``rocblas_gemm_ex``, and ``logparse coverage`` must predict which.
    """
    every = [x for x in calls() if x.batch_count == 1 and x.a_type == x.compute_type]
    path = tmp_path / "override.csv"
    with rocm.driver("rocblas_lookup", SETTINGS) as driver:
        target = {"rocblas_version": str(driver.ask([list_arguments(x) for x in every]))}
        listed = [x[:: max(1, len(x) // 6)] for x in driver.ask(["solutions"])]
        pairs = [(n, index) for n, indices in enumerate(listed) for index in indices if index < -RESERVED]
        own = [kernel(x) for x in driver.ask(["launched", [[n, 0] for n in range(len(every))]])]
        launches = {pair: kernel(x) for pair, x in zip(pairs, driver.ask(["launched", pairs]), strict=True)}
        wanted = {n: (i, x) for (n, i), x in launches.items() if x not in (None, own[n])}
        assert len(wanted) == len(every)
        given = [
            Override(problem=x, solution=Solution("rocblas", f"{wanted[n][0]}"), target={}) for n, x in enumerate(every)
        ]
        (file,) = WRITER.write(given, target)
        rows = file.data.decode().splitlines(keepends=True)
        answers = {}
        for cells in (15, 18):
            path.write_text("".join(x for x in rows[1:] if x.count(",") == cells - 1), encoding="utf-8")
            answers[cells] = [[kernel(x) for x in driver.ask([way, str(path)])] for way in ("file", "plain")]
            reading = OVERRIDE_FORMAT.reader("file", path.read_bytes(), target)
            stated = OVERRIDE_FORMAT.reported("file", reading, [(PLAIN, x.text) for x in every])
            found = [look_up(OVERRIDE_FORMAT, reading, x).row is not None for x in every]
            found += [look_up(OVERRIDE_FORMAT, reading, x, key=stated[x.text].key).row is not None for x in every]
            assert found == [cells == 15] * len(every) + [cells == 18] * len(every)
    taken = [wanted[n][1] for n in range(len(every))]
    assert answers == {15: [taken, own], 18: [own, taken]}


def kernel(launches: str | None) -> str | None:
    """Return the name of the first kernel that ran, without its arguments, which differ between functions."""
    return launches.split()[0] if launches else None


def test_a_crash_of_the_library_is_no_answer(rocm: Rocm, tmp_path: Path) -> None:
    (tmp_path / "override.csv").write_text(HEADING + "\n", encoding="utf-8")
    with rocm.driver("rocblas_lookup", SETTINGS | {"VGPU_CRASH": "Cijk_A"}) as driver:
        driver.ask([list_arguments(calls()[0])])
        with pytest.raises(CrashError, match="-6"):
            driver.ask(["file", str(tmp_path / "override.csv")])
