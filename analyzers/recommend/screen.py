"""Format a recommendation for a terminal: at most ``LINES`` lines of at most ``line_width`` characters.

A few more lines are printed if a saving rests on a condition.
``explain_change`` shows everything about one thing to do.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from analyzers.evidence import ladders
from analyzers.findings import completeness
from analyzers.findings.finding import NOW, THEN
from analyzers.recommend import apply_module, apply_script, documents, next_commands, render
from analyzers.recommend.override_files import names_of_scripts
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import (
    PROBABLY,
    Todo,
    change_text,
    differs_if_traced,
    granted,
    hosts_text,
    kernels_text,
    mark,
    range_text,
    saving_texts,
    sum_text,
)
from analyzers.recommend.todo_from_actions import find_hidden_changes
from analyzers.recommend.todo_order import name_order, name_unit
from analyzers.recommend.verdict import Verdict, verdict
from analyzers.recommend.whole import A_RUN, Share
from logparse.errors import UsageError
from logparse.libraries.kinds.format import Emission
from logparse.model import Advise, ChangeProgram, Finding, Search, UseRows
from logparse.output.terminal import Block
from logparse.quoting import shell_word
from logparse.store import command_line
from logparse.store.settling import settling
from logparse.text import (
    cut_to_width,
    duration,
    join_times,
    line_width,
    make_printable,
    pluralize,
    short_path,
    shorten_texts,
)

_NO_ROW, NOT_WRITTEN = "nothing, because no override row could be written", "not written: "
_JOB = "your command"
LINES = 21
"""Largest number of lines of the answer. With two remarks below it, it fits a terminal of 24 lines."""
_LABEL, _LEFT_OUT, _TOLD, _HOW, _KINDS, _LITTLE, _GAP, _BETWEEN = 9, 2, 3, 5, 3, 0.05, "  ", " · "


@dataclass(frozen=True)
class Written:
    """The places of a recommendation's files and data.

    * ``out``: the folder with ``files``.
    * ``store``: the stored data that the next commands read.
    * ``runs``: stored runs. Commands for a new run use another name.
    * ``notes``: why something was not written, for example because facts of the machine are unknown.
    """

    out: Path
    files: Sequence[Emission] = ()
    store: str | None = None
    runs: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class _Command:
    """A line below the list of things to do: a label such as ``apply``, and the shell command for some of the things.

    ``of`` has the numbers of these things in the list, from 1. If ``is_shell`` is False, ``text`` is a sentence.
    """

    label: str
    text: str
    of: tuple[int, ...] = ()
    is_shell: bool = True


# The terminal shows the verdict, how the time of a step is divided, the things to do (the best first), and the commands
# to type.
def screen(found: Recommendation, written: Written, n: int | None = None) -> list[str]:
    """Return the lines that the terminal shows for a recommendation.

    ``n`` is the number of things to do that are listed, however many lines they need. Without it, the lines fit on a
    screen.
    """
    conclusion = verdict(found)
    commands = list(_list_commands(found, conclusion.todo, written)) if conclusion.todo else []
    typed = _command_lines(commands, len(conclusion.todo), _tell_rest(found, conclusion, written, 0))
    useless = "; no override file could be written" if any(x.text.startswith(_NO_ROW) for x in commands) else ""
    head = _wrap_line(f"recommend: {conclusion.headline}{useless}", 4)
    head += split_lines(conclusion) if conclusion.split else []
    more = len(conclusion.left_out) - _LEFT_OUT
    told = [*conclusion.left_out[:_LEFT_OUT], *([f"{more:,} more: see the report, or -v"] if more > 0 else [])]
    head += [line for x in told for line in _wrap_line(f"  left out: {x}", 4)]
    if not conclusion.todo and not found.findings and found.calls and found.ceiling.share is None and not found.unlike:
        return [*head, *_fold_command(f"measure  {command_line(written.store, 'replay', '--run', found.run)}")]
    if not conclusion.todo:
        return head + _remarks_of_logs(found, written)
    head += _wrap_line(f"  {conclusion.hint}", 4) if conclusion.hint else []
    head += _wrap_line(f"  {conclusion.limit}", 4) if conclusion.limit else []
    listed = _fitting(conclusion, n, LINES - 1 - len(head) - len(typed))
    room = len(listed)
    # A command for a thing that is not listed would seem to belong to another one.
    commands = list(_list_commands(found, conclusion.todo[:room], written))
    typed = _command_lines(commands, room, _tell_rest(found, conclusion, written, room))
    spare = LINES - 1 - len(head) - len(typed) - sum(map(len, listed))
    ranked = [
        (x, block) for x, block in zip(conclusion.todo, listed, strict=False) if isinstance(x.remedy, UseRows | Search)
    ]
    # Each thing names the call that saves most, if there is room for it. The largest saving is the first to have room.
    for todo, block in sorted(ranked, key=lambda x: -x[0].gained_us):
        added = _row_lines(found, todo, spare, len(todo.findings) if len(ranked) == 1 else 1)
        block.extend(added)
        spare -= len(added)
    return [
        *head,
        heading(conclusion.todo[:room], conclusion),
        *chain.from_iterable(listed),
        *typed,
    ]


def _remarks_of_logs(found: Recommendation, written: Written) -> list[str]:
    """Return the remarks of a run in which no call is known, for example errors of the libraries, as lines."""
    if found.calls or found.choices:
        return []
    told = [x.message for x in found.remarks if x.analyzer == completeness.NAME]
    more = [f"{len(told) - _TOLD:,} more: `{command_line(written.store, 'status')}`"] if len(told) > _TOLD else []
    return [line for text in (*told[:_TOLD], *more) for line in _wrap_line(f"  {text}", 4)]


def _fitting(conclusion: Verdict, n: int | None, lines: int) -> list[list[str]]:
    """Return the blocks of as many things to do as fit into ``lines`` lines, at least of the first one.

    If not all of them fit, the last ones only say what to change, and not what the saving rests on. If these do not fit
    either, the last ones have one line each. With ``n``, return the first ``n`` blocks, however many lines they need.
    """
    if n:
        return todo_blocks(conclusion.todo[:n], conclusion)
    # A saving with a condition is always listed, because the command ``settle`` is about it.
    least = next((place for place, x in enumerate(conclusion.todo, 1) if x.assumes), 1)
    for room in range(max(min(len(conclusion.todo), LINES), least), least - 1, -1):
        blocks = todo_blocks(conclusion.todo[:room], conclusion)
        short = todo_blocks(conclusion.todo[:room], conclusion, short=True)
        forms = [*((whole, room) for whole in range(room, 0, -1)), *((1, told) for told in range(room - 1, 0, -1))]
        for whole, told in forms:
            listed = [*blocks[:whole], *short[whole:told], *(x[:1] for x in blocks[told:])]
            if sum(map(len, listed)) <= lines:
                return listed
    return [x if place == 0 else x[:1] for place, x in enumerate(todo_blocks(conclusion.todo[:least], conclusion))]


def _wrap_line(line: str, indent: int) -> list[str]:
    """Wrap a line of text so that it fits the terminal. ``indent`` is the indentation of the second and later lines."""
    return textwrap.wrap(make_printable(line), line_width(), subsequent_indent=" " * indent, break_on_hyphens=False)


def render_end(found: Recommendation, head: Sequence[str], written: Written, apply: Sequence[str]) -> list[str]:
    """Return the last lines that ``tune`` prints: results, what is left to do, and commands.

    * ``head``: the verdict.
    * ``apply``: the commands that apply the result.
    """
    conclusion = verdict(found)
    typed = [line for x in apply for line in _fold_command(f"apply    {x}")]
    # The order is: the verdict, how the time of a step is divided, what is left to do, the commands that apply the
    # result, a command that shows the reasons, and the path of the report.
    lines = [*(line for x in head for line in _wrap_line(x, 4)), *(split_lines(conclusion) if conclusion.split else [])]
    lines = lines[: LINES - len(typed) - 1]
    words = ["recommend", "--run", found.run, "--explain", *(x.name for x in conclusion.todo[:1])]
    why = list(_fold_command(f"why      {command_line(written.store, *words)}"))
    counts = range(len(conclusion.todo), 0, -1)
    listed = [
        [heading(conclusion.todo[:n], conclusion), *(x[0] for x in todo_blocks(conclusion.todo[:n], conclusion))]
        for n in counts
    ]  # The heading is left out before a thing to do.
    ways = ([*x[skipped:], *typed, *y] for y in (why, []) for x in listed for skipped in (0, 1))
    typed = next((x for x in ways if len(lines) + len(x) < LINES), typed)
    rest = cut_to_width(f"rest     {short_path(str(written.out / documents.REPORT_NAME))}")
    return [*lines, *typed, rest]


def split_lines(conclusion: Verdict) -> list[str]:
    """Return lines that show the user what a step spends its time on, for example GEMMs and idle time."""
    whole = f"a {conclusion.word}" if conclusion.unit == "step" else conclusion.whole
    out = f"  {whole}{conclusion.profiled}, {duration(conclusion.whole_us)}: "
    kinds, idle = [x for x in conclusion.split if x.name != "idle"], [x for x in conclusion.split if x.name == "idle"]

    def line(shown: int) -> str:
        rest = [Share("the rest", sum(x.us for x in kinds[shown:]))] if kinds[shown:] else []
        return out + " · ".join(f"{x.name} {duration(x.us)}" for x in (*kinds[:shown], *rest, *idle))

    room = next(n for n in range(len(kinds), -1, -1) if len(line(n)) <= line_width() or not n)
    little = _LITTLE * sum(x.us for x in conclusion.split)

    def enough(shown: int) -> bool:
        rest = sum(x.us for x in kinds[shown:])
        return shown > 0 and rest <= kinds[shown - 1].us and (shown >= _KINDS or rest <= little)

    # One line names the largest kinds of work, and ends with the sum of the rest. If this sum is larger than the
    # smallest named kind, further lines name more kinds.
    smaller = (n for n in range(room, len(kinds)) if enough(n))
    return _wrap_line(line(next(smaller, len(kinds))), 4)


def todo_lines(todo: Sequence[Todo], conclusion: Verdict, first: int = 1, whole: bool = False) -> list[str]:
    """Return the list of things to do as lines, with a heading."""
    return [heading(todo, conclusion, first, whole), *chain.from_iterable(todo_blocks(todo, conclusion, first, whole))]


@dataclass(frozen=True)
class _Widths:
    """The width of each column in the list of things to do, in characters."""

    title: int
    saves: int
    certainty: int

    def line(self, number: str, title: str, saves: str, certainty: str) -> str:
        columns = f"{title:<{self.title}}  {saves:<{self.saves}}  {certainty:<{self.certainty}}"
        return f"{number:>2} {columns}{_GAP}"


def _widths(todo: Sequence[Todo], name: str) -> _Widths:
    """Choose the widths of the columns. ``name`` is the name of the column of savings, if it fits the screen.

    Titles are cut only if the columns of savings and certainty would not fit beside them.
    """
    certainty = max([len("certainty"), *(len(x.certainty) for x in todo)])
    saves = max(map(len, [*format_savings(todo), "saves"]))
    # The blanks behind the last column are not printed, so they need no room.
    room = line_width() - len(_Widths(0, saves, certainty).line("", "", "", "")) + len(_GAP)
    title = min(room, max(len(name_order(todo)), *(len(make_printable(x.title)) for x in todo)))
    widths = _Widths(title, max(saves, len(name)), certainty)
    return widths if len(widths.line("", "", "", "")) <= line_width() else _Widths(title, saves, certainty)


def heading(todo: Sequence[Todo], conclusion: Verdict, first: int = 1, whole: bool = False) -> str:
    """Return the heading above the list of things to do: the names of the columns."""
    name = _name_saving_column(todo, conclusion)
    width = _widths(todo, name)
    line = width.line("", name_order(todo), name if len(name) <= width.saves else "saves", "certainty")
    return f"{line}how" if whole or _fits_beside(todo, name, first) else line.rstrip()


def _name_saving_column(todo: Sequence[Todo], conclusion: Verdict) -> str:
    """Return the name of the column of savings, such as ``saves a step`` or ``saves a step, probably``."""
    unit = name_unit(todo)
    perhaps = f", {PROBABLY.strip()}" if any(map(differs_if_traced, todo)) else ""
    of = f"a {conclusion.word}" if unit == "step" else "a call" if unit == "call" else conclusion.whole
    sums = {sum_text(x) for x in todo}
    if of == A_RUN and len(sums) == 1 and "" not in sums:
        return f"saves {sums.pop()}"
    if perhaps and not of.startswith("a "):
        return f"saves{perhaps}"
    return f"saves {'of ' * (unit == 'run' and not of.startswith('a '))}{of}{perhaps}"


def format_savings(todo: Sequence[Todo]) -> list[str]:
    """Return the saving of each recommended change as a text, all in one unit of time (``saving_texts``)."""
    # The heading names a step or a run. So a saving of a single call says that it is one.
    of_call = [" a call" * (x.unit == "call" and x.shown is not None and name_unit(todo) != "call") for x in todo]
    return [f"{text}{call}" for text, call in zip(saving_texts(todo), of_call, strict=True)]


def todo_blocks(
    todo: Sequence[Todo], conclusion: Verdict, first: int = 1, whole: bool = False, short: bool = False
) -> list[list[str]]:
    """Return the lines of each thing to do, numbered: title, saving, certainty, and what to change.

    * ``whole``: do not cut titles.
    * ``short``: leave out what the saving rests on, if it needs lines of its own.
    """
    name = _name_saving_column(todo, conclusion)
    width = _widths(todo, name)
    titles = [make_printable(x.title) for x in todo]
    titles = titles if whole else shorten_texts(titles, width.title)
    # If what to change fits beside the other columns for all things, it is printed there. Else it is printed below
    # them, so that it is never cut.
    beside = _fits_beside(todo, name, first)
    out: list[list[str]] = []
    for n, (x, title, saves) in enumerate(zip(todo, titles, format_savings(todo), strict=True), first):
        start = width.line(str(n), title, saves, x.certainty)
        change = make_printable(_name_change(x) if short and not beside else _change(x, None if whole else n))
        if whole:
            out.append(_wrap_line(f"{start}{change}", _LABEL))
        elif beside:
            out.append([f"{start}{change}".rstrip()])
        else:
            out.append([start.rstrip(), *_wrap_line(f"{' ' * _HOW}{change}", _HOW + 2)])
    return out


def _fits_beside(todo: Sequence[Todo], name: str, first: int) -> bool:
    """Tell whether what to change fits beside the other columns for all things to do."""
    start = len(_widths(todo, name).line("", "", "", ""))
    return all(start + len(make_printable(_change(x, n))) <= line_width() for n, x in enumerate(todo, first))


def _target(todo: Todo) -> str:
    """Return the time that a thing to do is estimated to reach, like ``24.9 ms expected to remain``.

    It is empty if the thing to do has no estimate, or if what the estimate takes for granted tells more. In a step, it
    is the time of some kernels, and the text says so.
    """
    if todo.sureness != "estimated" or todo.gain is None or todo.step is not None:
        return ""
    if todo.unit == "step":
        return f"kernels {duration(todo.gain.now_us)} → {duration(todo.gain.then_us)}"
    return "" if todo.rests_on else f"{duration(todo.gain.then_us)} expected to remain"


def _row_lines(found: Recommendation, todo: Todo, room: int, most: int) -> list[str]:
    """Return lines that show how much time each of the slowest calls saves if the library uses a better kernel.

    The calls that save most come first. ``room`` is the largest number of lines, and ``most`` that of calls.
    """
    rows = [found.findings[n - 1] for n in todo.findings][: max(min(room, most), 0)]
    labels = [make_printable(x.problem.label) if x.problem else "" for x in rows]
    width = max(map(len, labels), default=0)
    saves = (_format_row(x, todo, found.steps or 1) for x in rows)
    first_word = ["most, " * (len(todo.findings) > 1), *([""] * len(rows))]
    out: list[str] = []
    for label, (us, how), first in zip(labels, saves, first_word, strict=False):
        line = f"{' ' * _HOW}{label:<{width}}  saves {first}{us}"
        lines = _wrap_line(f"{line}{how}", _HOW + 2)
        lines = lines if len(out) + len(lines) <= room else [cut_to_width(line)]
        out += lines if len(out) + len(lines) <= room else []
    return out


def _format_row(row: Finding, todo: Todo, steps: float) -> tuple[str, str]:
    """Return the saving of one operator, and its calls: ``91.8 of 96.7 ms``, `` (18 calls of 5.37 ms → 273 µs)``.

    An expected time has words that say whose time it is, such as ``273 µs, the time of its B``.
    The second text is empty for a single call, and if no whole number of calls is known for a step or run.
    """
    if todo.unit == "call" or row.saving_us is None:
        return f"{mark(todo)}{duration(row.per_call_us)}{' a call' * (todo.unit != 'call')}", ""
    each, calls = row.per_call, (row.calls or 0) / steps
    if each is not None and calls > 1 and calls == int(calls):
        whose = f", {row.evidence.details[THEN]}" if THEN in row.evidence.details else ""
        now = " ".join(filter(None, [duration(each.now_us), str(row.evidence.details.get(NOW, ""))]))
        how = f" ({pluralize(int(calls), 'call')} of {now} → {duration(each.then_us)}{whose})"
        return f"{mark(todo)}{join_times(row.saving_us / steps, 'of', each.now_us * calls)}", how
    return f"{mark(todo)}{duration(row.saving_us / steps)}", ""


def _change(todo: Todo, number: int | None) -> str:
    """Say what to change to do a thing: a phrase with a verb, where the saving is, and the option that explains it.

    Without a ``number`` of the thing, the option is left out.
    """
    per = "; one call of each problem" if todo.unit == "call" and len(todo.findings) > 1 else ""
    more = f"; see --explain {number}" if number and isinstance(todo.remedy, Advise | ChangeProgram) else ""
    where = filter(None, [range_text(todo), kernels_text(todo) or hosts_text(todo) or _target(todo), granted(todo)])
    return "; ".join([f"{_name_change(todo)}{per}", *where]) + more


def _name_change(todo: Todo) -> str:
    """Return what to change to do a thing, and the problem if it is about a single one."""
    about = f" ({todo.what})" if len(todo.findings) == 1 and not isinstance(todo.remedy, UseRows) else ""
    return f"{change_text(todo)}{about}"


def _command_lines(commands: Sequence[_Command], listed: int, rest: Sequence[Sequence[str]]) -> list[str]:
    """Return one line or more for each command, and a line that begins with ``rest``.

    ``rest`` has several forms of the last line, as parts. The first form that fits is printed. If none fits, the last
    form is folded between its parts, because a part may be a command.

    If several things to do are ``listed``, each line begins with the numbers of its things, such as ``for 1: apply``.
    The commands for one thing stand together.
    """
    indent = "   " * (listed > 1)
    labels = [f"for {','.join(map(str, x.of))}: {x.label}" if x.of and listed > 1 else x.label for x in commands]
    width = len(indent) + max([_LABEL, *(len(x) + 2 for x in labels)])
    # A line for all things, such as the one that sets $D, is long and needs the room beside long labels.
    narrow = len(indent) + _LABEL if width > 2 * _LABEL + len(indent) else width
    out: list[str] = []
    for x, label in sorted(zip(commands, labels, strict=True), key=lambda pair: _order(pair[0])):
        ends = width if x.of else narrow
        line = f"{indent}{label}".ljust(ends) + x.text
        out += _fold_command(line, ends) if x.is_shell else _wrap_line(line, ends)
    start = f"{indent}rest".ljust(narrow)
    lines = [f"{start}{_BETWEEN.join(parts)}" for parts in rest]
    return [*out, *next(([x] for x in lines if len(x) <= line_width()), _fold_parts(start, rest[-1]))]


def _fold_parts(start: str, parts: Sequence[str]) -> list[str]:
    """Return lines with as many whole parts as fit. The first line begins with ``start``, the others with blanks.

    Only the last part, a path, is cut if it is longer than a line.
    """
    out = [f"{start}{parts[0]}"]
    for part in parts[1:]:
        if len(out[-1]) + len(_BETWEEN) + len(part) <= line_width():
            out[-1] += f"{_BETWEEN}{part}"
        else:
            out.append(f"{' ' * len(start)}{part}")
    return [*out[:-1], cut_to_width(out[-1])]


def _order(command: _Command) -> float:
    """Return a sort key: commands for all things come first, then those for each thing, then the remark on JOB."""
    return math.inf if command.label == "JOB" else command.of[0] if command.of else 0


def _list_commands(found: Recommendation, todo: Sequence[Todo], written: Written) -> Iterator[_Command]:
    """Yield shell commands to paste, which test the listed changes, use them, or look for more.

    * ``todo``: the things to do that are listed.

    Commands use ``$D``, the folder with the files, which the first line sets.
    """

    def numbers_of(chosen: Iterable[Todo]) -> tuple[int, ...]:
        return tuple(todo.index(x) + 1 for x in chosen)

    listed = {type(x.remedy) for x in todo}
    out = written.out.absolute()
    placed = [(file.path.parent.absolute(), file) for file in written.files if file.path is not None]
    folders = list(dict.fromkeys(place for place, _ in placed if place != out))
    # If there are files for several machines, each has its folder, and $D is the folder above them.
    base = folders[0] if len(folders) == 1 else out
    names = {_shorten_path(place, base, file.name): file for place, file in placed}
    here = "$D"
    if folders and not listed.isdisjoint((UseRows, Search)):
        named = shell_word(short_path(str(base)))
        here = '"$D"' if "'" in named else here
        yield _Command("first", f"D={named}")
    timed_again = [x for x in todo if x.findings and not x.confirmed and not isinstance(x.remedy, ChangeProgram)]
    if timed_again:
        label = next_commands.CONFIRM if any(isinstance(x.remedy, UseRows) for x in timed_again) else "measure"
        of_label = [x for x in timed_again if isinstance(x.remedy, UseRows)] or timed_again
        yield _Command(label, next_commands.confirm(written.store, found.run), numbers_of(of_label))
    if found.ladder:
        written_rungs = [x for x in found.ladder if not x.why]
        rows = pluralize(sum(len(x.sizes) for x in written_rungs), "row")
        rungs = f"{rows} on {len(written_rungs):,} of {len(found.ladder):,} rungs: see the report"
        yield _Command("ladder", rungs, is_shell=False)
    if any(x.untimed for x in found.ladder):
        step = str(found.ladder[0].sizes.step)
        words = ("replay", "--run", found.run, "--backend", ladders.LIBRARY, "--ladder", step)
        yield _Command("ladder", command_line(written.store, *words))
    if assumed := [x for x in todo if x.assumes]:
        settled = " && ".join(settling(written.store, found.run, written.runs))
        yield _Command("settle", settled, numbers_of(assumed))
    applied = numbers_of(x for x in todo if isinstance(x.remedy, UseRows))
    read = [x for x, file in names.items() if file.applied and file.name != apply_script.NAME and UseRows in listed]
    if read:
        yield _Command(next_commands.CHECK, next_commands.check_files(written.store, found.run, here), applied)
        if found.gpu_time is None:
            yield _Command(next_commands.TIME, next_commands.time_files(written.store, written.runs, here), applied)
    if (folders[1:] or apply_script.NAME in names) and UseRows in listed:
        label = next_commands.APPLY if read else "apply"
        yield _Command(label, f"{command_line(None, 'run', '--with')} {here} -- JOB", applied)
    elif written.files and UseRows in listed:
        why = next((x for x in written.notes if NOT_WRITTEN in x), "the report states why")
        yield _Command("apply", f"{_NO_ROW}: {why.rpartition(NOT_WRITTEN)[2]}", applied, is_shell=False)
    weighed = [x for x in found.actions if x.action.kind != "files"]
    actions = [
        x.action.name
        for x in apply_module.choose_default_changes(
            weighed, find_hidden_changes(found), found.in_job, found.combination
        )
    ]
    by_action = numbers_of(x for x in todo if set(x.names).intersection(actions))
    if actions and apply_module.NAME in names:
        yield from (_Command("apply", use, by_action) for use in names[apply_module.NAME].lines)
    timed = {x.action.name for x in found.actions} | {x.name for x in found.tried}
    changes = [(x, x.remedy.solution) for x in todo if isinstance(x.remedy, ChangeProgram)]
    if untimed := [(x, name) for x, name in changes if name not in timed and name in _names_of_actions()]:
        tried = f"{command_line(None, 'try', *(name for _, name in untimed))} -- JOB"
        yield _Command("try", tried, numbers_of(x for x, _ in untimed))
    if actions and not read:
        check = next_commands.check_actions(written.store, found.run, written.runs, actions)
        yield _Command("check", check, by_action)
    by_search = [x for x in todo if isinstance(x.remedy, Search)]
    searched = (found.findings[n - 1].problem for x in by_search for n in x.findings)
    wanted, scripts = names_of_scripts(searched), dict[str, str]()
    for place, _, name in (x.rpartition("/") for x in names):
        if name in wanted:
            scripts.setdefault(name, place)
    searches = [
        f"(cd {here}{f'/{shell_word(place)}' if place else ''} && sh {shell_word(x)})" for x, place in scripts.items()
    ]
    if searches:
        yield _Command(next_commands.SEARCH, "; ".join(searches), numbers_of(by_search))
    if read or actions:
        traced = found.gpu_time is not None
        explained = next_commands.explain_check(found.run, traced=traced) if read else next_commands.EXPLAIN_CHECK
        yield _Command("JOB", f"{_JOB}; {explained}", is_shell=False)


def _names_of_actions() -> frozenset[str]:
    """Return the names of the actions that ``logparse try`` can try in a job."""
    from analyzers.actions import ACTIONS  # Most runs need no list of actions.

    return frozenset(x.name for x in ACTIONS)


def _shorten_path(place: Path, base: Path, name: str) -> str:
    """Return the path of a file relative to ``base``, or its name if its folder lies elsewhere."""
    return (place / name).relative_to(base).as_posix() if place.is_relative_to(base) else name


def _tell_rest(found: Recommendation, conclusion: Verdict, written: Written, room: int) -> list[list[str]]:
    """Return what is not on the screen, and how it is shown, in several forms, the longest first.

    ``room`` is the number of things to do that are listed.
    """
    more = len(conclusion.todo) - room
    left = [f"{pluralize(more, 'more thing')} to do"] if more > 0 else []
    small = [f"{len(conclusion.unseen):,} with too small an effect on the {conclusion.word}"] * bool(conclusion.unseen)
    report = f"all: {short_path(str(written.out / documents.REPORT_NAME))}" if written.files else "all: -v"
    which = "N" if len(conclusion.todo) > 1 else "1"
    about: str = command_line(written.store, "recommend", "--run", found.run, "--explain", which)
    short = f"about each: --run {shell_word(found.run)} --explain {which}"
    return [[*left, *small, about, report], [*left, about, report], [*left, short, report]]


def _fold_command(line: str, indent: int = _LABEL) -> Iterator[str]:
    """Break a long shell command into several lines that fit the terminal, in such a way that a shell still runs it.

    A command with quotes is not broken, because a shell joins no lines inside quotes. ``indent`` is the width of the
    label before the command, and the indentation of the second and later lines.
    """
    width = line_width()
    while len(line) > width and "'" not in line:
        # A line may end with "&&". Else the rest of a command is on the next line, after a backslash.
        joint = line.rfind(" && ", indent, width - 2)
        if joint > 0:
            yield line[: joint + 3]
            line = f"{' ' * indent}{line[joint + 4 :]}"
            continue
        place = line.rfind(" ", 0, width - 1)
        if line[: max(place, 0)][indent:].strip():
            yield f"{line[:place]} \\"
            line = f"{' ' * indent}{line[place + 1 :]}"
        else:  # The rest is one word, such as a long path.
            yield f"{line[: width - 1]}\\"
            line = line[width - 1 :]
    yield line


def explain_change(found: Recommendation, which: str) -> list[str | Block]:
    """Return all details about one recommended change. ``which`` is its number or name.

    It may also be a change that is too small to be listed. Raises UsageError if there is no such change.
    """
    conclusion = verdict(found)
    todo = (*conclusion.todo, *conclusion.unseen)
    one = todo[int(which) - 1] if which.isdecimal() and 0 < int(which) <= len(todo) else None
    one = one or next((x for x in todo if which in (x.name, x.title, x.remedy.name)), None)
    if one is None:
        known = ", ".join(f"{n} {_names(x)}" for n, x in enumerate(todo, 1)) or "(nothing is proposed)"
        raise UsageError(f"--explain {which}: no proposed change has this number or name; choose from {known}")
    small = (
        [
            f"      the effect of this change on the {conclusion.word} is too small to show, so the change is not in "
            "the list"
        ]
        if one in conclusion.unseen
        else []
    )
    listed = todo_lines([one], conclusion, todo.index(one) + 1, whole=True)
    return [f"run {make_printable(found.run)}", *listed, *small, *render.explain_todo(found, one)]


def _names(todo: Todo) -> str:
    """Return the names of a thing to do that ``--explain`` accepts, such as ``layout-transposes or channels_last``."""
    return " or ".join(dict.fromkeys(filter(None, (todo.name, todo.remedy.name))))
