"""Tests of every file that logparse writes for a GPU library or a tool, compared with expected files."""

# The content comes from the samples. Beside each expected file is another one (NAME.use), with the lines that make a
# library use the file.

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from analyzers.overrides.convert import convert
from analyzers.overrides.export import export
from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import merge
from analyzers.overrides.write import write, write_files
from logparse.errors import InputError
from logparse.ingest.input_file import InputFile
from logparse.ingest.stated_target import target_from
from logparse.libraries import FORMATS
from logparse.libraries.kinds.format import Emission, FileFormat, Head
from logparse.libraries.kinds.override_format import OverrideFormat
from logparse.libraries.miopen import find_db, perf_db
from logparse.libraries.miopen.db_names import file_name
from logparse.libraries.miopen.find_db_items import read_record
from logparse.libraries.override_formats import OVERRIDE_FORMATS, WRITERS, format_of
from logparse.libraries.rocblas import logs as rocblas
from logparse.model import Measurement, Override, Problem
from logparse.target import Facts
from tests.analyzers.example import B, F, W, gemm
from tests.conftest import SAMPLES
from tests.golden import Goldens

GOLDENS = Path(__file__).parent / "goldens" / "emitted"
CSV = str(SAMPLES / "tunableop/tunableop_results0.csv")
TUNING = str(SAMPLES / "hipblaslt/tuning_7.0.txt")
TARGET = {**target_from([CSV]), "cu_count": "304"}
TE_TARGET = TARGET | {"transformer_engine_columns": "22"}
TE_CACHE = str(GOLDENS / "transformer-engine/transformer_engine_cache.csv.golden")
OLD = TARGET | {"hipblaslt_version": "1200"}
MIOPEN = {"arch": "gfx942", "cu_count": "304", "backend": "HIP", "miopen_version": "3.4.0", "miopen_tweak": "7c1e0a9d2"}
PROBLEMS: Sequence[Problem] = [gemm(), gemm(64, n=7, bias=True), W, F, B]


def miopen_overrides() -> list[Override]:
    """Return rows for a MIOpen override file: for each convolution of the sample, its two fastest solvers.

    The second fastest solver is the fallback. The tuning parameters of the solvers are made up.
    """
    out = []
    for line in (SAMPLES / f"miopen/{file_name(MIOPEN)}").read_text().splitlines():
        rows = [
            Override(
                problem=x.problem, solution=x.solution, target=MIOPEN, time_us=x.time_us,
                workspace_bytes=x.workspace_bytes, key_text=x.key_text,
                parameters="DeviceGroupedConvBwdWeight_Xdl<64, 64, 32>+2" if "Xdlops" in x.solution.id else None,
            )
            for x in read_record(line).records
            if isinstance(x, Measurement)
        ]  # fmt: skip
        first, second = sorted(rows, key=lambda row: row.time_us or 0.0)[:2]
        out.append(replace(first, fallback=second))
    return out


def rocblas_overrides() -> list[Override]:
    reader = rocblas.TUNE.begin()
    lines = InputFile(str(SAMPLES / "tables/rocblas.log")).lines()
    records = [record for line in lines for record in getattr(reader.take(line), "records", ())]
    rows = [x for x in records if isinstance(x, Measurement)]
    return [Override(problem=x.problem, solution=x.solution, target=TARGET) for x in rows]


@dataclass(frozen=True)
class Case:
    """A test case: files that logparse writes for one GPU and library build.

    * ``make`` returns the files.
    * ``format`` is their format as override files, or None.
    * ``target`` describes the GPU and the library build.
    """

    # An override file is the user's choice of kernels. Other files, such as commands of a tool, have the format None.

    make: Callable[[], Sequence[Emission]]
    format: str | None = None
    target: Facts = field(default_factory=dict)


def own_samples(format: OverrideFormat) -> list[Path]:
    """Return the sample files of this format in which logparse's check finds nothing wrong.

    The files are override files (the user's choice of kernels). The library would use every line.
    """
    out = []
    for path in sorted(path for path in SAMPLES.rglob("*") if path.is_file()):
        head = Head(path.name, path.read_bytes())
        if format.recognise(head):
            judged = format.inspect(path.name, head.data, {})
            if judged.ok and judged.rows and all(row.live for row in judged.rows):
                out.append(path)
    return out


def overrides_of(format: OverrideFormat, name: str, data: bytes, target: Facts) -> list[Override]:
    """Read an override file (the user's choice of kernels), and return its lines as overrides.

    ``target`` is the GPU and the library build for which they are.
    """
    return [
        Override(
            problem=row.problem,
            solution=row.solution,
            target=target,
            time_us=row.time_us,
            workspace_bytes=row.workspace_bytes,
            key_text=row.key,
            parameters=row.text.partition(":")[2] or None if not format.selects else None,
        )
        for row in format.reader(name, data, target).rows
        if row.problem is not None and row.solution is not None
    ]


def rewrite_sample(format: OverrideFormat) -> Sequence[Emission]:
    """Read a sample file in which a user chooses kernels, and write its choices to new files of the same format.

    Returns the new files. Raises AssertionError if ``sample_logs`` has no good file of this format.
    """
    assert format.writer is not None
    found = own_samples(format)
    assert found, f"{format.name}: sample_logs/ has no file of it without an error: its writer has no case"
    path = found[0]
    return format.writer.write(overrides_of(format, path.name, path.read_bytes(), TARGET), TARGET)


CASES: dict[str, Case] = {
    "hipblaslt-7.0": Case(lambda: convert([CSV], "hipblaslt", TARGET).files, "hipblaslt-tuning-file", TARGET),
    "hipblaslt-6.4": Case(
        lambda: convert([CSV], "hipblaslt", OLD, same_build=True).files, "hipblaslt-tuning-file", OLD
    ),
    "tunableop": Case(lambda: convert([TUNING], "tunableop", TARGET, gpus=2).files, "tunableop-results", TARGET),
    "transformer-engine": Case(
        lambda: convert([TUNING], "transformer-engine", TE_TARGET).files, "transformer-engine-cache", TE_TARGET
    ),
    "aiter": Case(lambda: convert([CSV], "aiter", TARGET).files, "aiter", TARGET),
    "rocblas": Case(lambda: rocblas.write(rocblas_overrides(), TARGET), "rocblas-tune", TARGET),
    "miopen-find-db": Case(lambda: find_db.write(miopen_overrides(), MIOPEN), "miopen-find-db", MIOPEN),
    "miopen-perf-db": Case(lambda: perf_db.write(miopen_overrides(), MIOPEN), "miopen-perf-db", MIOPEN),
    "merged-tunableop": Case(lambda: merge([CSV, CSV]).files, "tunableop-results", TARGET),
    "merged-find-db": Case(
        lambda: merge([str(SAMPLES / f"miopen/{file_name(MIOPEN)}")] * 2).files, "miopen-find-db", MIOPEN
    ),
    "merged-perf-db": Case(
        lambda: merge([str(SAMPLES / f"miopen/{file_name(MIOPEN, 'udb')}")] * 2).files, "miopen-perf-db", MIOPEN
    ),
    "merged-tuning-file": Case(lambda: merge([TUNING, TUNING]).files, "hipblaslt-tuning-file", TARGET),
    "merged-transformer-engine": Case(lambda: merge([TE_CACHE, TE_CACHE]).files, "transformer-engine-cache", TE_TARGET),
    "merged-rocblas": Case(
        lambda: merge([str(GOLDENS / "rocblas/rocblas_override.csv.golden")] * 2).files, "rocblas-tune", TARGET
    ),
    "merged-aiter": Case(lambda: merge([str(GOLDENS / "aiter/bf16_tuned_gemm.csv.golden")] * 2).files, "aiter", TARGET),
    **{
        f"export-{name}": Case(lambda name=name: export(PROBLEMS, name, TARGET).files)  # type: ignore[misc]
        for name in ("bench", "driver", "untuned")
    },
}
"""The files to write for each folder of golden files (expected outputs).

If a format of override files has no case here, its sample file is read and written again.
"""
CASES |= {
    f"rewritten-{format.name}": Case(partial(rewrite_sample, format), format.name, TARGET)
    for format in OVERRIDE_FORMATS
    if format.writer is not None and format.name not in {case.format for case in CASES.values()}
}


def collect_contents(files: Sequence[Emission]) -> dict[str, bytes]:
    """Return the bytes of each file that logparse wrote: {name: content}.

    The key ``NAME.use`` holds the lines, for example ``export …``, that make a library use the file.
    """
    out = {file.name: file.data for file in files}
    uses = {x.name: "\n".join([*x.lines, *[""] * x.use.endswith("\n")]) for x in files[:1] if x.use}
    return out | {f"{name}.use": use.encode() for name, use in uses.items()}


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_its_golden(case: str, golden: Goldens) -> None:
    made = {GOLDENS / case / f"{name}.golden": data for name, data in collect_contents(CASES[case].make()).items()}
    assert made, "a case that writes nothing tests nothing"
    for path, data in made.items():
        golden.check(path, data)
    golden.check_names(GOLDENS / case, made)


@pytest.mark.parametrize("case", CASES)
def test_lines_of_use_can_be_pasted_whatever_the_folder_is_called(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "it's 50 $HOME"
    for file in write(CASES[case].make(), folder):
        words = shlex.split("\n".join(file.lines), comments=True)
        assert all(str(folder) in word for word in words if str(tmp_path) in word)
        assert any(str(folder) in word for word in words) == bool(words)


def test_no_file_takes_the_place_of_one_that_is_read(tmp_path: Path) -> None:
    own = tmp_path / "tunableop_results0.csv"
    own.write_bytes(Path(CSV).read_bytes())
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"tunableop_results0\.csv is also an input file"):
        write_files(merge([CSV, str(own)], gpus=2), [], linked, [CSV, str(own)])
    assert own.read_bytes() == Path(CSV).read_bytes()
    assert not (tmp_path / "tunableop_results1.csv").exists()


def test_no_golden_is_left_over(golden: Goldens) -> None:
    """The folder of golden files (expected outputs) has no file that no test case writes any more.

    Another test compares the contents of the files.
    """
    golden.check_names(GOLDENS, (path for path in GOLDENS.rglob("*") if path.parent.name in CASES), "**/*")


def test_every_writer_has_a_case() -> None:
    covered = {case.format for case in CASES.values()}
    for writer in WRITERS:
        format = format_of(writer)
        if format is not None:
            assert format.name in covered
        else:  # a list that a tuner reads, and ingest, too
            (reader,) = [x for x in FORMATS if x.name == writer.name and isinstance(x, FileFormat)]
            made = [Head(x.name, x.data) for case in CASES.values() if case.format is None for x in case.make()]
            assert any(map(reader.recognise, made))


@pytest.mark.parametrize("case", [x for x in CASES if CASES[x].format])
def test_lint_finds_no_error_in_what_is_written(case: str) -> None:
    for file in CASES[case].make():
        judged = inspect(file.name, file.data, CASES[case].target)
        assert judged.format == CASES[case].format
        assert judged.ok, judged.notes
        assert all(row.live for row in judged.rows)
