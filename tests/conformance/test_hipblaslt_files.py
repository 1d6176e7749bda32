"""Tests that logparse finds the same rows of a hipBLASLt tuning file as the real library.

The files are generated at random and then edited.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from logparse.libraries.hipblaslt.tuning_file import NO_ROW, TUNING_COLUMNS, object_key
from logparse.libraries.hipblaslt.tuning_rules import OVERRIDE_FORMAT
from logparse.model import GemmProblem, Solution
from tests.conformance.look_ups import Library, differences
from tests.conformance.mutations import Words, mutated
from tests.conformance.report import compared
from tests.conformance.rocm import HERE, Rocm
from tests.conftest import sized

ARCH = "gfx90a:sramecc+:xnack-"
TARGET = {"hipblaslt_revision": ""}
"""Facts about the library build, without the GPU's architecture.

The real library does not check the architecture, but logparse refuses rows for another one.
"""
GIT = "Git Version: "
DATA = {"f32_r": 0, "f64_r": 1, "f16_r": 2, "i8_r": 3, "i32_r": 10, "bf16_r": 14}
COMPUTES = {"f32_r": (2, 0), "f32_f16_r": (4, 0), "xf32_r": (6, 0), "f64_r": (7, 1), "i32_r": (9, 10)}
TYPES = [
    *(("f16_r", "f16_r", "f32_r"), ("f16_r", "f32_r", "f32_r"), ("bf16_r", "bf16_r", "f32_r")),
    *(("f32_r", "f32_r", "f32_r"), ("f32_r", "f32_r", "xf32_r"), ("f64_r", "f64_r", "f64_r")),
    *(("i8_r", "i32_r", "i32_r"), ("f16_r", "f16_r", "f32_f16_r")),
]
SIZES = [(64, 32, 96, 1), (4096, 64, 1024, 1), (64, 32, 96, 3), (32, 64, 96, 1)]
NEEDED = [
    "transA",
    "transB",
    "batch_count",
    "m",
    "n",
    "k",
    "a_type",
    "b_type",
    "c_type",
    "compute_type",
    "solution_index",
]
WIDE = [*TUNING_COLUMNS[:27], "swizzle_a", "swizzle_b", *TUNING_COLUMNS[27:], "kernel_name"]
WORDS = Words(
    separator=",",
    texts=[
        *("f16_r", "bf16_r", "f32_r", "f64_r", "xf32_r", "i8_r", "i32_r", "u8_r", "f8_r", "bf8_r", "f8_fnuz_r", "f6_r"),
        *(
            "f32_f16_r",
            "f32_f8_r",
            "c_f32_r",
            "f32_c",
            "junk",
            "m",
            "n",
            "k",
            "batch_count",
            "transA",
            "soulution_index",
        ),
        *("solution_index", "compute_type", "64", "32", "4096", "3"),
    ],
    lines=[GIT, GIT + "abc", ",".join(NEEDED), ",".join(TUNING_COLUMNS), "transA", "transA,b", "a,b", "# transA,"],
)


def calls() -> list[GemmProblem]:
    made = []
    for (ab, c, compute), trans, (m, n, k, batch) in product(TYPES, product("NT", "NT"), SIZES):
        types = {"a_type": ab, "b_type": ab, "c_type": c, "d_type": c, "compute_type": compute}
        sizes = {"m": m, "n": n, "k": k, "batch_count": batch}
        fields: dict[str, Any] = {"trans_a": trans[0], "trans_b": trans[1], "beta": "nonzero", **sizes, **types}
        made.append(GemmProblem(**fields))
    return made


def list_arguments(call: GemmProblem) -> list[object]:
    types = [DATA[str(x)] for x in (call.a_type, call.b_type, call.c_type, call.d_type)]
    sizes = [call.m, call.n, call.k, call.batch_count]
    return [call.trans_a, call.trans_b, *sizes, types, *COMPUTES[str(call.compute_type)]]


def entry(call: GemmProblem, index: int, columns: Sequence[str]) -> list[str]:
    """Return an entry of a tuning file with these columns, as hipblaslt-bench writes it."""
    cells = dict.fromkeys(columns, "0") | {
        "transA": str(call.trans_a),
        "transB": str(call.trans_b),
        "batch_count": str(call.batch_count),
        **{name: str(getattr(call, name)) for name in ("m", "n", "k", "a_type", "b_type", "c_type", "d_type")},
        "compute_type": str(call.compute_type),
        "activation_type": "none",
        "bias_type": "f32_r",
        "us": "2.5",
        "solution_index": str(index),
        "gcnArchName": ARCH,
        "CUs": "104",
    }
    return ["    " + ",".join(columns), "    " + ",".join(cells[x] for x in columns)]


def generated(seed: int, calls: Sequence[GemmProblem], choices: Sequence[Sequence[int]]) -> str:
    """Return a random tuning file. Some rows are for the same product, and some have kernels of other products."""
    random_ = random.Random(seed)
    lines = [GIT]
    columns = random_.choice((TUNING_COLUMNS, NEEDED, WIDE))
    for _ in range(random_.randrange(2, 17)):
        number = random_.randrange(len(calls))
        for _ in range(random_.choice((1, 1, 1, 2))):
            of = number if random_.random() < 0.9 else random_.randrange(len(calls))
            index = random_.choice(choices[of] or [1])
            lines += entry(calls[number], index, columns)
    return "\n".join(lines) + "\n"


def plain(calls: Sequence[GemmProblem], given: Mapping[int, Sequence[Solution]]) -> bytes:
    lines = [GIT]
    for number, solutions in given.items():
        for solution in solutions:
            lines += entry(calls[number], int(solution.id), NEEDED)
    return "\n".join([*lines, ""]).encode()


def row_of_object(target: Mapping[str, str], call: GemmProblem) -> GemmProblem:
    """Return the matrix product that hipBLASLt looks for in its override file if a call is made through its C++ class.

    If a version does not look into the file at all, the call's own matrix product is returned.
    """
    # Some versions look for another compute type than for calls of the C functions.
    compute = (object_key(call, target) or NO_ROW).rpartition(",")[2]
    return call if compute == NO_ROW else replace(call, compute_type=compute)


@pytest.mark.parametrize("through", ["functions", "object"])
def test_hipblaslt_uses_the_predicted_rows(rocm: Rocm, tmp_path: Path, through: str) -> None:
    """The real hipBLASLt uses the lines of an override file that logparse predicts.

    This is tested for calls of the C functions and for calls through the C++ class, for which it uses other lines.
    """
    every = calls()
    path = tmp_path / "tuning.txt"
    format, count = OVERRIDE_FORMAT, sized(360, 3_600)
    expected = {
        "functions": lambda reading, call: None,
        "object": lambda reading, call: "revision" if reading.refusals else None,
    }
    with rocm.driver("hipblaslt_lookup", {"VGPU_ARCH": ARCH, "PYTHONPATH": str(HERE.parents[1])}) as driver:

        def ask(data: bytes) -> Sequence[int | None]:
            path.write_bytes(data)
            answer: list[int | None] = driver.ask(["file", str(path), through])
            return answer

        target = TARGET | {"hipblaslt_version": str(driver.ask([list_arguments(x) for x in every]))}
        choices = [x[1:] for x in driver.ask(["solutions", 6, through])]
        good = [Solution("hipblaslt", str(x[0])) if x else None for x in choices]
        rows = every
        if through == "object":
            rows, count = [row_of_object(target, x) for x in every], count // 6
            format = replace(format, key=object_key)
        files = {}
        for seed in range(count):
            text = generated(seed, rows if seed % 3 else every, choices)
            files[f"seed {seed}"] = text.encode() if seed % 12 == 0 else mutated(seed, text, WORDS)
        library = Library(format, target, every, ask, partial(plain, rows), good, expected=expected[through])
        found, hits = differences(library, files)
    compared(f"hipBLASLt tuning file, {through}", len(files), len(files) * len(every), hits, found)
