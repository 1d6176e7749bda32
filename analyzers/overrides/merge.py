"""Merge override files of several GPUs, jobs or people into one, for one device and one build of the library.

* Files with other validators (version lines), revisions, devices or builds are refused, because their times and indices
  mean something else.
* For each key, the row with the shortest time is kept (in MIOpen for each key and solver).
* The first file's row is kept if a format has no times, or if the times are for different work that the library's key
  does not distinguish.
* Disagreements are listed.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from analyzers.overrides.lint import content_of, format_of
from analyzers.overrides.write import Made
from logparse.errors import InputError
from logparse.groups import in_groups
from logparse.libraries.kinds.format import Emission
from logparse.libraries.kinds.override_format import Merging, OverrideFile, OverrideFormat, bytes_of
from logparse.libraries.kinds.reading import Offer, Reading
from logparse.libraries.override_formats import OVERRIDE_FORMATS
from logparse.target import Facts
from logparse.text import pluralize

_SHOWN = 8
"""The largest number of rows that an error names."""


class Choice(NamedTuple):
    """A kernel that one of several merged files proposes for a call. The best proposal is kept.

    ``rank``: the kernel's time and name, by which the proposals are compared.
    """

    rank: tuple[float, str]
    file: str
    offer: Offer

    @property
    def text(self) -> str:
        offer = self.offer
        time = "without a time" if offer.time_us is None else f"{offer.time_us / 1000:.6g} ms"
        work = f" for {offer.work}" if offer.work else ""
        return f"{offer.solution} {time}{work} ({self.file}:{offer.line})"


@dataclass(frozen=True)
class Conflict:
    """A disagreement of merged override files: they name different kernels for the same ``key``.

    The key is the text by which the library looks up a call. ``taken`` is the row that was written.
    """

    key: str
    taken: Choice
    others: tuple[Choice, ...]

    @property
    def equal_work(self) -> bool:
        """True if the fastest of the kernels that several files propose for a call can be found by their times.

        It is False if the times are for different amounts of work, because the library uses one entry for different
        calls.
        """
        return {x.offer.work for x in self.others} <= {self.taken.offer.work}


@dataclass(frozen=True, kw_only=True)
class Merged(Made):
    """The result of merging several override files (lists of kernels for a library) into one list.

    ``conflicts``: calls for which the merged files name different kernels.
    """

    conflicts: tuple[Conflict, ...]


def merge(paths: Sequence[str], gpus: int = 1) -> Merged:
    """Merge override files of one format into one. For each key the fastest row is kept.

    A key is the text by which the library looks up a call. If rows have no times, or times for different work, the row
    of the first file is kept. Raises InputError in these cases:

    * a file cannot be read;
    * the files have several formats, devices or builds;
    * no row can be used, because a file without rows would replace the library's own file.
    """
    return merge_contents([(path, *content_of(path)) for path in paths], gpus)


def merge_contents(files: Iterable[tuple[str, str, bytes]], gpus: int = 1) -> Merged:
    """Merge several override files (lists of kernels) into one. Nothing is written.

    ``files``: tuples (path, name, bytes). Raises InputError if the files cannot be merged, for example because their
    formats differ.
    """
    contents = deque(files)
    notes = [f"{path}: the file is empty" for path, _, data in contents if not _holds_text(data)]
    contents = deque(x for x in contents if _holds_text(x[2]))
    if not contents:
        raise InputError("nothing to merge: every file is empty")
    formats = {path: format_of(name, data) for path, name, data in contents}
    if len({x.name for x in formats.values()}) > 1:
        named = ", ".join(f"{path} is {x.name}" for path, x in formats.items())
        raise InputError(f"these files have different formats, so they cannot be merged: {named}")
    format, first = next(iter(formats.values())), contents[0][1]
    merging = format.merging
    if gpus > 1 and not merging.per_device:
        raise InputError(f"--gpus: only TunableOp reads one file per device, but these files are {format.name}")
    notes += [merging.note] if merging.note else []
    agreed: dict[str, tuple[str, str]] = {}
    readings, dropped = [], list[str]()
    while contents:  # The file's content is released as soon as it is read, so that only one is in memory.
        path, name, data = contents.popleft()
        clean = whole_lines(data)
        try:
            header = merging.header(name, clean)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        _check_same_target(agreed, path, header)
        reading = format.reader(name, clean, {})
        for row, its in reading.alike:
            if row.solution is None or row.verdicts.fault:
                why = row.verdicts.fault or "no solution"
                dropped += [f"{path}, line {line}: left out: {why}" for line in its]
        readings.append((path, reading))
    winners = _Winners(merging, readings)
    common = {name: value for name, (value, _) in agreed.items()}
    written = tuple(merging.write(iter(winners), first, common, gpus))
    if not winners.keys:
        more = f"; and {len(dropped) - _SHOWN:,} more" if len(dropped) > _SHOWN else ""
        raise InputError("; ".join(["nothing to merge: no row can be used", *dropped[:_SHOWN]]) + more)
    refused = Counter(line.partition(": left out: ")[2] for line in dropped)
    return Merged(written, winners.keys, refused, notes=(*notes, *dropped), conflicts=tuple(winners.conflicts))


def lines(found: Merged) -> list[str]:
    """Return a summary of merging override files: how many entries, and which one was kept where the files differ."""
    untimed = sum(conflict.taken.offer.time_us is None for conflict in found.conflicts)
    out = [
        (
            f"{pluralize(found.count, 'key')}; {len(found.conflicts):,} have rows with different solutions, of which "
            "the fastest is kept"
        )
    ]
    out[0] += f" ({untimed:,} of them without times: the first file's row is kept)" if untimed else ""
    mixed = sum(not conflict.equal_work for conflict in found.conflicts)
    what = (
        "the library uses one row for calls that share a key, so the first file's row is kept; time the kernel of this "
        "row on each of these calls"
    )
    out += [f"  {pluralize(mixed, 'key')} with times of different calls; {what}"] if mixed else []
    for conflict in found.conflicts:
        out.append(f"  {conflict.key}: {conflict.taken.text}, not {'; '.join(x.text for x in conflict.others)}")
    if (rows := sum(found.refused.values())) > 0:
        out[0] += f"; {pluralize(rows, 'row')} left out"
    return [*out, *(f"  {note}" for note in found.notes)]


def _holds_text(data: bytes) -> bool:
    return bool(data) and not data.isspace()


def whole_lines(data: bytes) -> bytes:
    """Return a file's text with plain line ends.

    A byte order mark and carriage returns are removed, and a missing line end after the last line is added.
    """
    clean = data.removeprefix(BOM_UTF8)
    clean = clean.replace(b"\r\n", b"\n") if b"\r" in clean else clean  # Searching for two bytes takes 20 times longer.
    return clean if clean.endswith(b"\n") else clean + b"\n"


class _Winners:
    """Iterates over the rows that remain when override files are merged, one for each key.

    A key is the text by which the library looks up a call. Afterwards, ``conflicts`` has the keys with different
    kernels.
    """

    def __init__(self, merging: Merging, files: Sequence[tuple[str, Reading[Any]]]) -> None:
        self._merging = merging
        self._found = [(path, in_groups(reading.offers(merging.work), lambda x: x.key)) for path, reading in files]
        # ``keys`` is the number of keys.
        self.keys, self.conflicts = 0, list[Conflict]()
        self._named = {path: at for at, path in enumerate(dict.fromkeys(path for path, _ in files))}

    def __iter__(self) -> Iterator[Offer]:
        for key in sorted(set().union(*(offered for _, offered in self._found))):
            yield from self._of_key(key)

    def _make_choice(self, path: str, offer: Offer) -> Choice:
        time_us = math.inf if offer.time_us is None else offer.time_us
        # Equal times are ordered by the solution's text, whatever the order of the files.
        return Choice((time_us, "" if self._merging.in_order else offer.solution), path, offer)

    def _of_key(self, key: str) -> Iterator[Offer]:
        best: dict[str, Choice] = {}
        work: dict[str, str] = {}  # Work of the first row of each slot. Times for other work do not compete with it.
        rivals: dict[str, dict[str, Choice]] = {}  # The fastest row of each file, by slot or by key.
        for path, offered in self._found:
            for place, offer in enumerate(offered.get(key, ())):
                ranked = self._make_choice(path, offer)
                taken = best.get(own := self._merging.slot(offer))
                equal_work = work.setdefault(own, offer.work) == offer.work
                if equal_work and (taken is None or ranked.rank < taken.rank):
                    best[own] = ranked
                among = (key, path) if self._merging.several else (own, f"{path}:{place}")
                fastest = rivals.setdefault(among[0], {})
                if among[1] not in fastest or ranked.rank < fastest[among[1]].rank:
                    fastest[among[1]] = ranked
        self.keys += bool(best)
        yield from (best[own].offer for own in sorted(best))
        for name in sorted(rivals):
            # If rows are equal, the row of the first path is taken. A path may be given twice, and may have the key
            # only the second time.
            first, *more = sorted(rivals[name].values(), key=lambda x: self._named[x.file])
            taken = min((x for x in (first, *more) if x.offer.work == first.offer.work), key=lambda x: x.rank)
            others = tuple(x for x in (first, *more) if x.offer.solution != taken.offer.solution)
            if others:
                self.conflicts.append(Conflict(name, taken, others))


def _check_same_target(agreed: dict[str, tuple[str, str]], path: str, header: Iterable[tuple[str, str]]) -> None:
    """Check that the override files to merge are for the same device and library build. Raises InputError otherwise.

    ``agreed``: the values found so far, each with the first file that states it.
    """
    for name, value in header:
        first, where = agreed.setdefault(name, (value, path))
        if first != value:
            both = path if path == where else f"{path} and {where}"
            raise InputError(
                f"{both} cannot be merged, because their rows are from different devices or builds: {name} is "
                f"{value} and {first}"
            )


# ------------------------------------------------------------------------------------------------- a user's own rows


def with_own(files: Sequence[Emission], paths: Sequence[str], target: Facts) -> tuple[list[Emission], list[str]]:
    """Add the rows of the user's own override files to the new files, so that they are not lost.

    A library reads only one file, so a new file would otherwise replace the user's file. Returns the files, and notes
    that say what became of each own file.

    * Own rows whose keys are not in the new file are kept unchanged.
    * If an own row and a new row have the same key, the new row is used.
    * No own row is kept if the library cannot read the own file (because of validators, revision, file name or layout).

    Raises InputError if an own file cannot be read, or if rows of its format cannot be kept.
    """
    made, notes = list(files), []
    for path in paths:
        name, data = content_of(path)
        format = format_of(name, data)
        if format.find_copy_obstacle is None:
            kept = ", ".join(sorted(x.name for x in OVERRIDE_FORMATS if x.find_copy_obstacle is not None))
            raise InputError(
                f"--own {path}: logparse cannot copy rows of a {format.name} file into the new file. It can copy rows "
                f"of these formats: {kept}"
            )
        own = format.inspect(name, data, target)
        same = [place for place, file in enumerate(made) if _has_format(file, format)]
        why = _why_not(own, made[same[0]] if same else None, format)
        if why is not None:
            notes.append(f"no row of {path} is kept: {why}")
            continue
        for place in same:
            made[place], count = _join_own_rows(made[place], own, format)
        notes.append(f"{count:,} rows of {path} kept in {', '.join(made[x].name for x in same)}")
    return made, notes


def _has_format(file: Emission, format: OverrideFormat) -> bool:
    try:
        return format_of(file.name, file.data) is format
    except InputError:  # A script holds no rows that could be joined.
        return False


def _why_not(own: OverrideFile, emitted: Emission | None, format: OverrideFormat) -> str | None:
    if emitted is None or format.find_copy_obstacle is None:
        return "no new file of this format is written, so your own file stays in use"
    refusal = format.find_copy_obstacle(own, format.inspect(emitted.name, emitted.data, {}))
    if refusal is None and own.accepted is False:
        return next(
            (x.message for x in own.notes if x.line is None and x.severity == "error"),
            "the library does not accept this file",
        )
    return refusal


def _join_own_rows(file: Emission, own: OverrideFile, format: OverrideFormat) -> tuple[Emission, int]:
    """Add the user's own rows to a new override file. Returns the file, and for how many keys a row was added.

    A key is the text by which the library looks up a call.
    """
    new = {row.key for row in format.reader(file.name, file.data, own.target).rows}
    # An own row is added only if the new file has no row for its key.
    kept = [row for row in own.rows if row.live and row.key not in new]
    return replace(file, data=file.data + bytes_of(format.lines(kept))), len({row.key for row in kept})
