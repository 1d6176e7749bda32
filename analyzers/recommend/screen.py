"""Format a recommendation for a terminal: at most ``LINES`` lines of at most ``COLUMNS`` columns.

The terminal shows the verdict, how the time of a step is divided, the things to do (the best first), and the commands
to type. ``explained`` shows everything about one thing to do.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from analyzers.evidence import ladders
from analyzers.recommend import apply_module, apply_script, documents, render
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.verdict import Share, Todo, Verdict, change_text, hidden, kernels_text, of_calls, verdict
from logparse.errors import UsageError
from logparse.libraries.kinds.format import Emission
from logparse.model import Search, UseRows
from logparse.output.terminal import Block
from logparse.quoting import shell_word
from logparse.store import command_line
from logparse.text import COLUMNS, LINES, counted, duration, fitted, in_one_unit, printable, short_path, shortened

_TITLE, _LABEL, _LEFT_OUT, _LEAST_HOW, _KINDS, _LITTLE = 44, 9, 2, 12, 3, 0.05


@dataclass(frozen=True)
class Written:
    """The places of a recommendation's files and data.

    * ``out``: the folder with the files. ``files``: the files.
    * ``store``: the stored data that the next commands read.
    * ``runs``: names of the stored runs. The printed commands use another name for a new run.
    """

    out: Path
    files: Sequence[Emission] = ()
    store: str | None = None
    runs: Sequence[str] = ()

    @property
    def next_run(self) -> str:
        """Return a new name for the run that the user will make with the changes: ``after``, ``after2``, …"""
        numbered = (f"after{n}" for n in count(2))
        return next(x for x in chain(["after"], numbered) if x not in self.runs)


def screen(found: Recommendation, written: Written, n: int | None = None) -> list[str]:
    """Return the lines that the terminal shows for a recommendation.

    ``n`` is the number of things to do that are listed, however many lines they need. Without it, the lines fit on a
    screen.
    """
    seen = verdict(found)
    head = _wrapped(f"recommend: {seen.headline}", 4)
    head += split_lines(seen) if seen.split else []
    more = len(seen.left_out) - _LEFT_OUT
    told = [*seen.left_out[:_LEFT_OUT], *([f"{more:,} more: see the report, or -v"] if more > 0 else [])]
    head += [line for x in told for line in _wrapped(f"  left out: {x}", 4)]
    if not seen.todo and not found.findings and found.calls and found.ceiling.share is None and not found.unlike:
        return [*head, *_folded(f"measure  {command_line(written.store, 'replay', '--run', found.run)}")]
    if not seen.todo:
        return head
    head += _wrapped(f"  the {seen.word} is {seen.limit}", 4) if seen.limit else []
    typed = list(_typed(found, seen, written))
    for room in range(n or LINES, 0, -1):
        listed = todo_blocks(seen.todo[:room])
        spare = LINES - 2 - len(head) - len(typed) - sum(map(len, listed))
        if n or spare >= 0:
            break
    for todo, block in zip(seen.todo, listed, strict=False):
        if isinstance(todo.remedy, UseRows):
            block.extend(_row_lines(found, todo, spare))
    return [
        *head,
        heading(seen.todo[:room], seen.word),
        *chain.from_iterable(listed),
        *typed,
        _rest(seen, written, room),
    ]


def _wrapped(line: str, indent: int) -> list[str]:
    """Wrap a line of text so that it fits the terminal. ``indent`` is the indentation of the second and later lines."""
    return textwrap.wrap(printable(line), COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False)


def ending(found: Recommendation, head: Sequence[str], written: Written, apply: Sequence[str]) -> list[str]:
    """Return the last lines that ``tune`` prints.

    They appear in this order:

    * ``head``: the verdict
    * how the time of a step is divided
    * what is left to do
    * ``apply``: the commands that apply the result
    * a command that shows the reasons, and the path of the report
    """
    seen = verdict(found)
    typed = [line for x in apply for line in _folded(f"apply    {x}")]
    lines = [*(line for x in head for line in _wrapped(x, 4)), *(split_lines(seen) if seen.split else [])]
    lines = lines[: LINES - len(typed) - 1]
    words = ["recommend", "--run", found.run, "--explain", *(x.name for x in seen.todo[:1])]
    why = list(_folded(f"why      {command_line(written.store, *words)}"))
    counts = range(len(seen.todo), 0, -1)
    listed = [todo_lines(seen.todo[:n], seen.word) for n in counts]  # The heading is left out before a thing to do.
    ways = ([*x[skipped:], *typed, *y] for y in (why, []) for x in listed for skipped in (0, 1))
    typed = next((x for x in ways if len(lines) + len(x) < LINES), typed)
    rest = fitted(f"rest     {short_path(str(written.out / documents.REPORT_NAME))}")
    return [*lines, *typed, rest]


def split_lines(seen: Verdict) -> list[str]:
    """Return lines that show the user what a step spends its time on, for example GEMMs and idle time.

    One line names the largest kinds of work, and ends with the sum of the rest. If this sum is larger than the smallest
    named kind, further lines name more kinds.
    """
    whole = f"a {seen.word}" if seen.unit == "step" else "all traces"
    out = f"  {whole}, {duration(seen.whole_us)}: "
    kinds, idle = [x for x in seen.split if x.name != "idle"], [x for x in seen.split if x.name == "idle"]

    def line(shown: int) -> str:
        rest = [Share("the rest", sum(x.us for x in kinds[shown:]))] if kinds[shown:] else []
        return out + " · ".join(f"{x.name} {duration(x.us)}" for x in (*kinds[:shown], *rest, *idle))

    room = next(n for n in range(len(kinds), -1, -1) if len(line(n)) <= COLUMNS or not n)
    little = _LITTLE * sum(x.us for x in seen.split)

    def enough(shown: int) -> bool:
        rest = sum(x.us for x in kinds[shown:])
        return shown > 0 and rest <= kinds[shown - 1].us and (shown >= _KINDS or rest <= little)

    smaller = (n for n in range(room, len(kinds)) if enough(n))
    return _wrapped(line(next(smaller, len(kinds))), 4)


def todo_lines(todo: Sequence[Todo], word: str, first: int = 1, whole: bool = False) -> list[str]:
    """Return the list of things to do as lines, with a heading."""
    return [heading(todo, word), *chain.from_iterable(todo_blocks(todo, first, whole))]


@dataclass(frozen=True)
class _Widths:
    """The width of each column in the list of things to do, in characters."""

    title: int
    saves: int
    certainty: int

    def line(self, number: str, title: str, saves: str, certainty: str) -> str:
        columns = f"{title:<{self.title}}  {saves:<{self.saves}}  {certainty:<{self.certainty}}"
        return f"{number:>2} {columns}  "


def _widths(todo: Sequence[Todo]) -> _Widths:
    saves, certainty = max(map(len, [*savings(todo), _SAVES])), max(len(x.certainty) for x in todo)
    title = min(_TITLE, max(len(printable(x.title)) for x in todo))
    return _Widths(title, saves, max(certainty, len("certainty")))


_SAVES = "saves"


def heading(todo: Sequence[Todo], word: str) -> str:
    """Return the line above the list of recommended changes, with the names of the columns.

    ``word`` is the user's word for a step, for example ``request``.
    """
    unit = _unit(todo)
    saves = f"saves a {word if unit == 'step' else unit}"
    width = _widths(todo)
    line = width.line("", "to do", saves if len(saves) <= width.saves else "saves", "certainty")
    return line + "how" if len(line) + len("how") <= COLUMNS else line.rstrip()


def _unit(todo: Sequence[Todo]) -> str:
    """Return whether the savings on the screen are per ``step``, per ``run`` (whole job) or per ``call``.

    The first known saving decides it, and the heading above the list names it.
    """
    return next((x.unit for x in todo if x.gain is not None), "run")


def savings(todo: Sequence[Todo]) -> list[str]:
    """Return the saving of each recommended change as a text, all in one unit of time, for example ``82.5 of 330 ms``.

    * ``≈`` marks an estimate.
    * ``up to`` marks the largest possible saving, for example ``up to 18 of 40.8 ms``.
    * ``a call`` is added to the saving of a single call, if the heading speaks of a step or run.
    """
    gains = [x.shown for x in todo]
    numbers, unit = in_one_unit([us for x in gains if x is not None for us in (x.saving_us, x.now_us)])
    left, out = iter(numbers), []
    for x, gain in zip(todo, gains, strict=True):
        if gain is None:
            out.append("unknown")
            continue
        mark = "up to " if x.at_most else "≈ " if x.step is None and x.sureness == "estimated" else ""
        call = " a call" if x.unit == "call" and _unit(todo) != "call" else ""
        out.append(f"{mark}{next(left)} of {next(left)} {unit}{call}")
    return out


def todo_blocks(todo: Sequence[Todo], first: int = 1, whole: bool = False) -> list[list[str]]:
    """Return numbered lines about each recommended change: title, saving, certainty, and what changes.

    Each change has one line, in which the text may be cut. Two cases get as many lines as they need: a change that
    alters results by more than rounding, and all changes if ``whole`` is True.
    """
    width = _widths(todo)
    titles = [printable(x.title) for x in todo]
    titles = titles if whole else shortened(titles, width.title)
    out: list[list[str]] = []
    for n, (x, title, saves) in enumerate(zip(todo, titles, savings(todo), strict=True), first):
        start, change = width.line(str(n), title, saves, x.certainty), f"{_target(x)}{_change(x)}"
        if not whole and len(start) + len(change) > COLUMNS:
            change = change.removeprefix(_target(x)).removeprefix(kernels_text(x))
        if not whole and x.exact and COLUMNS - len(start) < min(_LEAST_HOW, len(change)):
            change = ""  # The title says the most of it, and --explain all.
        line = (start + printable(change)).rstrip()
        out.append(_wrapped(line, _LABEL if whole else len(start)) if whole or not x.exact else [fitted(line)])
    return out


def _target(todo: Todo) -> str:
    """Return how long the job is estimated to take after a change, as a text like ``to 24.9 ms: ``.

    Only an estimate is shown in this way. If the time was measured or simulated, the text is empty.
    """
    if todo.sureness != "estimated" or todo.gain is None or todo.step is not None:
        return ""
    return f"to {duration(todo.gain.then_us)}: "


def _row_lines(found: Recommendation, todo: Todo, room: int) -> list[str]:
    """Return lines that show how much time each of the slowest calls saves if the library uses a better kernel.

    The calls that save most come first. ``room`` is the largest number of lines.
    """
    rows = [found.findings[n - 1] for n in todo.findings]
    labels = [printable(x.problem.label) if x.problem else "" for x in rows[: max(room, 0)]]
    saved = (x.per_call_us if todo.unit == "call" or x.saving_us is None else x.saving_us for x in rows)
    room = max(map(len, labels), default=0)
    shown = ((label, us and us / (found.steps or 1)) for label, us in zip(labels, saved, strict=False))
    return [fitted(f"     {label:<{room}}  saves {duration(us)}") for label, us in shown]


def _change(todo: Todo) -> str:
    per = f" a {of_calls(todo)}" if todo.unit == "call" and todo.gain is not None else ""
    about = f": {todo.what}" if len(todo.findings) == 1 and not isinstance(todo.remedy, UseRows) else ""
    return f"{kernels_text(todo)}{change_text(todo)}{about}{f',{per}' if per else ''}"


def _typed(found: Recommendation, seen: Verdict, written: Written) -> Iterator[str]:
    """Yield shell commands that the user can paste, to test the recommended changes, to use them, or to look for more.

    The first line sets ``$D``, so that the other lines are short. ``$D`` is the folder with the files for the user's
    machine. If there are files for several machines, each has its folder, and ``$D`` is the folder above them.
    """
    listed = {type(x.remedy) for x in seen.todo}
    placed = [(file.path.parent, file) for file in written.files if file.path is not None]
    folders = list(dict.fromkeys(place for place, _ in placed if place != written.out))
    base = folders[0] if len(folders) == 1 else written.out
    names = {_below(place, base, file.name): file for place, file in placed}
    here = "$D"
    if folders and not listed.isdisjoint((UseRows, Search)):
        named = shell_word(short_path(str(base)))
        here = '"$D"' if "'" in named else here
        yield from _folded(f"D={named}")
    if any(not x.confirmed for x in seen.todo if x.findings):
        yield from _folded(f"confirm  {command_line(written.store, 'replay', '--run', found.run)}")
    if found.ladder:
        written_rungs = [x for x in found.ladder if not x.why]
        rows = counted(sum(len(x.sizes) for x in written_rungs), "row")
        yield fitted(f"ladder   {rows} on {len(written_rungs):,} of {len(found.ladder):,} rungs: see the report")
    if any(x.untimed for x in found.ladder):
        step = str(found.ladder[0].sizes.step)
        words = ("replay", "--run", found.run, "--backend", ladders.LIBRARY, "--ladder", step)
        yield from _folded(f"ladder   {command_line(written.store, *words)}")
    if folders[1:] and UseRows in listed:
        yield from _folded(f"apply    {command_line(None, 'run', '--with')} {here} -- JOB")
    elif apply_script.NAME in names and UseRows in listed:
        yield from _folded(f"apply    . {here}/{apply_script.NAME}")
    elif written.files and UseRows in listed:
        yield "apply    no row could be written; the report states why"
    weighed = [x for x in found.actions if x.action.kind != "files"]
    actions = [x.action.name for x in apply_module.chosen(weighed, hidden(found), found.in_job)]
    if actions and apply_module.NAME in names:
        yield from (line for use in names[apply_module.NAME].lines for line in _folded(f"apply    {use}"))
    scripts: dict[str, str] = {}
    for place, _, name in (x.rpartition("/") for x in names):
        if name.startswith("tune_"):
            scripts.setdefault(name, place)
    searches = [
        f"(cd {here}{f'/{shell_word(place)}' if place else ''} && {_program(x)} {shell_word(x)})"
        for x, place in scripts.items()
    ]
    if searches and Search in listed:
        yield from _folded(f"search   {'; '.join(searches)}")
    read = [x for x, file in names.items() if file.applied and file.name != apply_script.NAME and UseRows in listed]
    changed = [f"{here}/{'*/' if '/' in x else ''}{shell_word(x.rpartition('/')[2])}" for x in read]
    by_action = [] if changed else [word for name in actions for word in ("--action", name)]
    if changed or by_action:
        after = command_line(
            written.store, "capture", *(["--trace", "2"] if by_action else []), "--run", written.next_run
        )
        check = command_line(written.store, "verify", found.run, written.next_run, *by_action)
        yield from _folded(f"check    {after} -- JOB && {' '.join([check, *changed])}")


def _below(place: Path, base: Path, name: str) -> str:
    """Return the path of a file relative to ``base``, or its name if its folder lies elsewhere."""
    return (place / name).relative_to(base).as_posix() if place.is_relative_to(base) else name


def _program(script: str) -> str:
    return "sh" if script.endswith(".sh") else "python"


def _rest(seen: Verdict, written: Written, room: int) -> str:
    left = [f"{counted(len(seen.todo) - room, 'more thing')} to do"] if len(seen.todo) > room else []
    left += [f"{len(seen.unseen):,} with too small an effect on the {seen.word}"] if seen.unseen else []
    report = [short_path(str(written.out / documents.REPORT_NAME))] if written.files else []
    return fitted(f"rest     {' · '.join([*report, *left, 'the same with --explain 1, or with -v'])}")


def _folded(line: str) -> Iterator[str]:
    """Break a long shell command into several lines that fit the terminal, in such a way that a shell still runs it.

    A command with quotes is not broken, because a shell joins no lines inside quotes.
    """
    while len(line) > COLUMNS and "'" not in line:
        place = line.rfind(" ", 0, COLUMNS - 1)
        if line[: max(place, 0)][_LABEL:].strip():
            yield f"{line[:place]} \\"
            line = f"{' ' * _LABEL}{line[place + 1 :]}"
        else:  # The rest is one word, such as a long path.
            yield f"{line[: COLUMNS - 1]}\\"
            line = line[COLUMNS - 1 :]
    yield line


def explained(found: Recommendation, which: str) -> list[str | Block]:
    """Return all details about one recommended change. ``which`` is its number or name.

    It may also be a change that is too small to be listed. Raises UsageError if there is no such change.
    """
    seen = verdict(found)
    todo = (*seen.todo, *seen.unseen)
    one = todo[int(which) - 1] if which.isdecimal() and 0 < int(which) <= len(todo) else None
    one = one or next((x for x in todo if x.name == which), None)
    if one is None:
        known = ", ".join(f"{n} {x.name}" for n, x in enumerate(todo, 1)) or "nothing to do"
        raise UsageError(f"--explain {which}: no such thing to do; the list has {known}")
    small = (
        [f"      the effect of this change on the {seen.word} is too small to show, so the change is not in the list"]
        if one in seen.unseen
        else []
    )
    return [*todo_lines([one], seen.word, todo.index(one) + 1, whole=True), *small, *render.about(found, one)]
