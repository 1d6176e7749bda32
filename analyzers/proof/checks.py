"""What the verbs lint, coverage, verify, diff, merge and export do: paths and stores in, results out."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from analyzers.advise import Written
from analyzers.analyzer import Tables
from analyzers.proof import convert as _convert
from analyzers.proof import coverage as _coverage
from analyzers.proof import diff as _diff
from analyzers.proof import export as _export
from analyzers.proof import settings as _settings
from analyzers.proof import verify as _verify
from analyzers.proof.convert import Converted
from analyzers.proof.coverage import Coverage
from analyzers.proof.diff import FAIL_ON, Diff, Step
from analyzers.proof.export import Exported
from analyzers.proof.lint import NotAnOverrideError, lint, rules_of
from analyzers.proof.override_file import OverrideFile
from analyzers.proof.verify import Verification
from analyzers.target import target_from
from logparse.errors import InputError, StoreError
from logparse.formats import FORMATS
from logparse.formats.format import Emission
from logparse.ingest import ingest
from logparse.model import Problem, problem_from_text
from logparse.sql import query
from logparse.store import Store, open_store

FAILED = 3
"""Exit code of a check that failed (1: something could not be read, 2: wrong usage)."""


def tables_of(store: Store, run: str | None = None) -> Tables:
    """The tables of a run, by default the latest.  Raises StoreError."""
    run = store.latest_run(run)
    return Tables(run=run, **store.frames(run))


def tables_at(word: str, store: str | None = None) -> Tables:
    """The run that a word names: ``STORE`` (its latest run), ``STORE#RUN``, the label of a run in ``store``, or log
    files, which are read into a store that is forgotten afterwards.

    Raises InputError where it is none of these.
    """
    place, hash_, run = word.rpartition("#")
    if hash_:
        return tables_of(open_store(place), run)
    opened = _existing(word)
    if opened is not None:
        return tables_of(opened)
    here = _existing(store)
    if here is not None and word in here.runs():
        return tables_of(here, word)
    with tempfile.TemporaryDirectory(prefix="logparse-") as folder:
        read = open_store(folder, create=True)
        results = ingest([word], read, run=Path(word).name or word)
        if not any(result.recognised for result in results):
            raise InputError(f"{word}: no store, {_no_run(here)} and no log that can be read")
        return tables_of(read)


def _no_run(store: Store | None) -> str:
    return "no run" if store is None else f"no run of {store.url} (there is {', '.join(store.runs()) or 'none'})"


def _existing(store: str | None) -> Store | None:
    try:
        return open_store(store)
    except StoreError:
        return None


# ------------------------------------------------------------------------------------------------------------- checks


@dataclass(frozen=True)
class Unread:
    """One of several files that could not be judged, and why."""

    path: str
    why: str


def lint_files(
    paths: Sequence[str], target: Sequence[str] = (), against: Tables | None = None, format: str | None = None
) -> tuple[list[OverrideFile], list[Unread]]:
    """Judge override files for the machine that ``--target`` words and the run ``against`` tell of.

    Of several files (``dir/*``) those that are none are told beside the others.  Raises InputError for a single one.
    """
    facts = target_from(target, FORMATS)
    if format is not None:
        rules_of("", b"", format)
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


def cover(
    paths: Sequence[str], against: Tables, target: Sequence[str] = (), *, wildcards: bool = False
) -> tuple[list[Coverage], list[Unread]]:
    """Replay a run's calls against override files; of several those that are none are told.  Raises InputError."""
    files, unread = lint_files(paths, target, against)
    return [_coverage.coverage(file, against, wildcards=wildcards) for file in files], unread


def verify(
    before: str, after: str, files: Sequence[str], store: str | None = None, fail_on: float = FAIL_ON
) -> Verification:
    """Hold the run ``after`` against ``before`` for the rows of override files, or, without files, for what the
    findings of ``before`` proposed; promises are those of ``before``'s store's last ``recommend``.
    """
    a, b = tables_at(before, store), tables_at(after, store)
    held = _existing(before.rpartition("#")[0] or before) or _existing(store)
    if not files:
        if held is None:
            raise InputError("without override files, verify needs a store with the findings of the run before")
        return _settings.verify_findings(a, b, held.findings(), fail_on)
    promised = _verify.promises(held.findings()) if held is not None else {}
    return _verify.verify(a, b, [lint(path, None, b) for path in files], promised, fail_on)


def compare(
    a: str, b: str, store: str | None = None, fail_on: float = FAIL_ON, overrides: Sequence[str] = ()
) -> tuple[Diff, list[Step]]:
    """What changed from run ``a`` to run ``b``, and what that means for old override files."""
    one, two = tables_at(a, store), tables_at(b, store)
    plan = _diff.upgrade_plan([lint(path) for path in overrides], two, fail_on) if overrides else []
    return _diff.diff(one, two, fail_on), plan


# -------------------------------------------------------------------------------------------------------------- files


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
    """Problems of a run in a tool's own language: the most called, or those that a SELECT names in a column ``problem``
    (and, if it likes, ``calls``).
    """
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


def write(emissions: Sequence[Emission], out: Path) -> list[Written]:
    """Write files into a folder, and say what makes their reader use them."""
    written = []
    out.mkdir(parents=True, exist_ok=True)
    for file in emissions:
        path = out / file.name
        path.write_bytes(file.data)
        use = file.use.replace("{path}", str(path.absolute())).replace("{folder}", str(path.parent.absolute()))
        written.append(Written(path, use))
    return written


def parse_share(text: str) -> float:
    """``3%`` or ``0.03`` as a share.  Raises InputError."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{text}: give a share such as 3% or 0.03")
    return value
