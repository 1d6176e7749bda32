"""MIOpen perf-db: the tuned parameters of a solver for a problem, shipped and found here, as text or sqlite.

::

    2x1000x13x13x1x1x1x1x512x16x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xW=ConvBinWinogradRxSf3x2:257;ConvAsm…:wrw,nhwc,…

    spatial_dim x in_channels x in_h x in_w x in_d x fil_h x fil_w x fil_d x out_channels x batchsize
    x pad_h x pad_w x pad_d x conv_stride_h x conv_stride_w x conv_stride_d x dilation_h x dilation_w x dilation_d
    x bias x group_count x layout x data_type x direction

Text since ROCm 6.2 (``<base>.db.txt`` shipped, ``<base>.HIP.<version>_<tweak>.udb.txt`` written by any run that tunes:
``MIOPEN_FIND_ENFORCE=3``), sqlite before (``<base>.db``, ``<base>_1.1.0.udb``; tables ``config``, ``perf_db``).
Grammar: ROCm/MIOpen ``tools/sqlite2txt``, ``src/include/miopen/sqlite_db.hpp``.

A row means *that* a (problem, solver) is tuned, not how fast it is: a measurement with status ``no_time``.  ``raw`` is
the parameters (private to the solver), ``key_text`` the key.  The key knows only the first tensor (x for F, dy for B
and W) and its layout, so the other one's sizes stay unknown; ``perf_key_of`` of a full problem is what to compare with.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from logparse.errors import EmissionError
from logparse.formats.format import Emission, FileFormat, Head, Origin, Outcome, Source, Writer
from logparse.formats.miopen.find_db import FILE_NAME, facts_of_name, file_name, unread
from logparse.formats.miopen.problem_key import TYPES, problem_from_key, split_types
from logparse.formats.patterns import regex
from logparse.model import ConvProblem, Fact, Measurement, Override, Problem, Record, Reject, Solution

ORIGIN = "perf-db"
_NUMBERS = (
    *("spatial_dim", "in_channels", "in_h", "in_w", "in_d", "fil_h", "fil_w", "fil_d", "out_channels", "batchsize"),
    *("pad_h", "pad_w", "pad_d", "conv_stride_h", "conv_stride_w", "conv_stride_d"),
    *("dilation_h", "dilation_w", "dilation_d", "bias", "group_count"),
)
_FIRST_TEXT = [3, 2]
"""The first MIOpen (ROCm 6.2) that reads perf-dbs as text."""
_BASE_NAME = regex(r"(?P<base>gfx\w+?)(?:_1\.\d\.0)?\.u?db(?:\.txt)?")
"""A system perf-db and the user's before ROCm 6.2: device, no backend, no build."""
_WORDS = ("layout", "data_type", "direction")
_KEY = regex(rf"[23]x(?:\d{{1,9}}x){{{len(_NUMBERS) - 1}}}[A-Za-z]\w*x(?:{'|'.join(TYPES)})\w*x[FBW]", re.ASCII)
_QUERY = f"select {', '.join('c.' + x for x in (*_NUMBERS, *_WORDS))}, p.solver, p.params " + (
    "from perf_db p join config c on p.config = c.id order by c.id, p.id"
)


# ---------------------------------------------------------------------------------------------------- keys


@lru_cache(maxsize=65536)
def problem_from_perf_key(key: str) -> ConvProblem:
    """The part of a problem that a perf-db key holds.  Raises ValueError on any other text."""
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"not a perf-db key: {key[:80]!r}")
    cells = key.split("x")
    row: dict[str, Any] = dict(zip(_NUMBERS, map(int, cells[: len(_NUMBERS)]), strict=True))
    layout, data_type, direction = cells[len(_NUMBERS) :]
    types = split_types(data_type)
    forward = direction == "F"
    roles = ("in", "weights", "out") if forward else ("out", "weights", "in")
    three = row["spatial_dim"] == 3
    here, there = ("", "out_") if forward else ("out_", "")
    sizes: dict[str, Any] = {}
    for x in "dhw" if three else "hw":
        sizes |= {f"{here}{x}": row[f"in_{x}"], f"{there}{x}": None, f"filter_{x}": row[f"fil_{x}"]}
        sizes |= {f"pad_{x}": row[f"pad_{x}"], f"dilation_{x}": row[f"dilation_{x}"]}
        sizes[f"stride_{x}"] = row[f"conv_stride_{x}"]
    first, second = ("c", "k") if forward else ("k", "c")
    texts: dict[str, Any] = {f"{role}_type": type_ for role, type_ in zip(roles, types, strict=True)}
    return ConvProblem(
        direction=direction,  # type: ignore[arg-type]
        spatial=3 if three else 2,
        n=row["batchsize"],
        groups=row["group_count"],
        bias=row["bias"],
        mode="convolution",
        **{first: row["in_channels"], second: row["out_channels"]},
        **sizes,
        **{**texts, f"{roles[0]}_layout": layout},
        in_cast=None,
        weights_cast=None,
        out_cast=None,
    )


def perf_key_of(problem: ConvProblem) -> str | None:
    """MIOpen's perf-db key of a problem; None where a field that it needs is unknown, or for a transposed one."""
    if problem.direction not in ("F", "B", "W") or problem.mode == "transposed":
        return None
    forward, three = problem.direction == "F", problem.spatial == 3
    roles = ("in", "weights", "out") if forward else ("out", "weights", "in")
    here = "" if forward else "out_"
    row: dict[str, Any] = {"spatial_dim": problem.spatial, "batchsize": problem.n, "bias": problem.bias}
    row["in_channels"], row["out_channels"] = (problem.c, problem.k) if forward else (problem.k, problem.c)
    row["group_count"] = problem.groups
    for x in "dhw":
        row |= {f"in_{x}": getattr(problem, f"{here}{x}"), f"fil_{x}": getattr(problem, f"filter_{x}")}
        for column, name in (("pad", "pad"), ("conv_stride", "stride"), ("dilation", "dilation")):
            row[f"{column}_{x}"] = getattr(problem, f"{name}_{x}") if three or x != "d" else 0
    types = [getattr(problem, f"{role}_type") for role in roles]
    words = [getattr(problem, f"{roles[0]}_layout"), *types, *(row[name] for name in _NUMBERS)]
    if any(value is None for value in words):
        return None
    data_type = types[0] if len(set(types)) == 1 else "".join(types)
    return "x".join(map(str, [*(row[name] for name in _NUMBERS), words[0], data_type, problem.direction]))


def of_batch_norms(name: str) -> bool:
    """Whether MIOpen keeps the parameters of batch normalisations in a file of this name, under keys of their own."""
    return name.startswith("batchnorm_")


# ---------------------------------------------------------------------------------------------------- reading


def recognise(head: Head) -> bool:
    """A text perf-db by its name or first key, a sqlite one by its schema."""
    if head.data.startswith(b"SQLite format 3\0"):
        return b"`perf_db`" in head.data or b"perf_db(" in head.data.replace(b" (", b"(")
    if re.search(r"(?<![fk])\.u?db\.txt$", head.name):
        return True
    key, equals, payload = head.data.lstrip(b"\r\n").split(b"\n", 1)[0].partition(b"=")
    return bool(equals) and b":" in payload and _KEY.fullmatch(key.decode("latin-1")) is not None


def facts_of_file(name: str) -> list[Fact]:
    """The facts in a perf-db's name: the device (and build) it is of."""
    base = None if FILE_NAME.fullmatch(name) else _BASE_NAME.fullmatch(name)
    # MIOpen gives the device the same word in all its names; a find-db's holds the backend too.
    return facts_of_name(name) if base is None else [x for x in facts_of_name(f"{base['base']}.HIP.fdb.txt") if _of(x)]


def _of(fact: Fact) -> bool:
    return fact.name in ("arch", "cu_count")


def read(source: Source) -> Iterator[Outcome]:
    """Facts of the name, then every row; those of batch normalisations are foreign."""
    if of_batch_norms(source.name):
        with source.open() as stream:
            yield from unread(stream)
        return
    facts = facts_of_file(source.name)
    kind = re.search(r"(u?)db(?:\.txt)?$", source.name)
    facts += [Fact("perf_db", "user" if kind[1] else "system")] if kind else []
    if facts:
        yield Outcome("fact", facts, lines=0)
    with source.open() as stream:
        if stream.read(16) != b"SQLite format 3\0":
            yield from _read_text(source)
            return
    yield from _read_sqlite(source)


def _read_text(source: Source) -> Iterator[Outcome]:
    offset = 0
    with source.open() as stream:
        for raw in stream:
            outcome = read_record(raw.removesuffix(b"\n").decode("utf-8", "backslashreplace"))
            yield Outcome(outcome.unit, outcome.records, at=offset)
            offset += len(raw)


def read_record(text: str) -> Outcome:
    """One line, ``key=solver:parameters;solver:parameters``."""
    line = text.removesuffix("\r")
    if not line.strip():
        return Outcome("blank")
    key, equals, payload = line.partition("=")
    if not equals:
        return Outcome("reject", [Reject("no key: a record is key=solver:parameters;…")])
    try:
        problem = problem_from_perf_key(key)
    except ValueError as error:
        return Outcome("reject", [Reject(str(error), 0, len(key))])
    records: list[Record] = []
    at = len(key) + 1
    for item in payload.removesuffix(";").split(";"):
        solver, colon, params = item.partition(":")
        records.append(
            _tuned(problem, key, solver, params) if colon and solver else Reject("no solver:parameters", at, len(item))
        )
        at += len(item) + 1
    tuned = any(isinstance(record, Measurement) for record in records)
    return Outcome("measurement" if tuned else "reject", records)


def _tuned(problem: ConvProblem, key: str, solver: str, params: str) -> Measurement:
    solution = Solution("miopen", solver, params)
    return Measurement(problem=problem, solution=solution, origin=ORIGIN, status="no_time", key_text=key)


def _read_sqlite(source: Source) -> Iterator[Outcome]:
    import sqlite3

    path = quote(source.local_path())
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
            db.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
            for row in db.execute(_QUERY):
                key = "x".join(map(str, row[:-2]))
                try:
                    yield Outcome("measurement", [_tuned(problem_from_perf_key(key), key, str(row[-2]), str(row[-1]))])
                except ValueError as error:
                    yield Outcome("reject", [Reject(str(error))])
    except sqlite3.Error as error:
        yield Outcome("reject", [Reject(f"sqlite: {error}")])


# ---------------------------------------------------------------------------------------------------- writing


def accepts(override: Override) -> bool:
    """Whether something is to be written: MIOpen solvers, chosen or in reserve, whose tuned parameters are known."""
    miopen = isinstance(override.problem, ConvProblem) and override.solution.library == "miopen"
    return miopen and any(x.parameters is not None for x in _with_fallback(override))


def key(problem: Problem, target: Mapping[str, str]) -> str | None:
    """The perf-db key; None for what is no convolution, or one with a field unknown that the key needs."""
    return perf_key_of(problem) if isinstance(problem, ConvProblem) else None


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> Sequence[Emission]:
    """The user perf-db that goes with a user find-db: what makes its tunable solvers run as they were measured.

    Parameters are copied, never made; of one key and solver those of the fastest override are written.  Raises
    EmissionError naming the fact that the file's name needs, for a MIOpen before 3.2 (ROCm 6.2; its user perf-db is
    sqlite, a text file would not be read), and for a problem of which the key is not known.
    """
    version = [int(x) for x in target.get("miopen_version", "").split(".")[:2] if x.isdigit()]
    if version and version < _FIRST_TEXT:
        raise EmissionError(
            f"perf-db: MIOpen {target['miopen_version']} keeps it in sqlite (text since 3.2, ROCm 6.2); tune the "
            "solver there with MIOPEN_FIND_ENFORCE=3"
        )
    by_key: dict[str, dict[str, str]] = {}
    every = (x for override in overrides for x in _with_fallback(override))
    for override in sorted(every, key=lambda x: math.inf if x.time_us is None else x.time_us):
        if override.parameters is None:
            continue
        text = _key_of(override, target)
        if text is None or any(x in override.parameters for x in ";\n\r"):
            what = f"perf-db key for {override.problem.text}" if text is None else "row can hold these parameters"
            raise EmissionError(f"no {what}: {override.solution.text}")
        by_key.setdefault(text, {}).setdefault(override.solution.id, override.parameters)
    if not by_key:
        return []
    name = file_name(target, "udb")
    return [Emission(name, "".join(_line(x, by_key[x]) for x in sorted(by_key)).encode(), _USE.format(name=name))]


def _with_fallback(override: Override) -> Sequence[Override]:
    return (override,) if override.fallback is None else (override, override.fallback)


def _key_of(override: Override, target: Mapping[str, str]) -> str | None:
    """From the find-db key that a file gave, which is MIOpen's own word, else from the problem."""
    with contextlib.suppress(ValueError):
        return perf_key_of(problem_from_key(override.key_text or ""))
    return key(override.problem, target)


def _line(key: str, solvers: Mapping[str, str]) -> str:
    return f"{key}={';'.join(f'{solver}:{params}' for solver, params in solvers.items())}\n"


_USE = """\
# MIOpen user perf-db {name}: tuned parameters for solvers of the .ufdb.txt beside it.
# MIOpen adds the system's rows to it (per solver), and warns "Invalid config loaded from Perf Db" of one it cannot use.
export MIOPEN_USER_DB_PATH={{folder}}
"""


FORMAT = FileFormat(
    name="miopen-perf-db",
    about="MIOpen perf-db, text (*.db.txt, *.udb.txt) and sqlite (*.db, *.udb): which solvers are tuned",
    recognise=recognise,
    read=read,
    origins=(Origin(ORIGIN, evidence=False),),
)
WRITER = Writer(
    name="miopen-perf-db",
    about="MIOpen user perf-db (*.udb.txt): tuned parameters of the user find-db's solvers",
    accepts=accepts,
    key=key,
    write=write,
)
