"""User databases of MIOpen merged: find-dbs by their times, perf-dbs, which have none, by the order of the files.

MIOpen finds both by a name that tells device and build, so files of other names are refused.
"""

from __future__ import annotations

from analyzers.overrides import miopen_find_db, miopen_perf_db
from analyzers.overrides.merge_choice import Choice, Contents, Merged, choose, left_out, order
from analyzers.overrides.miopen_find_db import Item, items
from analyzers.overrides.rules import Row, Rules
from logparse.errors import InputError
from logparse.formats.format import Emission

_USE = "export MIOPEN_USER_DB_PATH={folder}"


def find_dbs(contents: Contents) -> Merged:
    """User find-dbs: every solver of every record, each with its fastest time.  Raises InputError."""
    name = _one_name(contents, miopen_find_db.RULES)
    notes: list[str] = []
    best: dict[str, dict[str, tuple[Choice, Item]]] = {}
    winners: dict[str, list[Choice]] = {}
    for path, _, data in contents:
        text = _clean(data)
        clean = miopen_find_db.inspect(name, text.encode("utf-8", "surrogateescape"), {})
        per: dict[str, Choice] = {}
        for item, row in zip(items(text), clean.rows, strict=True):
            if row.time_us is None or not _usable(row):
                notes.append(left_out(path, item.line, row.verdicts.why or "no time"))
                continue
            choice = Choice(path, item.line, item.solver, row.time_us)
            solvers = best.setdefault(item.key, {})
            if item.solver not in solvers or order(choice) < order(solvers[item.solver][0]):
                solvers[item.solver] = (choice, item)
            if item.key not in per or order(choice) < order(per[item.key]):
                per[item.key] = choice
        for key, choice in per.items():
            winners.setdefault(key, []).append(choice)
    _, conflicts = choose(winners)
    lines = [
        f"{key}={';'.join(_item(x) for _, x in sorted(best[key].values(), key=_by_time))}\n" for key in sorted(best)
    ]
    emission = Emission(name, "".join(lines).encode("utf-8", "surrogateescape"), _USE)
    return Merged((emission,), len(best), conflicts, tuple(notes))


def _usable(row: Row) -> bool:
    """Whether MIOpen can take the item, whichever of several equal records it stands in."""
    shadowed = row.verdicts.read is False and row.verdicts.why.startswith("the key stands")
    return row.live or shadowed


def _by_time(entry: tuple[Choice, Item]) -> tuple[float, str]:
    return order(entry[0])


def _item(item: Item) -> str:
    return f"{item.solver}:{','.join(item.values[:3])}"


def perf_dbs(contents: Contents) -> Merged:
    """User perf-dbs: of one solver of a record the parameters of the first file.  Raises InputError."""
    name = _one_name(contents, miopen_perf_db.RULES)
    notes: list[str] = []
    found: dict[str, list[Choice]] = {}
    for path, _, data in contents:
        if data.startswith(miopen_perf_db.SQLITE):
            raise InputError(f"{path} is a sqlite database, as MIOpen before 3.2 keeps it: MIOpen itself merges those")
        text = _clean(data)
        rows = miopen_perf_db.inspect(name, text.encode("utf-8", "surrogateescape"), {}).rows
        for item, row in zip(miopen_perf_db.items(text), rows, strict=True):
            if not _usable(row):
                notes.append(left_out(path, item.line, row.verdicts.why or "no parameters"))
                continue
            found.setdefault(f"{item.key}={item.solver}", []).append(Choice(path, item.line, item.text, None))
    taken, conflicts = choose(found, in_order=True)
    records: dict[str, list[str]] = {}
    for key, choice in taken.items():
        records.setdefault(key.partition("=")[0], []).append(choice.solution)
    lines = [f"{key}={';'.join(records[key])}\n" for key in sorted(records)]
    emission = Emission(name, "".join(lines).encode("utf-8", "surrogateescape"), _USE)
    return Merged((emission,), len(records), conflicts, tuple(notes))


def _one_name(contents: Contents, rules: Rules) -> str:
    names = {name for _, name, _ in contents}
    if len(names) > 1:
        raise InputError(
            f"databases of different devices or builds cannot be merged, their names differ: {', '.join(sorted(names))}"
        )
    name = names.pop()
    if any(note.rule == "file-name" for note in rules.inspect(name, b"", {}).notes):
        raise InputError(f"{name} does not say of which device and build it is, as MIOpen's own names do")
    return name


def _clean(data: bytes) -> str:
    """Without what keeps MIOpen from reading a file, but not us."""
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
