"""Find out for which calls of a job an override file has a row, and which rows no call uses.

An override file lists kernels that a library should use instead of its own choice.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from typing import Literal

from analyzers.evidence.cells import count_of
from analyzers.evidence.joins import calls_by_problem
from analyzers.evidence.picks import picks_vs_best
from analyzers.evidence.runs import tables_to_check
from analyzers.evidence.tables import Settings, Tables
from analyzers.job.double_counts import remarks_on
from analyzers.overrides.kernels import Kernels
from analyzers.overrides.lint import Unread, by_name, share_lines, unread_lines
from analyzers.overrides.look_up import State, look_up
from logparse.groups import in_groups
from logparse.libraries.kinds.override_format import OverrideFile, OverrideFormat, Report
from logparse.libraries.kinds.reading import Note, Row
from logparse.lookup.left_out import count_damaged_lines
from logparse.model import problem_from_text
from logparse.output import CHECK_FAILED, Answer, Rows
from logparse.store import Store
from logparse.text import pluralize

_SHOWN = 8
_NEAR_ROWS = 20_000
"""Limit for the search for rows that nearly match a call.

It is not done for a file with more rows than this, for example a database that comes with a library.
"""


@dataclass(frozen=True)
class Use:
    """The result of looking up one operator (with sizes) of a job in an override file (list of kernels).

    * ``line``: the line of the row that the library would use.
    * ``time_us``: the operator's total time in the job, µs.
    """

    problem: str
    label: str
    calls: int | None
    time_us: float | None
    key: str | None
    line: int | None
    state: State
    reason: str
    maybe: tuple[int, ...] = ()
    """Line numbers of rows that the library may use for this operator.

    There are such rows if the logs do not state everything by which the library looks up a row.
    """


@dataclass(frozen=True)
class Idle:
    """Entries of an override file (the user's list of kernels) that have no effect, all for one reason.

    * ``lines``: their line numbers.
    * ``never``: True if the library cannot use them in any job.
    """

    lines: Sequence[int]
    # It is False if only this job has no such call.
    never: bool
    reason: str


@dataclass(frozen=True)
class Coverage:
    """The result of looking up all calls of a job in one override file (list of kernels for a library).

    * ``uses``: the result for each operator.
    * ``idle``: the rows that no call uses.
    """

    file: str
    format: OverrideFormat
    run: str
    uses: tuple[Use, ...]
    idle: tuple[Idle, ...]

    def share(self, what: Literal["calls", "time_us"], state: State = "hit") -> float | None:
        """Return for which fraction (0 to 1) of the job's calls an override file (list of kernels) names the kernel.

        * ``what``: ``calls`` to weigh each call equally, ``time_us`` to weigh it by its time.
        * ``state``: by default, calls for which the file has an entry are counted. Other values count the calls for
          which it has none (``miss``), or for which this is ``unknown``.

        Returns None if no calls are counted, or if no time is known.
        """
        known = [(getattr(use, what), use.state) for use in self.uses if getattr(use, what) is not None]
        total = sum(value for value, _ in known)
        return sum(value for value, its in known if its == state) / total if total else None

    @property
    def hits(self) -> bool:
        """True if the file has a row for at least one call."""
        return any(use.state == "hit" for use in self.uses)


def run_to_check(store: Store, run: str | None = None) -> tuple[Tables, str]:
    """Return a job's data to check override files (lists of kernels for a library), and a note on damaged log lines.

    Without ``run``, the latest execution of the job is used.
    """
    return tables_to_check(store, run), count_damaged_lines(store, run)


def coverage(file: OverrideFile, tables: Tables) -> Coverage:
    """Find the entry of an override file that a library would use for each call of a job, or why it would use none.

    An override file is the user's list of kernels for a library.
    """
    format, times = by_name(file.format), times_of(tables)
    reports, kernels = reports_of(file, tables), Kernels.of(file, tables)
    called = calls_by_problem(tables.workload[tables.workload["kind"].isin(format.kinds)])
    calls = {text: None for text in reports if not format.kinds} | {str(x): count_of(n) for x, n in called.items()}
    uses = []
    for text, count in sorted(calls.items()):
        problem = problem_from_text(text)
        report = reports.get(text)
        # Calls and rows are compared in the same way as the library looks up a row.
        found = look_up(format, file.reading, problem, key=report.key if report else None)
        found = kernels.judged(text, found)
        uses.append(
            Use(
                problem=text,
                label=problem.label,
                calls=count,
                time_us=times.get(text),
                key=found.key,
                line=found.row.line if found.row else None,
                state=found.state,
                reason=": ".join(filter(None, (found.reason, report.why if report else ""))),
                maybe=found.maybe,
            )
        )
    return Coverage(file.title, format, tables.run, tuple(uses), tuple(_find_idle_rows(file, uses)))


def with_idle(file: OverrideFile, tables: Tables) -> OverrideFile:
    """Add a note to each valid row of an override file that no call of the job uses.

    The notes appear in the output of ``lint --against``.
    """
    idle = [x for x in coverage(file, tables).idle if not x.never and len(x.lines)]
    remedy = f"no call of run {tables.run} uses this row"
    notes = [Note(x.lines[0], "info", "no-call", x.reason, remedy, x.lines[1:]) for x in idle]
    return replace(file, noted=(*file.noted, *notes))


def reports_of(file: OverrideFile, tables: Tables) -> Mapping[str, Report]:
    """Return what a library wrote into its logs about its use of an override file (the user's list of kernels).

    Each operator's text maps to whether an entry was found, and which kernels ran.
    """
    columns = (tables.messages[name].astype("str") for name in ("function", "text"))
    return by_name(file.format).reported(file.name, file.reading, zip(*columns, strict=True))


def served_by(
    file: OverrideFile,
    problems: Sequence[str],
    reports: Mapping[str, Report] | None = None,
    *,
    kernels: Kernels | None = None,
) -> dict[str, Row]:
    """Map each operator (with sizes) to the row of the override file that the library would use for it.

    * An operator is left out if it is unknown whether the file has a row for it.
    * ``reports``: what logs report about the library's own look-ups. The logged key is used to find the row. If no row
      has this key, and the log does not say whether the library found one, the key is made from the operator's text
      instead.
    * ``kernels``: facts about the kernels. With them, a row is left out if its kernel cannot run the call.
    """
    format, stated = by_name(file.format), reports or {}
    found = {}
    for text in problems:
        problem, report = problem_from_text(text), stated.get(text)
        answer = look_up(format, file.reading, problem, key=report.key if report else None)
        if answer.row is None and report is not None and report.found is None:
            answer = look_up(format, file.reading, problem)
        foreign = kernels is not None and kernels.of_kind(text, answer).state == "miss"
        if answer.row is not None and not foreign:
            found[text] = answer.row
    return found


def times_of(tables: Tables) -> dict[str, float]:
    """Return the total time of each operator (with sizes) in the job, µs.

    It is the time in a trace, or else (number of calls) · (measured time of a call).
    """
    kernels = tables.kernels
    if "run" in kernels:
        kernels = kernels[kernels["run"] == tables.run]
    traced = kernels.dropna(subset=["problem"]).groupby("problem")["total_us"].sum()
    rows = picks_vs_best(tables, Settings())
    # The measured time of the library's choice is used, or else the best known time.
    each = rows["pick_us"].astype("float64").fillna(rows["best_us"].astype("float64"))
    known = (rows["calls"].astype("float64") * each).groupby(rows["problem"]).sum(min_count=1).dropna()
    return {**{str(k): float(v) for k, v in known.items()}, **{str(k): float(v) for k, v in traced.items()}}


# ------------------------------------------------------------------------------------------------ rows without a call


def _find_idle_rows(file: OverrideFile, uses: Sequence[Use]) -> Iterator[Idle]:
    format = by_name(file.format)
    served = {use.line for use in uses} | {line for use in uses for line in use.maybe}
    if not format.kinds:  # The library uses all rows of such a table for one look-up.
        keys = {use.key for use in uses if use.line is not None}
        served |= {row.line for row in file.rows if row.key in keys}
    short = len(file.rows) <= _NEAR_ROWS
    near = in_groups((use.problem for use in uses), _keep_shape_words) if short and format.kinds else {}
    none = "no call of the run" if format.kinds else "the run's log shows no lookup in this table"
    alike = ((row, (row.line,)) for row in file.rows) if short else file.reading.alike
    lines: dict[tuple[bool, str], array[int]] = {}
    for row, its in alike:
        if not row.live:
            lines.setdefault((True, row.verdicts.why), array("q")).extend(its)
            continue
        idle = [line for line in its if line not in served]
        if idle:
            lines.setdefault((False, _near_miss(row, near) or none), array("q")).extend(idle)
    return (Idle(array("q", sorted(its)), never, reason) for (never, reason), its in lines.items())


def _keep_shape_words(text: str) -> str:
    """Return only those words of an operator's text that state its kind, direction and sizes."""
    words = ((word, *word.partition("=")) for word in text.split(" "))
    # If a row of an override file and a call agree in these words, the row was perhaps made for the call.
    return " ".join(word for word, name, mark, _ in words if not mark or name in ("mnk", "in", "k", "filter"))


def _near_miss(row: Row, near: Mapping[str, Sequence[str]]) -> str | None:
    """Explain why an entry of an override file is not used, if a call of the job differs from it in only one value.

    An override file lists kernels for a library, each for certain sizes and layouts. The result is, for example: "no
    call; one call differs only in that it has ld=1024,1024,-,4096, while the row has ld=1024,1024,4160,4160". Returns
    None if every call of the same sizes differs in several values.
    """
    text = row.problem.text if row.problem is not None else ""
    for other in near.get(_keep_shape_words(text), ()):
        words = [(a, b) for a, b in zip(text.split(" "), other.split(" "), strict=False) if _contradict(a, b)]
        if len(words) == 1:
            return f"no call; one call differs only in that it has {words[0][1]}, while the row has {words[0][0]}"
    return None


def _contradict(one: str, other: str) -> bool:
    """Tell whether two descriptions of a call contradict each other in one value, as ``in=FP16`` and ``in=BF16`` do.

    ``?`` is an unknown value, so it contradicts nothing. The same is true of ``-`` for most kinds of values.
    """
    pairs = zip(one.partition("=")[2].split(","), other.partition("=")[2].split(","), strict=False)
    word = one.partition("=")[0]
    vague = {"?"} if word in ("swizzle", "scale", "input", "sms") else {"?", "-"}
    return word != other.partition("=")[0] or any(a != b and not {a, b} & vague for a, b in pairs)


# ------------------------------------------------------------------------------------------------------------ answers


def answer(files: Sequence[OverrideFile], unread: Sequence[Unread], tables: Tables, lost: str = "") -> Answer:
    """Return the output of the command ``coverage``: how much of a job uses the kernels in the user's override files.

    An override file is a list of kernels for a library. The output states the fraction of the job's calls, and of its
    time, for which a file names the kernel.

    * ``unread``: files that are no override files.
    * ``lost``: a text with the number of log lines that could not be read.
    * The exit code is 3 if the job uses no entry of at least one file.
    """
    found = [coverage(file, tables) for file in files]
    remarks = remarks_on(tables, {x.format.convolutions for x in found})
    left_out = [*_other_kinds(found, tables), *filter(None, [lost])]
    text = [*(line for x in found for line in lines(x)), *share_lines(files), *(f"note: {x}" for x in remarks)]
    text += [f"left out: {', '.join(left_out)}"] if left_out else []
    code = CHECK_FAILED if not all(x.hits for x in found) else int(bool(unread))
    table = [row for x in found for row in rows(x)]
    return Answer(text, table, "coverage", errors=unread_lines(unread), code=code)


def _other_kinds(found: Sequence[Coverage], tables: Tables) -> Iterator[str]:
    """Yield remarks about operators of the job for which the user's override files cannot name a kernel.

    For example, "12 convolutions" if all the files are lists of kernels for GEMMs.
    """
    asked = {kind for x in found for kind in x.format.kinds}
    if asked:
        problems = tables.workload.drop_duplicates("problem")["kind"].value_counts()
        nouns = {"conv": "convolution", "grouped": "grouped GEMM", "gemm": "GEMM"}
        for kind, noun in nouns.items():
            if kind not in asked and kind in problems:
                yield f"{pluralize(int(problems[kind]), f'{noun}')} (a kind that these files do not hold)"


def rows(found: Coverage) -> Rows:
    """Return the result as a table with one row per operator (with sizes) of the job, the most time first."""
    uses = sorted(found.uses, key=lambda x: (-_or_less(x.time_us), -_or_less(x.calls), x.problem))
    return [{**asdict(x), "problem": x.label, "text": x.problem, "file": found.file} for x in uses]


def _or_less(value: float | None) -> float:
    return -1.0 if value is None or math.isnan(value) else value


def lines(found: Coverage) -> list[str]:
    """Return a summary for the user: how much of a job uses the kernels in an override file (list of kernels).

    For example: ``covers 83 % of calls, 91 % of GEMM time; 12 rows can never hit, …``.
    """
    if not found.format.kinds:
        return [*_look_up_lines(found), *_idle_lines(found)]
    what = "convolution" if found.format.convolutions else "GEMM"
    calls, time = found.share("calls"), found.share("time_us")
    parts = [
        "an unknown share of the run's calls (no log counts the calls)" if calls is None else f"{calls:.1%} of calls"
    ]
    parts.append(f"{what} time: unknown" if time is None else f"{time:.1%} of the known {what} time")
    unknown = found.share("calls", "unknown")
    if unknown:
        parts.append(f"for another {unknown:.1%} of calls it is unknown")
    hits = sum(use.state == "hit" for use in found.uses)
    out = [f"{found.file} covers {', '.join(parts)} ({hits:,} of {len(found.uses):,} problems of run {found.run})"]
    if not found.uses:
        out = [f"{found.file}: run {found.run} calls no {what}, so the file can cover nothing"]
    return [*out, *_idle_lines(found)]


def _look_up_lines(found: Coverage) -> list[str]:
    """Return lines for the user about a file that an inference server opens by name, for example a table of tiles.

    They say which of the wanted files were found.
    """
    if not found.uses:
        return [f"{found.file}: run {found.run} looks up no such table, so the file can serve nothing"]
    hits = sum(use.state == "hit" for use in found.uses)
    out = [f"{found.file} serves {hits:,} of the {len(found.uses):,} tables that run {found.run} looked up"]
    others = [use.label for use in found.uses if use.state != "hit"]
    out += [f"  not: {label}" for label in others[:_SHOWN]]
    return [*out, *([f"  and {len(others) - _SHOWN:,} more"] if len(others) > _SHOWN else [])]


def _idle_lines(found: Coverage) -> list[str]:
    """Return lines for the user: why some entries of an override file (list of kernels for a library) are never used.

    The most frequent reason comes first.
    """
    out = []
    for never, text in ((True, "can never hit"), (False, "hit nothing in this run")):
        reasons = {idle.reason: idle.lines for idle in found.idle if idle.never is never}
        count = sum(map(len, reasons.values()))
        if count:
            out.append(f"{count:,} {'row' if count == 1 else 'rows'} {text}:")
        for reason, its in sorted(reasons.items(), key=lambda entry: (-len(entry[1]), entry[0]))[:_SHOWN]:
            first = [line for line, _ in islice(groupby(its), 6)]  # A line of a find-db has several rows.
            more = " …" if len(first) > 5 else ""
            out.append(f"  {len(its):,} (line {', '.join(map(str, first[:5]))}{more}): {reason}")
    return out
