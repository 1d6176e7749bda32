"""One override file from several: of several GPUs, jobs or people, for one device and one build of the library.

Files of other validators, revisions, devices or builds are refused: their times and indices mean something else.  Of
one key (and, in MIOpen, one solver) the fastest finite time wins; where a format has no times the first file's row is
taken.  Where files disagree it is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from analyzers.overrides import aiter as rules_aiter
from analyzers.overrides import merge_miopen, merge_tables, tunableop
from analyzers.overrides.lint import rules_of
from analyzers.overrides.merge_choice import Choice, Contents, Merged, choose, left_out, unusable
from analyzers.overrides.tunableop_reader import read as read_tunableop
from logparse.errors import InputError
from logparse.formats import aiter, rocblas
from logparse.formats.format import Emission
from logparse.formats.hipblaslt import tuning_file
from logparse.formats.miopen import find_db, perf_db
from logparse.formats.tunableop import results, validators
from logparse.ingest.input_file import InputFile

MERGES: Mapping[str, Callable[[Contents], Merged]] = {
    find_db.FORMAT.name: merge_miopen.find_dbs,
    perf_db.FORMAT.name: merge_miopen.perf_dbs,
    tuning_file.FORMAT.name: merge_tables.tuning_files,
    rocblas.TUNE.name: merge_tables.rocblas_rows,
    aiter.FORMAT.name: merge_tables.aiter_tables,
    rules_aiter.KERNELS: merge_tables.aiter_tables,
}
"""By format, besides TunableOp's, which is written once per GPU."""


def merge(paths: Sequence[str], gpus: int = 1) -> Merged:
    """Merge files of one format.

    Raises InputError where one cannot be read, and where they are of several formats, devices or builds.
    """
    contents = []
    for path in paths:
        file = InputFile(path)
        try:
            with file.open() as stream:
                contents.append((path, file.name, stream.read()))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from error
    full = [x for x in contents if x[2].strip()]
    empty = [f"{path}: empty, nothing taken" for path, _, data in contents if not data.strip()]
    if not full:
        raise InputError("nothing to merge: every file is empty")
    formats = {path: rules_of(name, data).format for path, name, data in full}
    if len(set(formats.values())) > 1:
        said = ", ".join(f"{path} is {format}" for path, format in formats.items())
        raise InputError(f"files of several formats cannot be merged: {said}")
    format = next(iter(formats.values()))
    if gpus > 1 and format != results.FORMAT.name:
        raise InputError(f"--gpus: only TunableOp reads one file per device, these are {format}")
    merged = _tunableop(full, gpus) if format == results.FORMAT.name else MERGES[format](full)
    return Merged(merged.emissions, merged.keys, merged.conflicts, (*empty, *merged.notes))


def _tunableop(contents: Contents, gpus: int) -> Merged:
    notes: list[str] = []
    header: dict[str, str] = {}
    found: dict[str, list[Choice]] = {}
    for path, name, data in contents:
        header = _agreed(header, _validators(data), contents[0][0], path)
        file = tunableop.inspect(name, data, {})
        for row in file.rows:
            # Rows that PyTorch shadows or cannot read for a missing line end were measured all the same.
            if row.solution is None or unusable(row):
                notes.append(left_out(path, row.line, row.verdicts.why or "no solution"))
                continue
            choice = Choice(path, row.line, row.solution.raw or row.solution.text, row.time_us)
            found.setdefault(row.key, []).append(choice)
    # The set is the files' own, so complete whatever it holds: that is what a CUDA build's means to the writer.
    lines = validators.lines({**_as_facts(header), "backend": "CUDA"})
    taken, conflicts = choose(found)
    body = [f"{key},{choice.solution},{_milliseconds(choice.time_us)}" for key, choice in sorted(taken.items())]
    data = "".join(f"{line}\n" for line in [*lines, *body]).encode()
    use = f"export PYTORCH_TUNABLEOP_FILENAME={{folder}}/{results.FILE_NAME}.csv"
    emissions = tuple(Emission(f"{results.FILE_NAME}{gpu}.csv", data, use) for gpu in range(gpus))
    return Merged(emissions, len(body), conflicts, tuple(notes))


def _validators(data: bytes) -> dict[str, str]:
    # A byte order mark and CR LF keep PyTorch from reading a file, not us.
    text = data.removeprefix(b"\xef\xbb\xbf")
    return {key: value.removesuffix("\r") for key, value in read_tunableop(text).validators.items()}


def _agreed(known: Mapping[str, str], mine: Mapping[str, str], first: str, path: str) -> dict[str, str]:
    if not mine:
        raise InputError(f"{path}: no validators, so nobody can tell which PyTorch its rows are of")
    if known and known != mine:
        other = sorted(key for key in {*known, *mine} if known.get(key) != mine.get(key))
        said = "; ".join(f"{key} is {mine.get(key, 'missing')}, not {known.get(key, 'missing')}" for key in other)
        raise InputError(f"{path} and {first} were written by different builds, their times cannot be merged: {said}")
    return dict(mine)


def _as_facts(header: Mapping[str, str]) -> dict[str, str]:
    return {f"{validators.PREFIX}{key}": value for key, value in header.items()}


def _milliseconds(time_us: float | None) -> str:
    return "0" if time_us is None else f"{time_us / 1000:.9f}".rstrip("0").rstrip(".")
