"""Verify override files row by row: compare a run without them with a run that uses them.

Three things are checked for each operator (with sizes) for which a file has a row:

* whether the job now runs the kernel of the row, as a log or else the kernels of a trace show
* whether the time of a call changed
* what the change gained, in comparison with the promised saving
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill, shorten
from typing import Any, Literal, TypeVar

import pandas as pd

from analyzers.compare.diff import FAIL_ON, diff
from analyzers.compare.timings import kernels_of, main_pick
from analyzers.evidence.cells import count_of
from analyzers.evidence.joins import calls_by_problem
from analyzers.evidence.runs import existing, tables_at
from analyzers.evidence.tables import Tables
from analyzers.overrides.coverage import Idle, coverage, reports_of, served_by
from analyzers.overrides.kernels import Kernels
from analyzers.overrides.lint import by_name, facts_of_run, files_in, lint, same_calls
from logparse.libraries.kinds.override_format import OverrideFile, Report
from logparse.libraries.kinds.reading import Row
from logparse.libraries.override_formats import OVERRIDE_FORMATS
from logparse.libraries.tunableop.solutions import hipblaslt_index
from logparse.model import Gain, Solution, problem_from_text, solution_from_text
from logparse.output import CHECK_FAILED, Answer, Rows
from logparse.text import (
    LINES,
    cut_to_width,
    describe_gain,
    duration,
    format_difference,
    line_width,
    make_printable,
    pluralize,
)

_WIDE = 60
LONG = 1000
"""The largest number of lines that ``verify --verbose`` prints."""
Effect = Literal["applied", "as before", "not applied", "unchanged kernel", "changed kernel", "not called", "unknown"]
"""A word or two for the effect that a row of an override file had, as far as the two runs show it.

For example ``applied``, ``not applied`` or ``not called``. ``as before`` means that the row's kernel ran in both runs,
so nothing shows that the library read the row.
"""
Move = Literal["faster", "slower", "same", "unknown"]
K = TypeVar("K")
V = TypeVar("V")

SIGNS = tuple(sign for format in OVERRIDE_FORMATS for sign in format.signs)
"""Messages by which libraries report that they ignored an override, each with its meaning."""


@dataclass(frozen=True)
class Outcome:
    """The effect of one row of an override file (the user's list of kernels) on one operator.

    * ``basis``: source of the times, for example traces.
    * ``gained_us``, ``promised_us``: for all calls of the second run. None if unknown.
    """

    problem: str
    label: str
    file: str
    line: int
    intended: str
    before: str | None
    after: str | None
    effect: Effect
    move: Move
    basis: str | None
    # It has the times before and after.
    per_call: Gain | None
    calls: int | None
    promised_us: float | None
    why: str = ""
    """The reason why the library did not use the row, if it is known."""

    @property
    def gained_us(self) -> float | None:
        return None if self.per_call is None or self.calls is None else self.per_call.saving_us * self.calls


@dataclass(frozen=True)
class Verification:
    """The result of checking what override files changed between two runs.

    * ``outcomes``: the result for each operator for which a file has a row.
    * ``idle``: the rows that no call used.
    * ``signs``: what the logs report about ignored overrides.
    * ``failures``: the reasons why the verification failed. Empty if it did not fail.
    * ``in_run``: all GPU time of the traces of the two runs. None if the runs did not do the same work.
    """

    before: str
    after: str
    outcomes: tuple[Outcome, ...]
    idle: tuple[tuple[str, Idle], ...]
    signs: tuple[str, ...]
    failures: tuple[str, ...]
    in_run: Gain | None = None

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def gained_us(self) -> float:
        """The time that the job saved, µs, because its libraries used kernels from the user's override files.

        Operators with an unknown gain are left out.
        """
        return sum(x.gained_us for x in self.outcomes if x.gained_us is not None)

    @property
    def promised_us(self) -> float | None:
        """The promised saving, µs, for those operators whose gain was measured. None if nothing was promised."""
        known = [x.promised_us for x in self.outcomes if x.promised_us is not None and x.gained_us is not None]
        return sum(known) if known else None


def verify_at(
    before: str,
    after: str,
    files: Sequence[str],
    store: str | None,
    fail_on: float = FAIL_ON,
    begins: Callable[[str], None] = lambda stage: None,
) -> Verification:
    """Compare a job before and after the user gave its libraries override files (lists of kernels to use).

    * ``before``, ``after``: the two runs of the job, as the user named them on the command line.
    * ``files``: the paths of the override files, or of folders with them.
    * ``begins``: called with a short text before each of the ``STAGES`` stages, to show progress.

    The result also has the savings that the last ``logparse recommend`` for ``before`` predicted.
    """
    begins(f"reading {before}")
    a = tables_at(before, store)
    begins(f"reading {after}")
    b = tables_at(after, store)
    begins("comparing")
    held = existing(before.rpartition("#")[0] or before) or existing(store)
    promised = find_promised_savings(held.findings(a.run if a.run in held.runs() else None)) if held is not None else {}
    return verify(a, b, [lint(path, None, b) for path in files_in(files)], promised, fail_on)


STAGES = 3


def verify(
    before: Tables,
    after: Tables,
    files: Sequence[OverrideFile],
    promised: Mapping[str, float] | None = None,
    fail_on: float = FAIL_ON,
) -> Verification:
    """Check what the rows of override ``files`` changed between the run ``before`` and the run ``after``.

    * The files were read for the machine of ``after``.
    * ``promised`` maps an operator (with sizes) to the saving that was expected, µs per call.

    The verification fails in these cases:

    * The library refuses a file.
    * An operator that the job calls does not run the kernel of its row, as logs or traces show.
    * An operator became slower by more than ``fail_on`` and noise allow.
    * No row took effect at all.
    """
    evidence = Evidence.of(before, after, fail_on)
    outcomes = []
    choosing = [file for file in files if by_name(file.format).selects]
    for file in choosing:
        kinds, reports = by_name(file.format).kinds, reports_of(file, after)
        known = {str(x) for t in (before, after) for x in t.workload.loc[t.workload["kind"].isin(kinds), "problem"]}
        kernels = Kernels.of(file, before, after)
        served = served_by(file, sorted(known.union(reports)), reports, kernels=kernels)
        for text, same in sorted(same_calls(served).items()):
            row, report = served[text], _first(reports, same)
            if row.solution is not None:
                one = _outcome(text, same, row.solution, evidence, promised or {})
                one = replace(one, file=file.name, line=row.line)
                one = one if report is None else _as_reported(one, row, report)
                short = kernels.short_of_workspace(text, row) if one.effect == "not applied" else None
                outcomes.append(replace(one, why=one.why or short.text) if short else one)
    idle = [(file.name, row) for file in choosing for row in coverage(file, after).idle]
    complaints = tuple(signs(after))
    return Verification(
        before.run,
        after.run,
        tuple(outcomes),
        tuple(idle),
        complaints,
        tuple(_failures(files, outcomes, complaints, after)),
        in_run=in_run(before, after),
    )


def in_run(before: Tables, after: Tables) -> Gain | None:
    """Return the total GPU time of all kernels in the traces, for the first and for the second run.

    Returns None if a run has no traces, or if the runs did not do the same work.
    """
    total, work = [], []
    for tables in (before, after):
        rows = tables.kernels[tables.kernels["run"] == tables.run] if "run" in tables.kernels else tables.kernels
        total.append(float(rows["total_us"].sum()))
        counted = tables.workload["calls_from"].eq("profiler").all()
        work.append(calls_by_problem(tables.workload).fillna(0).to_dict() if counted else None)
    if min(total) <= 0 or work[0] is None or work[0] != work[1]:
        return None
    return Gain(*total)


@dataclass(frozen=True)
class Ran:
    """The kernels that one run used for each operator (with sizes), and how often it called the operator.

    * ``picks``: the library's names of the kernels.
    * ``kernels``: their GPU kernels' names.
    * ``calls``: None if not counted in a log.
    """

    picks: Mapping[str, str]
    # The names are from traces, or from Tensile's log.
    kernels: Mapping[str, str]
    calls: Mapping[str, int | None]

    @classmethod
    def of(cls, tables: Tables) -> Ran:
        named = {str(text): str(pick) for text, pick in main_pick(tables).items()}
        # Tensile prints its kernels. No library takes a kernel for a solution's name.
        launched = {text: pick for text, pick in named.items() if solution_from_text(pick).library == "tensile"}
        picks = {text: pick for text, pick in named.items() if text not in launched}
        calls = {str(x): count_of(n) for x, n in calls_by_problem(tables.workload).items()}
        return cls(picks, launched | kernels_of(tables), calls)


@dataclass(frozen=True)
class Evidence:
    """The data that show whether override files (the user's lists of kernels) had an effect on a job.

    * ``before``, ``after``: the kernels that ran without and with the files.
    * ``moved``: each operator's change of time.
    """

    before: Ran
    after: Ran
    # The values are rows of a ``Diff``.
    moved: Mapping[str, Mapping[Hashable, Any]]
    rocblas: str

    @classmethod
    def of(cls, before: Tables, after: Tables, fail_on: float) -> Evidence:
        moved = {str(row["problem"]): row for row in diff(before, after, fail_on).rows.to_dict("records")}
        return cls(Ran.of(before), Ran.of(after), moved, facts_of_run(after).get("rocblas_version", ""))


def _first(values: Mapping[K, V], texts: Sequence[K]) -> V | None:
    return next((values[text] for text in texts if text in values), None)


def _judge_effect(intended: Solution, texts: Sequence[str], evidence: Evidence) -> Effect:
    if not any(text in evidence.after.calls for text in texts):
        return "not called"
    if intended.text == "Default":
        return "unknown"  # Every pick of the library is its default, so no log can show that ``Default`` was applied.
    pick, own = (_first(x.picks, texts) for x in (evidence.after, evidence.before))
    if pick is not None:
        if not same_solution(intended, solution_from_text(pick), evidence.rocblas):
            return "not applied"
        ran = own is not None and same_solution(intended, solution_from_text(own), evidence.rocblas)
        return "as before" if ran else "applied"
    before, after = (_first(x.kernels, texts) for x in (evidence.before, evidence.after))
    if before is None or after is None:
        before, after = own, pick
    if before is None or after is None:
        return "unknown"
    return "changed kernel" if before != after else "unchanged kernel"


def same_solution(one: Solution, other: Solution, rocblas_version: str) -> bool:
    """Tell whether two names of kernels mean the same kernel.

    Different names may do so: in rocBLAS 5 and later, a kernel number of rocBLAS may mean a kernel of hipBLASLt, which
    rocBLAS calls.
    """
    if one.text == other.text:
        return True
    through = [hipblaslt_index(x, rocblas_version) if x.library == "rocblas" else None for x in (one, other)]
    ids = [int(x.id) if x.library == "hipblaslt" else i for x, i in zip((one, other), through, strict=True)]
    return ids[0] is not None and ids[0] == ids[1]


def _outcome(
    text: str, same: Sequence[str], intended: Solution, evidence: Evidence, promised: Mapping[str, float]
) -> Outcome:
    """Return what an entry of an override file changed for one operator: its kernel, and its time per call.

    * ``same``: all texts by which logs may name the operator.
    * ``intended``: the entry's kernel.
    * ``promised``: saving of a call, µs.
    """
    timed = [row for x in same if (row := evidence.moved.get(x)) is not None and not pd.isna(row["ratio"])]
    time: Mapping[Hashable, Any] = timed[0] if timed else {"state": "unknown", "basis": None}
    calls = _first({x: n for x, n in evidence.after.calls.items() if n is not None}, same)
    each = _first(promised, same)
    return Outcome(
        problem=text,
        label=problem_from_text(text).label,
        file="",
        line=0,
        intended=intended.text,
        before=_first(evidence.before.picks, same),
        after=_first(evidence.after.picks, same),
        effect=_judge_effect(intended, same, evidence),
        move="same" if time["state"] == "changed" else time["state"],
        basis=time["basis"],
        per_call=Gain(timed[0]["a_us"], timed[0]["b_us"]) if timed else None,
        calls=calls,
        promised_us=None if each is None or calls is None else each * calls,
    )


def _as_reported(one: Outcome, row: Row, report: Report) -> Outcome:
    """Correct the guess whether the library used a row of an override file, if the library's log states it.

    Without such a log, the guess is returned.
    """
    if report.found is None:
        return one if one.effect != "not applied" else replace(one, why=report.why)
    if not report.found:
        return replace(one, effect="not applied", after=one.after or "the default")
    # The log may name only the GPU kernels that ran. The row was used if its text contains all these names.
    own = all(kernel in row.text for kernel in report.kernels)
    return replace(one, effect="applied" if own else "not applied")


def signs(after: Tables) -> Iterator[str]:
    """Yield messages of the run's logs which show that a library ignored overrides (kernels that it should use)."""
    for text, meaning in SIGNS:
        hits = after.messages[after.messages["text"].str.contains(text, regex=False)]
        if len(hits):
            yield f"{meaning} ({int(hits['count'].sum())} times)"


def _failures(
    files: Sequence[OverrideFile], outcomes: Sequence[Outcome], complaints: Sequence[str], after: Tables
) -> Iterator[str]:
    for file in files:
        if file.accepted is False:
            why = next((note.message for note in file.notes if note.line is None and note.severity == "error"), "")
            yield f"this machine's library does not accept {file.name}" + (f": {why}" if why else "")
    yield from complaints
    for outcome in outcomes:
        if outcome.effect in ("not applied", "unchanged kernel"):
            ran = outcome.after or "the same kernel as before"
            place = f"({outcome.file}, line {outcome.line})" + (f": {outcome.why}" if outcome.why else "")
            yield f"{outcome.label}: {outcome.intended} was intended, but {ran} ran {place}"
        if outcome.move == "slower" and (gain := outcome.per_call) is not None:
            yield f"{outcome.label}: slower with the override, {gain.now_us:.4g} to {gain.then_us:.4g} µs"
    if not any(outcome.effect in ("applied", "changed kernel") for outcome in outcomes):
        shown = any(outcome.effect == "unknown" for outcome in outcomes)
        same = any(outcome.effect == "as before" for outcome in outcomes)
        rocblas = "the output of TENSILE_DB=0x40 in both runs names the kernels, and so does a trace with kernels"
        # Logs of rocBLAS name only the solutions that a program asks for by index.
        of_rocblas = all(solution_from_text(x.intended).library == "rocblas" for x in outcomes)
        how = rocblas if of_rocblas else "the library's bench log or verbose log names the kernels"
        if same:
            yield (
                "it cannot be shown that an override row took effect, because the kernels that the rows name also "
                "ran in the first run"
            )
        elif shown:
            yield (
                "it cannot be shown that an override row took effect, because the logs of the second run do not name "
                f"the kernels that ran ({how})"
            )
        elif len(after.workload):
            yield "no row of the override files took effect: no call of the second run matches a row"
        else:
            yield (
                f"no row of the override files took effect: run {after.run} has no calls (ingest a log or a trace of "
                "the job into this run)"
            )


def find_promised_savings(findings: pd.DataFrame) -> dict[str, float]:
    """Return the saving per call that ``recommend`` promised for each operator (with sizes), µs.

    ``findings`` is the SQL view with that name. If an operator has several promises, the largest is returned.
    """
    rows = findings[findings["per_call_us"].notna() & findings["problem"].notna()]
    each = rows["per_call_us"].astype("float64").groupby(rows["problem"]).max()
    return {str(problem): float(value) for problem, value in each.items()}


# ------------------------------------------------------------------------------------------------------------- answer


def answer(found: Verification, verbose: bool = False) -> Answer:
    """Return the output of the command ``verify``: did the library use the kernels in the user's override files?

    The output also states how much time they saved. ``verbose`` shows all lines.
    """
    table = rows(found)
    every = [{name: value for name, value in row.items() if name != "text"} for row in table]
    text = [*lines(found, LONG), every] if verbose else lines(found)
    return Answer(text, table, "verify", code=0 if found.ok else CHECK_FAILED)


def rows(found: Verification) -> Rows:
    names = ("before", "after", "effect", "before_us", "after_us", "move", "calls", "gained_us", "promised_us", "basis")
    out = []
    for x in found.outcomes:
        row: dict[str, object] = {"problem": x.label, "intended": shorten(x.intended, _WIDE, placeholder=" …")}
        gain = x.per_call
        times = {"before_us": None if gain is None else gain.now_us, "after_us": None if gain is None else gain.then_us}
        row |= {name: times[name] if name in times else getattr(x, name) for name in (*names, "file", "line")}
        row |= {"text": x.problem}
        out.append({name: round(v, 6) if isinstance(v, float) else v for name, v in row.items()})
    return out


def headline(found: Verification) -> str:
    """Return one line that states whether the overrides took effect, for how many operators, and what they gained.

    Overrides are kernels that the library was told to use instead of its own choice.
    """
    timed = [x for x in found.outcomes if x.gained_us is not None]
    counts = Counter(x.effect for x in found.outcomes)
    effects = ", ".join(f"{count:,} {effect}" for effect, count in sorted(counts.items())) or "no problem"
    word = "not verified" if not found.ok else "verified" if timed else "took effect"
    if not timed:
        return f"{word}: {effects} (problems with a row); no time was compared"
    promise = "" if found.promised_us is None else f" (promised {format_difference(found.promised_us)})"
    return f"{word}: {effects} (problems with a row); {describe_gain(found.gained_us)} a run{promise}"


def lines(found: Verification, most: int = LINES) -> list[str]:
    """Return at most ``most`` lines: the verdict, the reasons of a failure, and the result for each operator."""
    out = [f"verify: {headline(found)}", *_promise(found)]
    if (gain := found.in_run) is not None:
        times = f"{duration(gain.now_us)} → {duration(gain.then_us)}"
        out.append(f"  GPU time in the traces: {times}, {describe_gain(gain.saving_us)}")
    for failure in found.failures[: most // 3]:
        out.append(make_printable(f"  failed: {failure}"))
    if (left := len(found.failures) - most // 3) > 0:
        out.append(f"  and {left:,} more failures")
    if most == LINES:
        out = [line for text in out for line in fill(text, line_width(), subsequent_indent="    ").splitlines()]
    # One line of a file may list several kernels, and is then several rows. It is printed once.
    idle = list(dict.fromkeys(f"  {name}, line {line}: {x.reason}" for name, x in found.idle for line in x.lines))
    if most != LINES:
        return [*out, *idle]
    done = sorted(found.outcomes, key=lambda x: (x.move != "slower", -abs(x.gained_us or 0.0), x.label))
    room = LINES - len(out) - 1
    out += _problems(done[:room])
    rest = [f"{len(done) - room:,} more problems"] * (len(done) > room)
    rest += [f"{pluralize(len(idle), 'row')} that no call hit"] * bool(idle)
    return [cut_to_width(make_printable(x)) for x in [*out, *([f"rest     {', '.join(rest)}: -v"] if rest else [])]]


def _promise(found: Verification) -> list[str]:
    """Return lines about the gain if no gain was measured: what was promised for the rows that took effect."""
    if any(x.gained_us is not None for x in found.outcomes):
        return []
    applied = [x for x in found.outcomes if x.effect in ("applied", "changed kernel")]
    promised = [x.promised_us for x in applied if x.promised_us is not None]
    known = f"{len(promised):,} of {pluralize(len(applied), 'applied row')}"
    total = format_difference(math.fsum(promised))
    out = [f"  promised by recommend, not measured: {total} at the second run's calls ({known})"] if promised else []
    unknown = "  faster or not is unknown: to compare times, run both jobs under `logparse capture --trace 2`"
    return [*out, *([unknown] if applied else [])]


def _problems(shown: Sequence[Outcome]) -> list[str]:
    """Return a table with one line per operator: whether its override took effect, its times, and the gain.

    An override is an entry in a file of kernels to use. Times are per call, gains per run.
    """
    table = []
    for x in shown:
        gain = None if x.gained_us is None else x.per_call
        times = "" if gain is None else f"{duration(gain.now_us)} → {duration(gain.then_us)} a call"
        promised = "" if x.promised_us is None else f"promised {format_difference(x.promised_us)}"
        table.append((x.label, x.effect, times, promised if x.gained_us is None else describe_gain(x.gained_us)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    ]
