"""One override file from several: TunableOp CSVs of several GPUs, MIOpen user find-dbs of several jobs, aiter's tables.

Files of other validators or of another device or build are refused: their times and indices mean something else.  Of
one key (and, in MIOpen, one solver) the fastest finite time wins; where files disagree on the winner it is listed.
aiter's table has the device in its keys and tells no build; two rows of one key would make its reader raise.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzers.proof import rules_aiter, rules_miopen, rules_tunableop
from analyzers.proof.lint import rules_of
from analyzers.proof.override_file import Row, text_of
from analyzers.proof.rules_miopen import Item, items
from analyzers.proof.tunableop_reader import read as read_tunableop
from logparse.errors import InputError
from logparse.formats.format import Emission
from logparse.formats.tables import aiter
from logparse.formats.tunableop import results, validators
from logparse.source import InputFile

_FIND_DB = "miopen-find-db"


@dataclass(frozen=True)
class Choice:
    """What one file says of a key: its solution, and the time (µs) where it has one."""

    file: str
    line: int
    solution: str
    time_us: float | None


@dataclass(frozen=True)
class Conflict:
    """A key for which files name different solutions; ``taken`` is the one that was written."""

    key: str
    taken: Choice
    others: tuple[Choice, ...]


@dataclass(frozen=True)
class Merged:
    """The files to write (one per GPU for TunableOp), how many keys they hold, the conflicts, and what was left out."""

    emissions: tuple[Emission, ...]
    keys: int
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]


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
    if format == results.FORMAT.name:
        merged = _tunableop(full, gpus)
    elif format == _FIND_DB:
        merged = _find_db(full)
    elif format == aiter.FORMAT.name:
        merged = _aiter(full)
    else:
        raise InputError(
            f"{format}: only TunableOp results, MIOpen user find-dbs and aiter's bf16 tables can be merged"
        )
    return Merged(merged.emissions, merged.keys, merged.conflicts, (*empty, *merged.notes))


# -------------------------------------------------------------------------------------------------------- TunableOp


def _tunableop(contents: Sequence[tuple[str, str, bytes]], gpus: int) -> Merged:
    notes: list[str] = []
    header: dict[str, str] = {}
    found: dict[str, list[Choice]] = {}
    for path, name, data in contents:
        header = _agreed(header, _validators(data), contents[0][0], path)
        file = rules_tunableop.inspect(name, data, {})
        for row in file.rows:
            # Rows that PyTorch shadows or cannot read for a missing line end were measured all the same.
            if row.solution is None or _unusable(row):
                notes.append(f"{path}, line {row.line}: left out: {row.verdicts.why or 'no solution'}")
                continue
            choice = Choice(path, row.line, row.solution.raw or row.solution.text, row.time_us)
            found.setdefault(row.key, []).append(choice)
    # The set is the files' own, so complete whatever it holds: that is what a CUDA build's means to the writer.
    lines = validators.lines({**_as_facts(header), "backend": "CUDA"})
    taken, conflicts = _choose(found)
    body = [f"{key},{choice.solution},{_milliseconds(choice.time_us)}" for key, choice in sorted(taken.items())]
    data = "".join(f"{line}\n" for line in [*lines, *body]).encode()
    use = f"# {len(body)} keys of {len(contents)} files; PYTORCH_TUNABLEOP_FILENAME={{folder}}/{results.FILE_NAME}.csv"
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


# ----------------------------------------------------------------------------------------------------------- MIOpen


def _find_db(contents: Sequence[tuple[str, str, bytes]]) -> Merged:
    names = {name for _, name, _ in contents}
    if len(names) > 1:
        raise InputError(
            f"find-dbs of different devices or builds cannot be merged, their names differ: {', '.join(sorted(names))}"
        )
    name = names.pop()
    if any(note.rule == "file-name" for note in rules_miopen.inspect(name, b"", {}).notes):
        raise InputError(f"{name} does not say of which device and build it is, as MIOpen's own names do")
    notes: list[str] = []
    best: dict[str, dict[str, tuple[Choice, Item]]] = {}
    winners: dict[str, list[Choice]] = {}
    for path, _, data in contents:
        text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
        clean = rules_miopen.inspect(name, text.encode("utf-8", "surrogateescape"), {})
        per: dict[str, Choice] = {}
        for item, row in zip(items(text), clean.rows, strict=True):
            if not _usable(row):
                notes.append(f"{path}, line {item.line}: left out: {row.verdicts.why or 'no time'}")
                continue
            choice = Choice(path, item.line, item.solver, row.time_us)
            solvers = best.setdefault(item.key, {})
            if item.solver not in solvers or _order(choice) < _order(solvers[item.solver][0]):
                solvers[item.solver] = (choice, item)
            if item.key not in per or _order(choice) < _order(per[item.key]):
                per[item.key] = choice
        for key, choice in per.items():
            winners.setdefault(key, []).append(choice)
    _, conflicts = _choose(winners)
    lines = [
        f"{key}={';'.join(_item(x) for _, x in sorted(best[key].values(), key=_by_time))}\n" for key in sorted(best)
    ]
    emission = Emission(name, "".join(lines).encode("utf-8", "surrogateescape"), "export MIOPEN_USER_DB_PATH={folder}")
    return Merged((emission,), len(best), conflicts, tuple(notes))


def _usable(row: Row) -> bool:
    """Whether MIOpen can take the item, whichever of several equal records it stands in."""
    shadowed = row.verdicts.read is False and row.verdicts.why.startswith("the key stands")
    return row.time_us is not None and (row.live or shadowed)


def _by_time(entry: tuple[Choice, Item]) -> tuple[float, str]:
    return _order(entry[0])


def _item(item: Item) -> str:
    return f"{item.solver}:{','.join(item.values[:3])}"


# ------------------------------------------------------------------------------------------------------------- aiter


def _aiter(contents: Sequence[tuple[str, str, bytes]]) -> Merged:
    notes = ["the files do not tell which hipBLASLt and kernels their rows are of: merge tables of one build only"]
    found: dict[str, list[Choice]] = {}
    lines: dict[tuple[str, int], list[str]] = {}
    header: list[str] = []
    for path, name, data in contents:
        columns, entries, damage = rules_aiter.entries(text_of(data)[0])
        file = rules_aiter.inspect(name, data, {})
        broken = next((x for x in (*damage, *file.notes) if x.severity == "error" and x.rule in _NO_TABLE), None)
        if broken is not None:
            raise InputError(f"{path}: {broken.message}")
        header = header or columns
        if columns != header:
            raise InputError(f"{path} and {contents[0][0]} have other columns: they are of several versions of aiter")
        for entry, row in zip(entries, file.rows, strict=True):
            tuned = entry.texts.get("us", entry.texts.get("soltimes", "")).strip()
            if row.solution is None or (tuned and row.time_us is None) or _unusable(row):
                notes.append(f"{path}, line {row.line}: left out: {row.verdicts.why or 'it could not be run'}")
                continue
            key = ",".join(entry.texts[x] for x in aiter.KEY_COLUMNS if x in columns)
            found.setdefault(key, []).append(Choice(path, row.line, row.solution.raw or row.solution.text, row.time_us))
            lines[path, row.line] = [entry.texts.get(x, "") for x in columns]
    taken, conflicts = _choose(found)
    sink = io.StringIO()
    body = [lines[choice.file, choice.line] for _, choice in sorted(taken.items())]
    csv.writer(sink, lineterminator="\n").writerows([header, *body])
    use = "export AITER_CONFIG_GEMM_BF16={path}"
    return Merged((Emission("bf16_tuned_gemm.csv", sink.getvalue().encode(), use),), len(body), conflicts, tuple(notes))


_NO_TABLE = ("columns", "values", "empty")
"""Rules that say that pandas or aiter reads no table."""


def _unusable(row: Row) -> bool:
    return False in (row.verdicts.matched, row.verdicts.honoured)


# ---------------------------------------------------------------------------------------------------------- choosing


def _order(choice: Choice) -> tuple[float, str]:
    return (math.inf if choice.time_us is None else choice.time_us, choice.solution)


def _choose(found: Mapping[str, Sequence[Choice]]) -> tuple[dict[str, Choice], tuple[Conflict, ...]]:
    """The fastest of each key, rows with a time before those without, and the keys with several solutions."""
    taken = {key: min(choices, key=_order) for key, choices in found.items()}
    conflicts = [
        Conflict(key, taken[key], tuple(x for x in choices if x.solution != taken[key].solution))
        for key, choices in sorted(found.items())
        if len({x.solution for x in choices}) > 1
    ]
    return taken, tuple(conflicts)
