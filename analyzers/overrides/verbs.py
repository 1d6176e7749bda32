"""What the verbs lint, export and convert do: paths and stores in, results out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from analyzers.analyzer import Tables
from analyzers.overrides import convert as _convert
from analyzers.overrides import export as _export
from analyzers.overrides.convert import Converted
from analyzers.overrides.export import Exported
from analyzers.overrides.lint import NotAnOverrideError, format_of, lint
from analyzers.times.runs import tables_of, tables_of_logs
from logparse.errors import InputError
from logparse.formats import FORMATS
from logparse.formats.override_format import OverrideFile
from logparse.ingest.stated_target import target_from
from logparse.model import Problem, problem_from_text
from logparse.sql import query
from logparse.store import Store


def export(
    store: Store,
    as_: str,
    *,
    run: str | None = None,
    kind: str | None = None,
    n: int | None = None,
    sql: str | None = None,
    target: Sequence[str] = (),
) -> Exported:
    """Problems of a run in a tool's own format: the most called, or those of a SELECT with a column ``problem`` (and
    optionally ``calls``).
    """
    if as_ == "moe":
        return _export.moe(tables_of_logs(store, store.latest_run(run)))
    chosen: list[tuple[Problem, int | None]]
    if sql is not None:
        table = query(store.url, sql, run=run)
        if "problem" not in table.column_names:
            raise InputError("--sql must give a column problem, e.g. select problem, calls from workload")
        calls = table["calls"].to_pylist() if "calls" in table.column_names else [None] * table.num_rows
        rows = zip(table["problem"].to_pylist(), calls, strict=True)
        chosen = [(_problem(text), count) for text, count in rows][:n]
    else:
        if kind is not None and kind not in get_args(Kind):
            raise InputError(f"--kind {kind}: one of {', '.join(get_args(Kind))}")
        chosen = _export.select(tables_of(store, run), kind or _export.KINDS.get(as_), n)
    return _export.export(chosen, as_, target_from(target, FORMATS))


def _problem(text: object) -> Problem:
    try:
        return problem_from_text(str(text))
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"--sql: {text!r} is no problem; select the column problem of a view") from error


Kind = Literal["gemm", "grouped", "conv"]


def convert(
    paths: Sequence[str], to: str, target: Sequence[str] = (), *, same_build: bool = False, gpus: int = 1
) -> Converted:
    """Tuned GEMMs of files as another library's file."""
    return _convert.convert(paths, to, target_from(target, FORMATS), same_build=same_build, gpus=gpus)


@dataclass(frozen=True)
class Unread:
    """One of several files that could not be judged, and why."""

    path: str
    why: str


def lint_files(
    paths: Sequence[str], target: Sequence[str] = (), against: Tables | None = None, format: str | None = None
) -> tuple[list[OverrideFile], list[Unread]]:
    """Judge override files for the machine that ``--target`` words and the run ``against`` describe.

    Of several files (``dir/*``) those that are no override files are returned beside the others.  Raises InputError for
    a single one.
    """
    facts = target_from(target, FORMATS)
    if format is not None:
        format_of("", b"", format)
    judged: list[tuple[str, OverrideFile]] = []
    unread = []
    for path in dict.fromkeys(paths):
        try:
            judged.append((path, lint(path, facts, against, format)))
        except InputError as error:
            if len(paths) == 1:
                raise
            why = error.why if isinstance(error, NotAnOverrideError) else str(error).removeprefix(f"{path}: ")
            unread.append(Unread(path, why))
    names = Counter(file.name for _, file in judged)
    return [replace(file, shown=path) if names[file.name] > 1 else file for path, file in judged], unread
