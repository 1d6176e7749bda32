"""Format the comparison of two runs as lines of text and as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from analyzers.compare.diff import CHANGED, FAIL_ON, Diff, State, diff
from analyzers.compare.timings import times_of_run
from analyzers.evidence.runs import read_at, tables_to_analyse
from logparse.errors import StoreError
from logparse.lookup.left_out import count_damaged_lines
from logparse.lookup.ranking import rank_problems
from logparse.model import problem_from_text
from logparse.output import CHECK_FAILED, ROWS, UNCHECKED, Answer, Rows
from logparse.store import Store
from logparse.store.columns import column
from logparse.text import duration, pluralize, signed_percent

if TYPE_CHECKING:
    from analyzers.compare.upgrade import PlannedRow


_BOTH = "state in ('slower', 'faster', 'changed')"
_ALONE_ROWS = 5
_KINDS = {"gemm": "GEMM", "conv": "convolution"}


def diff_lines(found: Diff, worth: Worth | None = None) -> list[str]:
    """Return the lines of text that the user sees when two runs are compared: the answer, then what it rests on."""
    return [*answer_lines(found, worth), *caveat_lines(found)]


def answer_lines(found: Diff, worth: Worth | None = None) -> list[str]:
    """Return the lines that say what changed between two runs, the change of kernels or of times first.

    The second line says which files a run lacks.
    """
    told = [x for x in _TOLD if found.count(x) and (found.compared or x != "unknown")]
    counts = ", ".join(f"{found.count(state):,} {_WORDS.get(state, state)}" for state in told)
    floor = f", {found.floor_us:g} µs" if found.floor_us else ""
    none = (
        "no matrix product or convolution is in both runs"
        if found.count("new", "vanished")
        else "neither run has a matrix product or a convolution"
    )
    known = found.count(*_TOLD)
    beyond = f"{counts} (changes beyond {found.fail_on:.1%}{floor} and noise)" if found.compared else none
    flipped, picked, apart = found.flips
    choice = ""
    if flipped:
        cost = (
            "The cost of this change is unknown"
            if apart is None
            else f"The times of the two kernels differ by {apart:.1%} (median)"
        )
        if apart is None and worth is not None and worth.saves_us:
            cost = worth.text(_later_run(found), found.a)
        unknown = "" if found.compared or not known else "Whether the job got faster is unknown: no time was compared. "
        choice = f"another kernel ran for {flipped:,} of {picked:,} problems ({flipped / picked:.0%}). {unknown}{cost}"
    elif picked > found.several:
        same = pluralize(picked - found.several, "other problem" if found.several else "problem")
        choice = f"the library chose the same kernels for all {same} whose choice both runs name"
        if found.same_numbers:
            other = "on the other device" if found.devices else "in the other build"
            choice = (
                f"the choices of both runs have the same names for all {same} whose choice both name; "
                f"{found.same_numbers:,} of the names are numbers, which may mean other kernels {other}"
            )
    said = [beyond] if found.compared or not known else []
    said += [choice] if choice else []
    said = said or [f"{pluralize(known, 'problem')} in both runs, and no time was compared"]
    if worth is not None and worth.proposed:
        said.append(say_proposed(worth.proposed, worth.changed, found.a))
    # The files that a run lacks explain most differences, so they come before these.
    out = [f"{found.a} → {found.b}: {said[0]}", *_sources(found), *said[1:]]
    costed, delta_us = found.cost("slower", "faster")
    if costed:
        word = "more" if delta_us > 0 else "less"
        out.append(
            f"the slower and the faster problems together take {duration(abs(delta_us))} {word} per run, as far "
            "as their calls are known"
        )
    return [*out, *_calls(found)]


def say_proposed(proposed: int, changed: int, run: str) -> str:
    """Say how many changed picks are solutions that ``recommend`` proposed for the earlier run, ``run``."""
    if proposed == changed:
        which = (
            f"all {changed:,} changed picks are the solutions" if changed > 1 else "the changed pick is the solution"
        )
    else:
        noun = "is a solution" if proposed == 1 else "are solutions"
        which = f"{proposed:,} of {pluralize(changed, 'changed pick')} {noun}"
    return f"{which} that `logparse recommend` proposed for run {run}"


def _later_run(found: Diff) -> str:
    many = found.processes[1]
    return f"a run of {found.b}" + (f" with its {many:,} processes together" if many > 1 else "")


def caveat_lines(found: Diff) -> list[str]:
    """Return the lines that say what the comparison of two runs lacks, and what only one of them has."""
    out = []
    if not found.compared:
        nothing = (
            "no time was compared: no matrix product or convolution was timed in the same way (for example by traces) "
            "in both runs"
        )
        how = "to compare times, run both jobs under `logparse capture --trace 2`"
        out.append(f"{nothing}. So diff cannot tell whether anything became slower (exit code {UNCHECKED}); {how}")
    if found.devices:
        out.append(f"the runs are from two devices ({' and '.join(found.devices)}), which may cause the changes")
    if found.builds:
        what = (
            "an override file that names a kernel by its index may name another kernel in the new build, so measure "
            "such rows of the file again (--overrides FILE lists these rows)"
        )
        out.append(f"the runs are from two builds of {' and '.join(found.builds)}; {what}")
    if found.several:
        which = (
            "only the kernel that the logs name most often is compared (if no log names the kernels, the fastest one)"
        )
        out.append(f"several kernels ran for {pluralize(found.several, 'problem')}; {which}")
    return [*out, *(_one_sided(found, state) for state in ("new", "vanished") if found.count(state))]


_TOLD: Sequence[State] = ("slower", "faster", "changed", "same", "unknown")
_WORDS: Mapping[State, str] = {"changed": "with another pick", "unknown": "not timed in the same way in both runs"}


def _sources(found: Diff) -> list[str]:
    """Return a line for each run that lacks a kind of file that the other run has. Files with calls come first."""
    out = []
    of_both = zip((found.a, found.b), (found.b, found.a), found.lacks, found.formats[::-1], strict=True)
    for run, other, lacking, held in of_both:
        if lacking and all(found.formats):
            named = [f"{name}{_count_rows(*held[name])}" for name in sorted(lacking, key=lambda x: (-held[x][0], x))]
            more = [f"{len(named) - _NAMED:,} more kinds"] if len(named) > _NAMED + 1 else []
            shown = named[:_NAMED] if more else named
            out.append(f"{run} lacks files that {other} has: {', '.join([*shown, *more])}")
    return out


_NAMED = 2
"""How many kinds of files that a run lacks are named."""


def _count_rows(calls: int, times: int) -> str:
    words = [f"{n:,} {noun}" for n, noun in ((calls, "lines of calls"), (times, "times")) if n]
    return f" ({', '.join(words)})" if words else ""


def _calls(found: Diff) -> list[str]:
    """Return a line for each kind of operator whose numbers of calls differ between the runs.

    The numbers are stated of traced steps if only traces count the calls of both runs, and else of processes.
    """
    out = []
    by_step = all(found.steps)
    for kind, a, b in found.calls:
        one, two = found.steps if by_step else (x.get(kind, 0) for x in found.processes_of)
        equal = bool(a and b) and found.is_equal_per(kind, max(one, 1), max(two, 1))
        if a == b and (equal or one == two or not by_step):
            continue
        sides = [
            "none in its logs, so unknown" if n is None else f"{n:,} calls{_of(many, by_step)}"
            for n, many in ((a, one), (b, two))
        ]
        each = "step" if by_step else "process"
        sure = "" if one and two else " (if the run whose logs name no process had only one process)"
        same = f": per {each} these calls are the same{sure}" if equal else ""
        out.append(f"{_KINDS.get(kind, kind)}s: {found.a} {sides[0]}, {found.b} {sides[1]}{same}")
    return out


def _of(many: float, by_step: bool) -> str:
    word = ("traced step" if by_step else "process") + ("" if many == 1 else "s" if by_step else "es")
    return f" in {many:,g} {word}" if many else ""


def _one_sided(found: Diff, state: Literal["new", "vanished"]) -> str:
    """Return a line about operators that occur in only one run: ``only in B: 3 problems, which take 1.2 ms per run``.

    If times or numbers of calls are unknown, the line mentions this.
    """
    count, (known, us) = found.count(state), found.alone(state)
    out = f"only in {found.b if state == 'new' else found.a}: {pluralize(count, 'problem')}"
    if not known:
        return f"{out}; their time per run is unknown"
    some = "which" if known == count else f"{known:,} of which"
    rest = "" if known == count else "; the time or the number of calls of the others is unknown"
    absent = "; work that is absent from a run is not counted as a saving" if state == "vanished" else ""
    return f"{out}, {some} {'takes' if known == 1 else 'take'} {duration(us)} per run{rest}{absent}"


@dataclass(frozen=True)
class Worth:
    """How much time it saves that the library chose other kernels in run B than in run A.

    The savings come from measurements of single calls. The old and the new kernel must have been timed in the same run
    and environment.

    * ``saves``: maps an operator (with sizes) to its saving in µs, at the number of calls in the second run (or in the
      first, if the second states none). Negative if the new kernel is slower.
    * ``changed``: the number of all operators with another kernel, also those without a known saving.
    * ``proposed``: how many of the new kernels the last ``recommend`` proposed for run A. 0 if unknown.
    * ``first``: the same savings at the number of calls in the first run, where it states one.
    """

    saves: Mapping[str, float]
    changed: int
    proposed: int = 0
    first: Mapping[str, float] = field(default_factory=dict)

    @property
    def saves_us(self) -> float:
        return math.fsum(self.saves.values())

    def text(self, run: str, first: str) -> str:
        """Return the saving as text. ``run`` names the run whose calls are added up, and ``first`` is the first run."""
        word = "save" if self.saves_us > 0 else "cost"
        known = f"known for {len(self.saves):,} of {self.changed:,}"
        expected = f"The new kernels are expected to {word} {duration(abs(self.saves_us))} {run}"
        first_us = math.fsum(self.first.values())
        # ``recommend`` has stated the saving of the first run, whose logs may count the calls of more processes.
        counts = self.first.keys() == self.saves.keys() and duration(abs(first_us)) != duration(abs(self.saves_us))
        also = f" ({duration(abs(first_us))} at the calls of {first})" if counts else ""
        return f"{expected}{also}, by times measured alone ({known}, not confirmed)"


def worth_of_changes(found: Diff, a: Store, b: Store) -> Worth:
    """Return how much time the second run saves because its library chose other kernels.

    A saving is known if one of the two runs has times of both the old and the new kernel.
    """
    rows = {x["problem"]: x for x in found.table(_OTHER_PICK).to_pylist()}
    saves: dict[str, float] = {}
    first: dict[str, float] = {}
    for store, run, own, other, sign in ((a, found.a, "pick_a", "pick_b", 1.0), (b, found.b, "pick_b", "pick_a", -1.0)):
        left = [text for text in rows if text not in saves]
        ranking = rank_problems(store, n=max(len(left), 1), run=run, texts=left).rows.to_pylist() if left else []
        for x in ranking:
            changed = rows[x["text"]]
            if x["saves_us"] and (x["pick"], x["best"]) == (changed[own], changed[other]):
                one = sign * x["saves_us"] / (x["calls"] or 1.0)
                calls = (changed["calls_b"] or changed["calls_a"] or x["calls"]) if x["calls"] else None
                saves[x["text"]] = one * (calls or 1.0)
                if changed["calls_a"]:
                    first[x["text"]] = one * changed["calls_a"]
    return Worth(saves, len(rows), count_proposed(found, a), first)


_OTHER_PICK = "pick_a <> pick_b and state <> 'unknown'"
_PROPOSED = "select problem, solution from findings where run = $1 and solution is not null"


def count_proposed(found: Diff, store: Store, *, earlier: Literal["a", "b"] = "a") -> int:
    """Count the operators with another kernel whose new kernel the last ``recommend`` proposed for the earlier run.

    * ``store``: the store of the earlier run.
    * ``earlier``: which of the two runs is the earlier one.

    Returns 0 in two cases: no ``recommend`` was run for the earlier run, or one name may mean different kernels in the
    two runs.
    """
    if found.builds or found.devices:
        return 0
    run, new = (found.a, "pick_b") if earlier == "a" else (found.b, "pick_a")
    try:
        with store.reading(_PROPOSED, run) as con:
            proposed = set(con.execute(_PROPOSED, [run]).fetchall())
    except StoreError:  # The findings are damaged or lost. The comparison needs none of them.
        return 0
    if earlier == "b":  # The comparison has the texts of run A.
        proposed = {(found.renamed.get(text, text), solution) for text, solution in proposed}
    rows = found.table(_OTHER_PICK).to_pylist() if proposed else []
    return sum((row["problem"], row[new]) in proposed for row in rows)


def diff_table(found: Diff, n: int | None = None, where: str = CHANGED) -> pa.Table:
    """Return the differences between two runs as a table, the most costly first.

    * ``n``: the largest number of rows.
    * ``where``: an SQL condition that selects rows.
    """
    rows = found.table(where, n)
    texts, ratios = rows["problem"], rows["ratio"].to_pylist()
    # ``problem`` is a short name of the operator, ``text`` its full text with sizes. ``change`` is (time in the second
    # run) / (time in the first run) − 1.
    made = {
        "problem": column([problem_from_text(text).label for text in texts.to_pylist()], pa.string()),
        "change": column([None if ratio is None else ratio - 1 for ratio in ratios], pa.float64()),
        "text": texts,
    }
    names = ["state", "problem", "a_us", "b_us", "change", "delta_us", "pick_a", "pick_b", "basis", "text"]
    return pa.Table.from_arrays([made[x] if x in made else rows[x] for x in names], names=names)


def diff_answer(found: Diff, plan: Sequence[PlannedRow], n: int | None, worth: Worth | None = None) -> Answer:
    """Return the output of the command ``diff``, which compares two runs of a job: what became slower or faster.

    * ``plan``: which rows of old override files to keep, measure or drop.
    * ``n``: how many changes to show.
    """
    # Without ``n``, a terminal shows a few changes, and other outputs show all.
    of_both = _shorten_rows(diff_table(found, n or ROWS, _BOTH), worth, found)
    # An override file lists kernels for a library.
    plans = [[{name: value for name, value in asdict(x).items() if name != "key"} for x in plan]] if plan else []
    alone = [] if any(found.lacks) else [x for state in ("new", "vanished") for x in _alone_rows(found, state, n)]
    more = found.count("slower", "faster", "changed") - len(of_both)
    left_out = [f"{pluralize(more, 'more change')} (-n)"] if more > 0 else []
    left_out += [f"{lost} of {run}" for lost, run in zip(found.damaged, (found.a, found.b), strict=True) if lost]
    alone += [f"left out: {', '.join(left_out)}"] if left_out else []
    answers, caveats = answer_lines(found, worth), caveat_lines(found)
    text = [*answers, *([of_both] if of_both else []), *caveats, *alone, *plans]
    return Answer(text, lambda: diff_table(found, n), "diff", code=exit_code(found))


def exit_code(found: Diff) -> int:
    """Return the exit code of ``diff``: 0 if nothing is slower, 3 if something is, 4 if no time could be compared."""
    if found.count("slower"):
        return CHECK_FAILED
    # A comparison of nothing must not look like a success, and it shows no loss either. So it has a code of its own.
    return 0 if found.compared else UNCHECKED


def _shorten_rows(rows: pa.Table, worth: Worth | None, found: Diff) -> Rows:
    """Shorten the rows of a comparison of two runs, so that they fit a terminal.

    The change is shown in percent. The names of columns have the names of the runs, and state whether a number is of a
    call or of the whole run.
    """
    out, names = [], _column_names(found.a, found.b)
    for row in rows.to_pylist():
        change, saves = row["change"], None if worth is None else worth.saves.get(row["text"])
        shown = row | {"change": "" if change is None else signed_percent(change)}
        named = {names.get(name, name): value for name, value in shown.items() if name != "text"}
        out.append(named | {"may_save_ms": None if saves is None else saves / 1e3})
    return [{name: row[name] for name in row if any(x[name] not in (None, "") for x in out)} for row in out]


def _column_names(a: str, b: str) -> Mapping[str, str]:
    """Return the names of the columns on a terminal, with the runs' names. Long names leave room for nothing else."""
    one, two = (a, b) if max(len(a), len(b)) <= _LONGEST_NAME and a != b else ("a", "b")
    times = {"a_us": f"{one}_us/call", "b_us": f"{two}_us/call", "delta_us": "delta_us/run"}
    return times | {"pick_a": f"pick_{one}", "pick_b": f"pick_{two}"}


_LONGEST_NAME = 12


def _alone_rows(found: Diff, state: Literal["new", "vanished"], n: int | None) -> list[str | Rows]:
    """Return a title and a table of the first ``n`` operators that occur in only one of the two runs."""
    side = "b" if state == "new" else "a"
    rows = found.table(f"state = '{state}'", n or _ALONE_ROWS).to_pylist()
    shown = [
        {
            "problem": problem_from_text(x["problem"]).label,
            "calls": x[f"calls_{side}"],
            "time_us": x[f"{side}_us"],
            "solution": x[f"pick_{side}"],
        }
        for x in rows
    ]
    first = f", the first {len(shown):,}" if len(shown) < found.count(state) else ""
    return [f"only in {getattr(found, side)}{first}:", shown] if shown else []


def compare(
    a: str,
    b: str,
    store: str | None = None,
    fail_on: float = FAIL_ON,
    overrides: Sequence[str] = (),
    floor_us: float = 0.0,
    begins: Callable[[str], None] = lambda stage: None,
) -> tuple[Diff, list[PlannedRow], Worth]:
    """Compare two runs of a job that the user named, for example before and after an upgrade of a library.

    * ``overrides``: old override files (the user's lists of kernels for a library).
    * ``begins``: called with a short text before each of the ``STAGES`` stages, to show progress.

    Returns three things: the comparison, which rows of the override files to keep, and how much time the changed
    choices of kernels cost.
    """
    begins(f"reading {a}")
    one, held_a = read_at(a, store, lambda held, run: (times_of_run(held, run), held))
    begins(f"reading {b}")
    two, held_b = read_at(b, store, lambda held, run: (times_of_run(held, run), held))
    begins("comparing")
    lost = count_damaged_lines(held_a, one.run), count_damaged_lines(held_b, two.run)
    found = replace(diff(one, two, fail_on, floor_us), damaged=lost)
    begins("looking up the changed picks")
    worth = worth_of_changes(found, held_a, held_b)
    if not overrides:
        return found, [], worth
    # This import loads pandas, which a comparison of two runs does not need.
    from analyzers.compare.upgrade import upgrade_plan
    from analyzers.overrides.lint import files_in, lint

    tables = tables_to_analyse(held_b, found.b)
    return found, upgrade_plan([lint(path) for path in files_in(overrides)], tables, fail_on), worth


STAGES = 4
