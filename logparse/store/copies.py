"""Files of a run that are copies of another file of the run.  Only the first of them counts.

The views show the rows of the first file only.  The view ``sources`` lists each copy, with the first file in
``copy_of``.  Two runs never share a copy, because a job that ran twice may write the same bytes twice.

A commit keeps the identity of its file: a hash of the unpacked content, the time of the ingest, how the file is packed,
and the numbers of processes in its path.  The content of a trace has a second hash, of its events, because a copy of it
may be laid out in another way.  Two files of a run with a common hash are copies, except in these cases:

| case | example |
|---|---|
| their numbers are of two processes: neither list ends with the other | ``rank0.log`` and ``rank1.log`` |
| one ingest read both, and they are packed alike | the logs of two ranks in one folder, which name no process |

These cases do not apply to a trace, and to a log that names its process in each line, because no two processes write
the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from logparse.store.columns import column

_PLAIN, _OWN_PROCESS = "plain", "own"


def identity(content: str, ingest: float, packed: str | None = None, numbers: Sequence[int] | None = None) -> str:
    """Return a text that identifies an input file by its content, so that copies of the file can be recognised.

    The text is stored with the file's commit (the record that the file was read).

    * ``content`` is the hash of the content, without blanks. It may be several hashes with ``+`` between them. Then
      each of them identifies the content.
    * ``ingest`` is the time at which the file was read, in s.
    * ``packed`` is the name of the compression, if there is one.
    * ``numbers`` are the process numbers in the path, from left to right. None means that the content itself identifies
      its process.
    """
    kind = _OWN_PROCESS if numbers is None else packed or _PLAIN
    return " ".join([content, f"{ingest:.6f}", kind, *map(str, numbers or ())])


def copies(commits: pa.Table) -> Mapping[str, str]:
    """Find input files that are copies of other input files, so that their calls are not counted twice.

    Returns a dictionary from each copy's id to the id of the file that is used instead. A file with the earlier,
    shorter content of a log that has grown is a copy, too. ``commits`` has a row for each reading of a file. The order
    in which the files were read makes no difference.
    """
    ids, identities = commits["source_id"].to_pylist(), commits["identity"].to_pylist()
    texts = {(source, text.partition(" ")[0]) for source, text in zip(ids, identities, strict=True) if text}
    known = {(source, content) for source, text in texts for content in _hashes(text)}
    if len({content for _, content in known}) == len(known):  # the usual case, found without sorting
        return {}
    states = _states(commits)
    index: dict[_Key, dict[_Group, _Entry]] = {}
    for source, one in states.items():
        for content in one.contents:
            entry = content in one.latest, one.order, source  # a file that has grown beyond it comes first
            for key in one.keys(content):
                groups = index.setdefault(key, {})
                groups[one.group] = min(entry, groups.get(one.group, entry))
    out: dict[str, str] = {}
    for source, one in states.items():
        found = [x for key in one.asked() for group, x in index.get(key, {}).items() if group != one.group]
        first = min(found, default=None)
        if first is not None and first < (True, one.order, source):
            out[source] = first[2]
    return {source: _find_original(out, source) for source in out}


_Numbers: TypeAlias = tuple[str, ...]
_Key: TypeAlias = tuple[str, str, bool, _Numbers]
"""Run, hash of the content, whether more numbers may stand before, and numbers."""
_Group: TypeAlias = tuple[str, str]
"""Files that are no copies of each other: time of their ingest, and packing.  A trace is alone in its group."""
_Order: TypeAlias = tuple[float, bool, int, str, float, str]
_Entry: TypeAlias = tuple[bool, _Order, str]


class _State(NamedTuple):
    """One input file, with what is needed to find out whether it is a copy of another one.

    * ``run`` is the label of the execution of the job to which it belongs.
    * ``contents`` are hashes of its content, each time that it was read. ``latest`` are the latest ones.
    * ``numbers`` are the process numbers in its path.
    * ``group`` names files that cannot be copies of each other: they were read together, and are packed alike.
    * ``order`` decides which of several copies is used: the first one in this order.
    """

    run: str
    contents: frozenset[str]
    latest: frozenset[str]
    numbers: _Numbers
    group: _Group
    order: _Order

    def keys(self, content: str) -> Iterator[_Key]:
        """Yield the keys of an input file in an index of all input files. A copy of the file has one of the same keys.

        ``content`` is the hash of the file's present or earlier content.
        """
        # The index is a dictionary. A key also contains the numbers of processes in the file's path.
        yield self.run, content, False, self.numbers
        yield from ((self.run, content, True, end) for end in _ends(self.numbers))

    def asked(self) -> Iterator[_Key]:
        """Yield the keys under which an index of all input files lists the files of which this file may be a copy."""
        # The index is a dictionary. Its keys contain the hash of the content and the numbers of processes in the file's
        # path.
        for content in self.latest:
            yield self.run, content, True, self.numbers
            yield from ((self.run, content, False, end) for end in _ends(self.numbers))


def _states(commits: pa.Table) -> Mapping[str, _State]:
    names = ("source_id", "end", "identity", "run", "path", "committed_at")
    rows = sorted(zip(*(commits[x].to_pylist() for x in names), strict=True), key=lambda row: row[:2])
    out: dict[str, _State] = {}
    for source, _, text, run, path, at in rows:
        content, *more = (text or "").split(" ")
        ingest, packed, *numbers = more or ("", "")
        before = out.get(source)
        latest = _hashes(content)
        contents = before.contents | latest if before else latest
        group = before.group if before else (source, "") if packed in ("", _OWN_PROCESS) else (ingest, packed)
        unpacked = packed in (_PLAIN, _OWN_PROCESS)
        order = before.order if before else (float(ingest or 0), not unpacked, -len(numbers), path, at, source)
        out[source] = _State(run, contents, latest, tuple(numbers), group, order)
    return {source: one for source, one in out.items() if one.latest}


def _hashes(content: str) -> frozenset[str]:
    return frozenset(content.split("+")) - {""}


def _ends(numbers: Sequence[str]) -> Iterator[_Numbers]:
    return (tuple(numbers[start:]) for start in range(len(numbers) + 1))


def _find_original(copy_of: Mapping[str, str], source: str) -> str:
    """Return the original of a copied file. A copied file may itself be a copy, so a chain of copies is followed."""
    while source in copy_of:
        source = copy_of[source]
    return source


def copies_table(found: Mapping[str, str]) -> pa.Table:
    """Return a table with one row per copied input file: ``source_id`` is the copy, ``copy_of`` the file it copies."""
    columns = [column(list(x), pa.string()) for x in (found.keys(), found.values())]
    return pa.Table.from_arrays(columns, names=["source_id", "copy_of"])
