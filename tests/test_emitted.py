"""Every byte stream that is written for a library or a tool, from the samples, and the lines that state how it is used.

After a wanted change: ``python -m tests.test_emitted``, then review the diff.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.overrides.convert import convert
from analyzers.overrides.export import export
from analyzers.overrides.lint import inspect
from analyzers.overrides.merge import merge
from analyzers.overrides.write import write, written
from logparse.errors import InputError
from logparse.ingest.input_file import InputFile
from logparse.ingest.stated_target import target_from
from logparse.libraries.kinds.format import Emission
from logparse.libraries.miopen import find_db, perf_db
from logparse.libraries.miopen.db_names import file_name
from logparse.libraries.miopen.find_db_items import read_record
from logparse.libraries.override_formats import OVERRIDE_FORMATS, WRITERS
from logparse.libraries.rocblas import logs as rocblas
from logparse.model import Measurement, Override, Problem
from tests.analyzers.example import B, F, W, gemm
from tests.conftest import SAMPLES

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
    """The fastest solver of each record of the sample, with the next one behind it and made-up parameters."""
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


CASES: Mapping[str, Callable[[], Sequence[Emission]]] = {
    "hipblaslt-7.0": lambda: convert([CSV], "hipblaslt", TARGET).files,
    "hipblaslt-6.4": lambda: convert([CSV], "hipblaslt", OLD, same_build=True).files,
    "tunableop": lambda: convert([TUNING], "tunableop", TARGET, gpus=2).files,
    "transformer-engine": lambda: convert([TUNING], "transformer-engine", TE_TARGET).files,
    "aiter": lambda: convert([CSV], "aiter", TARGET).files,
    "rocblas": lambda: rocblas.write(rocblas_overrides(), TARGET),
    "miopen-find-db": lambda: find_db.write(miopen_overrides(), MIOPEN),
    "miopen-perf-db": lambda: perf_db.write(miopen_overrides(), MIOPEN),
    "merged-tunableop": lambda: merge([CSV, CSV]).files,
    "merged-find-db": lambda: merge([str(SAMPLES / f"miopen/{file_name(MIOPEN)}")] * 2).files,
    "merged-perf-db": lambda: merge([str(SAMPLES / f"miopen/{file_name(MIOPEN, 'udb')}")] * 2).files,
    "merged-tuning-file": lambda: merge([TUNING, TUNING]).files,
    "merged-transformer-engine": lambda: merge([TE_CACHE, TE_CACHE]).files,
    "merged-rocblas": lambda: merge([str(GOLDENS / "rocblas/rocblas_override.csv.golden")] * 2).files,
    "merged-aiter": lambda: merge([str(GOLDENS / "aiter/bf16_tuned_gemm.csv.golden")] * 2).files,
    **{
        f"export-{name}": lambda name=name: export(PROBLEMS, name, TARGET).files  # type: ignore[misc]
        for name in ("bench", "driver", "untuned")
    },
}


def rendered(files: Sequence[Emission]) -> dict[str, bytes]:
    """File name → its bytes, and ``NAME.use`` → the lines that make a library read it."""
    out = {file.name: file.data for file in files}
    uses = {x.name: "\n".join([*x.lines, *[""] * x.use.endswith("\n")]) for x in files[:1] if x.use}
    return out | {f"{name}.use": use.encode() for name, use in uses.items()}


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_its_golden(case: str) -> None:
    made = rendered(CASES[case]())
    assert made, "a case that writes nothing tests nothing"
    for name, data in made.items():
        assert data == (GOLDENS / case / f"{name}.golden").read_bytes(), name
    assert {f"{name}.golden" for name in made} == {path.name for path in (GOLDENS / case).iterdir()}


@pytest.mark.parametrize("case", CASES)
def test_lines_of_use_can_be_pasted_whatever_the_folder_is_called(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "it's 50 $HOME"
    for file in write(CASES[case](), folder):
        words = shlex.split("\n".join(file.lines), comments=True)
        assert all(str(folder) in word for word in words if str(tmp_path) in word)
        assert any(str(folder) in word for word in words) == bool(words)


def test_no_file_takes_the_place_of_one_that_is_read(tmp_path: Path) -> None:
    own = tmp_path / "tunableop_results0.csv"
    own.write_bytes(Path(CSV).read_bytes())
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"tunableop_results0\.csv is one of the files that are read"):
        written(merge([CSV, str(own)], gpus=2), [], linked, [CSV, str(own)])
    assert own.read_bytes() == Path(CSV).read_bytes()
    assert not (tmp_path / "tunableop_results1.csv").exists()


def test_no_golden_is_left_over() -> None:
    assert {path.name for path in GOLDENS.iterdir()} == set(CASES)


def test_every_writer_has_a_case() -> None:
    covered = {case.rpartition("-")[0] if case.startswith("hipblaslt") else case for case in CASES}
    whole = {"hipblaslt": "hipblaslt-tuning-file", "transformer-engine": "transformer-engine-cache"}
    covered = {whole.get(x, x) for x in covered} | {"tunableop-untuned"}
    assert {writer.name for writer in WRITERS} <= covered


@pytest.mark.parametrize("case", [x for x in CASES if not x.startswith("export")])
def test_lint_finds_no_error_in_what_is_written(case: str) -> None:
    formats = {format.name for format in OVERRIDE_FORMATS}
    target = MIOPEN if "db" in case else OLD if case == "hipblaslt-6.4" else TARGET
    for file in CASES[case]():
        judged = inspect(file.name, file.data, target)
        assert judged.format in formats
        assert judged.ok, judged.notes
        assert all(row.live for row in judged.rows)


def main() -> None:
    """Write all goldens anew."""
    for old in GOLDENS.rglob("*.golden"):
        old.unlink()
    for case, make in CASES.items():
        (GOLDENS / case).mkdir(parents=True, exist_ok=True)
        for name, data in rendered(make()).items():
            (GOLDENS / case / f"{name}.golden").write_bytes(data)


if __name__ == "__main__":
    main()
