"""Tests of matrix products that a program calls through hipBLASLt's C++ class instead of its C functions."""

# rocBLAS calls hipBLASLt in this way. The log line of such a call has --api_method cpp. Up to hipBLASLt 1.2.2 such
# calls need other lines of the tuning file than calls of the C functions. tests/conformance/test_hipblaslt_files.py
# compares which lines the real library uses for these calls.

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.compare.verify import verify
from analyzers.evidence.tables import Settings, Tables
from analyzers.overrides.coverage import Use, coverage
from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import merge
from analyzers.overrides.write import make
from logparse import api
from logparse.ingest import ingest
from logparse.ingest.stated_target import target_from
from logparse.libraries.hipblaslt import bench, tuning_file
from logparse.libraries.hipblaslt.tuning_rules import with_objects
from logparse.libraries.kinds.override_format import OverrideFile
from logparse.model import Call, GemmProblem, Message, Override, Solution
from logparse.store import Store
from tests.analyzers.example import gemm
from tests.conftest import SAMPLES

TARGET = {"hipblaslt_version": "100202", "hipblaslt_revision": "3b3d59eb", "arch": "gfx942", "cu_count": "304"}
MENDED = TARGET | {"hipblaslt_version": "100300"}
UNKNOWN = {name: value for name, value in TARGET.items() if name != "hipblaslt_version"}
LOG = SAMPLES / "hipblaslt/hipblaslt_rank0_4242.log"


def lines(count: int) -> list[str]:
    """Return the first ``count`` lines of the sample log, as if the program had called hipBLASLt's C++ class."""
    every = dict.fromkeys(x for x in LOG.read_text().splitlines() if x.startswith("hipblaslt-bench "))
    return [x.replace("--api_method c ", "--api_method cpp ") for x in every][:count]


def override(problem: GemmProblem) -> Override:
    return Override(problem=problem, solution=Solution("hipblaslt", "7"), target=TARGET)


def write_and_inspect(overrides: list[Override], target: dict[str, str]) -> OverrideFile:
    (file,) = make(tuning_file.WRITER, overrides, target).files
    return inspect(file.name, file.data, target)


def called(store: Store, tmp_path: Path) -> tuple[GemmProblem, Tables]:
    """Make logparse read the log of a job that called a bfloat16 matrix product twice through hipBLASLt's C++ class.

    Returns the matrix product, and everything that logparse has stored about the job.
    """
    (line,) = lines(1)
    path = tmp_path / "hipblaslt_1.log"
    path.write_text(f"{line}\n" * 2)
    ingest([str(path)], store, run="job")
    call, message = bench.read(line).records
    assert isinstance(call, Call)
    assert isinstance(call.problem, GemmProblem)
    assert message == Message(category="bench", function=bench.OBJECT, text=call.problem.text)
    return call.problem, Tables(run="job", **store.frames())


def find_only_use(file: OverrideFile, tables: Tables) -> Use:
    (use,) = coverage(file, tables).uses
    return use


@pytest.mark.parametrize(
    ("kind", "compute", "expected"),
    [
        ("bf16_r", "f32_r", "f32_bf16_r"),
        ("f16_r", "f32_r", "f32_f16_r"),
        ("f32_r", "f32_r", "f32_r"),
        ("f32_r", "xf32_r", "xf32_r"),
        ("f8_r", "f32_r", "f32_r"),
        ("f64_r", "f64_r", tuning_file.NO_ROW),
        ("i8_r", "i32_r", tuning_file.NO_ROW),
    ],
)
def test_compute_type_of_a_row_for_the_object(kind: str, compute: str, expected: str) -> None:
    problem = gemm(a_type=kind, b_type=kind, compute_type=compute)
    assert tuning_file.object_key(problem, MENDED) == tuning_file.key(problem, MENDED)
    for target in (TARGET, UNKNOWN):
        assert str(tuning_file.object_key(problem, target)).rpartition(",")[2] == expected


def test_a_row_of_f32_serves_no_call_of_16_bits(store: Store, tmp_path: Path) -> None:
    problem, tables = called(store, tmp_path)
    for target in (TARGET, UNKNOWN):
        use = find_only_use(write_and_inspect([override(problem)], target), tables)
        assert (use.state, use.line) == ("miss", None)
        assert "C++ object" in use.reason
        assert "f32_bf16_r" in use.reason
    use = find_only_use(write_and_inspect([override(problem)], MENDED), tables)
    assert (use.state, use.reason) == ("hit", "")


def test_a_second_row_is_written_for_the_cpp_class(store: Store, tmp_path: Path) -> None:
    """A matrix product that is called through hipBLASLt's C++ class gets a second row in the tuning file."""
    # It comes after the row for the C functions. Other products get only one row, and so do all products for a library
    # version that needs no second row.
    problem, tables = called(store, tmp_path)
    other = override(replace(problem, m=4096))
    both = with_objects([override(problem), other], [problem], TARGET)
    assert [x.problem.text.partition("compute=")[2].partition(",")[0] for x in both] == ["f32_r", "f32_bf16_r", "f32_r"]
    use = find_only_use(write_and_inspect(both, TARGET), tables)
    assert (use.state, use.line) == ("hit", 5)
    assert with_objects([override(problem)], [problem], MENDED) == [override(problem)]


def test_lint_and_merge_keep_both_rows(tmp_path: Path) -> None:
    """``lint`` and ``merge`` accept two lines for one matrix product in hipBLASLt's override file.

    One line is for calls of the C functions, the other for calls through the C++ class.
    """
    # Both are accepted for every library version, even an unknown one. Later versions do not need the second line, but
    # it does no harm.
    problem = gemm(a_type="bf16_r")
    (made,) = make(tuning_file.WRITER, with_objects([override(problem)], [problem], UNKNOWN), UNKNOWN).files
    paths = [str(tmp_path / f"{name}.txt") for name in "ab"]
    for path in paths:
        Path(path).write_bytes(made.data)
    assert not inspect(made.name, made.data, {}).notes
    (merged,) = merge(paths).files
    assert sorted(merged.data.splitlines()) == sorted(made.data.splitlines())


def test_verify_states_why_a_row_was_not_applied(store: Store, tmp_path: Path) -> None:
    problem, tables = called(store, tmp_path)
    verdict = verify(tables, tables, [write_and_inspect([override(problem)], TARGET)])
    assert [x.effect for x in verdict.outcomes] == ["not applied"]
    assert "only rows of compute type f32_bf16_r" in verdict.failures[0]


def test_recommend_writes_rows_that_the_object_finds(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "hipblaslt_4242.log"
    log.write_text(LOG.read_text().replace("--api_method c ", "--api_method cpp "))
    ingest([str(log), str(SAMPLES / "hipblaslt/bench_output.txt")], store, run="job")
    facts = {**target_from([str(SAMPLES / "tunableop/tunableop_results0.csv")]), **TARGET}
    api.recommend(store, settings=Settings(target=facts), out=tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*/hipblaslt_tuning.txt")
    file = inspect(path.name, path.read_bytes(), facts)
    tables = Tables(run="job", **store.frames())
    served = [use for use in coverage(file, tables).uses if use.state == "hit"]
    computes = [row.key.rpartition(",")[2] for row in file.rows]
    assert computes.count("f32_bf16_r") == len(served) == len(file.rows) // 2
