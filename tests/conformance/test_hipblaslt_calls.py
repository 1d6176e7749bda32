"""Tests with random calls of hipBLASLt. They run again with the tuning file that logparse writes."""

# The calls have epilogues, auxiliary matrices, scales, paddings, batches and workspaces. For each line of the file, a
# kernel is taken that the library offered for a call of this line. A new process then runs all calls again.

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analyzers.compare.verify import verify
from analyzers.evidence.runs import tables_of
from analyzers.overrides.coverage import coverage
from analyzers.overrides.lint import inspect
from logparse.ingest import ingest
from logparse.libraries.hipblaslt import bench, log, tuning_file
from logparse.model import Call, GemmProblem, Override, Solution
from logparse.store import Store
from tests.conformance.rocm import HERE, Rocm
from tests.conftest import sized

F32, F16, I8, I32, BF16, F8, BF8 = 0, 2, 3, 10, 14, 28, 29
COMPUTE_F32, COMPUTE_I32 = 2, 9
EPILOGUE, BIAS, BIAS_TYPE, AUX, AUX_LD, POINTER_MODE, A_MODE, B_MODE = 2, 3, 4, 10, 11, 13, 31, 32
SCALES = {"a": 5, "b": 6, "c": 7, "d": 8}
EPILOGUES = [1, 1, 1, 2, 4, 6, 32, 36, 65536, 65540, 131072]
"""Values of hipblasLtEpilogue_t (work after a matrix product, such as a bias) without an auxiliary matrix."""
KEPT = [130, 160, 164, 192, 208, 256, 512]
"""Values of hipblasLtEpilogue_t (work after a matrix product) with an auxiliary matrix or a bias gradient.

They are RELU_AUX, GELU_AUX, GELU_AUX_BIAS, DGELU, DGELU_BGRAD, BGRADA, BGRADB.
"""
TYPES = {
    "gfx90a": [[F16] * 4, [F16] * 4, [BF16] * 4, [F16, F16, F32, F32], [F32] * 4, [I8, I8, I32, I32], [I8] * 4],
    "gfx1201": [
        *([F16] * 4, [BF16] * 4, [F8, F8, BF16, BF16], [F8, F8, F16, F16], [F8, BF8, BF16, BF16], [F8] * 4),
        *([BF8, F8, F8, F8], [F8, F8, BF8, BF8], [I8] * 4),
    ],
}


def call(chance: random.Random, arch: str) -> dict[str, Any]:
    """Return a random matrix product, in the form in which ``drivers/hipblaslt_calls.py`` expects calls."""
    types = chance.choice(TYPES[arch])
    integers = types[0] == I8
    sizes = {"m": chance.choice([17, 32, 64]), "n": chance.choice([1, 32, 33]), "k": chance.choice([32, 40, 64, 1024])}
    of_d = chance.choice([0, 0, 8])
    out: dict[str, Any] = {
        **sizes,
        "trans": chance.choice(["NN", "NT", "TN", "TT"]),
        "batch": chance.choice([1, 1, 2]),
        "types": types,
        "compute": COMPUTE_I32 if integers else COMPUTE_F32,
        "scale": I32 if integers else F32,
        "beta": chance.choice([0, 0, 1]),
        "workspace": chance.choice([0, 32 << 20, 32 << 20]),
        "pads": [chance.choice([0, 0, 8]), chance.choice([0, 0, 8]), of_d, of_d],
        "broadcast": chance.random() < 0.2,
        "attributes": [],
        "pointers": [],
    }
    if types[0] in (F8, BF8) and chance.random() < 0.7:
        out["pointers"] += [SCALES[x] for x in "ab"] + [SCALES[x] for x in "cd" if chance.random() < 0.3]
        if chance.random() < 0.2:
            out["attributes"] += [[A_MODE, 3], [B_MODE, 3]]
    number = chance.choice(KEPT if types == [F16] * 4 and chance.random() < 0.4 else EPILOGUES)
    out["attributes"].append([EPILOGUE, number])
    if number & 4 or number in (208, 256, 512):
        out["pointers"].append(BIAS)
        out["attributes"].append([BIAS_TYPE, chance.choice([F32, types[3] if types[3] in (F16, BF16) else F32])])
    if number & 128:
        out["pointers"].append(AUX)
        out["attributes"].append([AUX_LD, sizes["m"]])
    if chance.random() < 0.1:
        out["attributes"].append([POINTER_MODE, 4])
    return out


def without_workspace(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a similar call that gives the library no workspace, but uses the same line of a tuning file.

    The new call has other leading dimensions, so it is another matrix product.
    """
    return {**call, "pads": [x + 16 for x in call["pads"]], "workspace": 0}


@dataclass(frozen=True)
class Ran:
    """The results of calls of hipBLASLt, by the number of the call.

    * ``problems`` has the matrix products as the log names them.
    * ``needs`` has the kernels that the library offered, and the bytes of workspace that each needs.
    """

    problems: Mapping[int, GemmProblem]
    needs: Mapping[int, Mapping[int, int]]

    @property
    def offered(self) -> dict[int, list[int]]:
        return {number: list(found) for number, found in self.needs.items()}


def run(rocm: Rocm, folder: Path, calls: Sequence[object], most: int, settings: Mapping[str, str]) -> Ran:
    folder.mkdir()
    log = folder / "hipblaslt.log"
    command = [str(rocm.launcher), str(HERE / "drivers/hipblaslt_calls.py"), str(most)]
    logged = {"HIPBLASLT_LOG_MASK": "34", "HIPBLASLT_LOG_FILE": str(log), "VGPU_COMPUTE": "0"}
    environment = rocm.environment({"PYTHONPATH": str(HERE.parents[1]), **logged, **settings})
    given: dict[str, Any] = {"env": environment, "input": json.dumps(calls), "timeout": 600}
    ended = subprocess.run(command, **given, check=True, stdout=subprocess.PIPE, text=True)
    needs = {
        number: dict(found) for number, line in enumerate(ended.stdout.splitlines()) if (found := json.loads(line))
    }
    made = [x for line in log.read_text(encoding="utf-8").splitlines() for x in bench.read(line).records]
    problems = [x.problem for x in made if isinstance(x, Call) and isinstance(x.problem, GemmProblem)]
    return Ran(dict(zip(needs, problems, strict=True)), needs)


@pytest.mark.parametrize(("arch", "device"), [("gfx90a", "gfx90a:sramecc+:xnack-"), ("gfx1201", "gfx1201")])
def test_rows_that_coverage_names_are_used(rocm: Rocm, store: Store, tmp_path: Path, arch: str, device: str) -> None:
    """hipBLASLt uses a line of its override file for a call exactly if ``logparse coverage`` predicts it."""
    # The file (the user's choice of kernels) is written by logparse. As a control, the job also runs with the file's
    # path in a variable that hipBLASLt does not read.
    calls = [call(random.Random(number), arch) for number in range(sized(300, 6_000))]
    calls += [without_workspace(x) for x in calls[: len(calls) // 3] if x["workspace"]]
    before = run(rocm, tmp_path / "before", calls, 400, {"VGPU_ARCH": device})
    target = {"arch": device, "hipblaslt_revision": "", "hipblaslt_version": "100202"}
    wanted: dict[str, Override] = {}
    needs = []
    for number, problem in before.problems.items():
        others = before.offered[number][1:]
        key = tuning_file.key(problem, target)
        assert key is not None, problem
        if others and key not in wanted:
            chance, split = random.Random(number), [x for x in others if before.needs[number][x]]
            index = chance.choice(split if split and chance.random() < 0.7 else others)
            needs.append([problem.text, f"hipblaslt:{index}", "1.0", str(before.needs[number][index])])
            wanted[key] = Override(problem=problem, solution=Solution("hipblaslt", str(index)), target={})
    (file,) = tuning_file.write(list(wanted.values()), target)
    path = tmp_path / file.name
    path.write_bytes(file.data)
    judged = inspect(file.name, file.data, target)
    assert all(row.live for row in judged.rows)

    variable = "HIPBLASLT_TUNING_OVERRIDE_FILE"
    after = run(rocm, tmp_path / "after", calls, 1, {"VGPU_ARCH": device, variable: str(path)})
    control = run(rocm, tmp_path / "control", calls, 1, {"VGPU_ARCH": device, variable.lower(): str(path)})
    for name in ("before", "after", "control"):
        ingest([str(tmp_path / name / "hipblaslt.log")], store, run=name)
    taken: dict[str, set[bool]] = {}
    for number, problem in after.problems.items():
        row = wanted.get(str(tuning_file.key(problem, target)))
        is_row = row is not None and after.offered[number][0] == int(row.solution.id)
        changed = after.offered[number][0] != before.offered[number][0]
        assert is_row or not changed
        taken.setdefault(problem.text, set()).add(is_row)

    tables = {name: tables_of(store, name) for name in ("before", "after", "control")}
    found = {x.problem: x.state for x in coverage(judged, tables["after"]).uses}
    states = Counter((found[text], ran) for text, each in taken.items() for ran in each)
    assert states["miss", True] == states["unknown", True] == 0
    # A call that offers no workspace does not take a solution that needs one. No log states such needs.
    workspaces = {problem.text for n, problem in before.problems.items() if calls[n]["workspace"] == 0}
    assert all(text in workspaces for text, each in taken.items() if found[text] == "hit" and False in each)
    assert states["hit", True] > 20 * states["hit", False]
    assert states["miss", False]

    proof = verify(tables["before"], tables["after"], [judged])
    assert {x.problem for x in proof.outcomes if x.effect == "applied"} >= {
        x for x, each in taken.items() if each == {True}
    }
    assert not verify(tables["before"], tables["control"], [judged]).ok
    effects = {x.effect for x in verify(tables["before"], tables["control"], [judged]).outcomes}
    assert effects == {"not applied"}

    # A replay measures the needed workspace. With it, the run before tells what the next run takes.
    path = tmp_path / "measured.csv"
    rows = [["problem", "solution", "time_us", "workspace_bytes", *target], *([*x, *target.values()] for x in needs)]
    with open(path, "w", encoding="utf-8", newline="") as file_:
        csv.writer(file_).writerows(rows)
    ingest([str(path)], store, run="measured")
    foreseen = {x.problem: x for x in coverage(judged, tables_of(store, "before")).uses}
    expected = {"hit": {True}, "miss": {False}}
    for text, each in taken.items():
        assert expected.get(foreseen[text].state, each) == each, foreseen[text]
    reasons = Counter(x.state for x in foreseen.values() if "bytes of workspace" in x.reason)
    assert reasons["miss"] >= 5
    assert not any("no log states" in x.reason for x in foreseen.values())

    # Rows that name the library's own choices are taken, but nothing shows it.
    own = {n: Solution("hipblaslt", str(found[0])) for n, found in before.offered.items()}
    numbers = {str(tuning_file.key(x, target)): n for n, x in before.problems.items()}
    chosen = [Override(problem=before.problems[n], solution=own[n], target={}) for n in numbers.values()]
    (same,) = tuning_file.write(chosen, target)
    alike = verify(tables["before"], tables["control"], [inspect(same.name, same.data, target)])
    assert "as before" in {x.effect for x in alike.outcomes}
    assert "applied" not in {x.effect for x in alike.outcomes}
    assert not alike.ok
    assert control.offered.keys() == before.offered.keys()


ASKED = [
    (types, compute)
    for types in ([F16] * 4, [BF16] * 4, [F32] * 4, [F16, F16, F32, F32], [I8] * 4)
    for compute in (0, 2, 4, 5, 6, 9)
]
"""Combinations of data types and compute types (hipblasComputeType_t) to try.

The compute types are 16F, 32F, 32F_FAST_16F, 32F_FAST_16BF, 32F_FAST_TF32, 32I.
"""
ONLY_TRACE = {("f16_r", "f32_f16_r"), ("bf16_r", "f32_bf16_r")}
"""Combinations of data type and compute type for which only hipBLASLt's Trace lines state the true compute type.

The library's bench lines state f32_r instead, but the library looks for a row with the true type.
"""


def test_rows_from_trace_lines_are_used(rocm: Rocm, tmp_path: Path) -> None:
    """A line of hipBLASLt's tuning file has an effect only if its compute type is the one that is really used."""
    # hipBLASLt logs each call in two ways, as a "Trace" line and as a "bench" line. Only the Trace line always states
    # the true compute type, for example f32_f16_r and not f32_r. So choices made from Trace lines have an effect.
    some = call(random.Random(0), "gfx90a") | {"attributes": [], "pointers": [], "workspace": 32 << 20, "scale": F32}
    calls = [some | {"types": types, "compute": compute} for types, compute in ASKED]
    device = {"VGPU_ARCH": "gfx90a:sramecc+:xnack-"}
    before = run(rocm, tmp_path / "before", calls, 5, device)
    lines = (tmp_path / "before/hipblaslt.log").read_text(encoding="utf-8").splitlines()
    made = [
        x.problem for line in lines for x in log.read(re.sub(r"T\]\[\d+\]", "T]", line)).records if isinstance(x, Call)
    ]
    traced = {n: x for n, x in zip(before.problems, made, strict=True) if len(before.offered[n]) > 1}
    target = {"arch": "gfx90a", "hipblaslt_revision": "", "hipblaslt_version": "100202"}
    wanted: dict[str, Override] = {}
    for number, problem in traced.items():
        index = Solution("hipblaslt", str(before.offered[number][1]))
        wanted.setdefault(str(tuning_file.key(problem, target)), Override(problem=problem, solution=index, target={}))
    (file,) = tuning_file.write(list(wanted.values()), target)
    path = tmp_path / file.name
    path.write_bytes(file.data)
    after = run(rocm, tmp_path / "after", calls, 1, device | {"HIPBLASLT_TUNING_OVERRIDE_FILE": str(path)})
    keys = {number: str(tuning_file.key(problem, target)) for number, problem in traced.items()}
    assert {n: after.offered[n][0] for n in keys} == {n: int(wanted[x].solution.id) for n, x in keys.items()}
    other = [n for n, key in keys.items() if tuning_file.key(before.problems[n], target) != key]
    assert {(x.a_type, x.compute_type) for n in other if isinstance(x := traced[n], GemmProblem)} == ONLY_TRACE
    assert {problem.compute_type for problem in traced.values() if isinstance(problem, GemmProblem)} == {
        *("f16_r", "f32_r", "f32_f16_r", "f32_bf16_r", "xf32_r", "i32_r")
    }


def test_products_without_an_algorithm_ignore_the_file(rocm: Rocm, tmp_path: Path) -> None:
    """If a program calls hipblasLtMatmul without an algorithm, the library ignores the tuning file.

    The library then chooses a kernel by itself.
    """
    plain = call(random.Random(0), "gfx90a") | {"attributes": [], "pointers": [], "workspace": 32 << 20}
    calls = [plain, plain | {"algorithm": False}]
    device = {"VGPU_ARCH": "gfx90a:sramecc+:xnack-"}
    before = run(rocm, tmp_path / "before", calls, 5, device)
    own, index = before.offered[0][:2]
    target = {"arch": "gfx90a", "hipblaslt_revision": "", "hipblaslt_version": "100202"}
    override = Override(problem=before.problems[0], solution=Solution("hipblaslt", str(index)), target={})
    (file,) = tuning_file.write([override], target)
    path = tmp_path / file.name
    path.write_bytes(file.data)
    run(rocm, tmp_path / "after", calls, 1, device | {"HIPBLASLT_TUNING_OVERRIDE_FILE": str(path)})
    log = (tmp_path / "after/hipblaslt.log").read_text(encoding="utf-8")
    assert [int(x) for x in re.findall(r"--solution_index (\d+)", log)] == [index, own]
