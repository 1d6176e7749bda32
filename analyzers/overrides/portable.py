"""Remove the rows of an aiter table that work only with one build of a library, and report what that costs.

``hipblaslt,104377`` in a row is an index into hipBLASLt's list of kernels. The list changes from build to build: in
another build the index is another kernel, or none. Rows for aiter's own kernels (asm, ck, flydsl, opus, triton …), for
torch and for hipBLASLt's heuristic (−1) are valid wherever that version of aiter runs. If a key's fastest row has an
index, its next best row is kept, if a file has one. All rows in the tuner's ``--profile_file`` are candidates
(ROCm/aiter#5183).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from analyzers.evidence.tables import Tables
from analyzers.overrides.coverage import coverage
from analyzers.overrides.lint import content_of, facts_of_run, format_of
from analyzers.overrides.merge import merge_contents
from analyzers.overrides.write import Made
from logparse.errors import InputError
from logparse.libraries.kinds.format import Emission
from logparse.libraries.kinds.override_format import OverrideFormat
from logparse.libraries.kinds.reading import Row
from logparse.text import duration, pluralize, signed_percent

_LIBRARIES = ("hipblaslt", "rocblas")


def portable(paths: Sequence[str], tables: Tables | None = None) -> Made:
    """Keep only rows of aiter tables that are valid in every build, and only the fastest such row for each key.

    Rows that name a kernel by a library's index are removed. ``notes`` in the result say how many rows are kept, what
    was left out, and how much time that costs. The cost is weighted by the calls of the job in ``tables``. Raises
    InputError if the files cannot be merged, are no tables of aiter, or have only rows with an index.
    """
    contents = [(path, *content_of(path)) for path in paths]
    format = format_of(contents[0][1], contents[0][2])
    if "aiter" not in format.name:
        raise InputError(
            f"{paths[0]}: --portable takes only tables of aiter, because only in such tables each row states the "
            f"library of its kernel; this file has the format {format.name}"
        )
    kept = [(path, name, _without_indices(format, name, data)) for path, name, data in contents]
    kept = [(path, name, data) for path, name, data in kept if format.reader(name, data, {}).rows]
    if not kept:
        raise InputError(
            "every row names an index that only one build of a library understands; tune again with other backends"
        )
    whole, made = merge_contents(contents), merge_contents(kept)
    old, new = ({row.key: row for row in format.reader(x.name, x.data, {}).rows} for (x,) in (whole.files, made.files))
    weights = _calls(format, whole.files[0], old, tables) if tables is not None else {}
    cost = _cost(old, new, weights, tables.run if tables else "")
    dropped = (x for x in made.notes if x != format.merging.note)
    return Made(made.files, made.count, {}, notes=(pluralize(made.count, "row"), *cost, *dropped))


def _without_indices(format: OverrideFormat, name: str, data: bytes) -> bytes:
    rows = format.reader(name, data, {}).rows
    bound = {row.line for row in rows if _is_bound(row)}
    return format.cut(data, rows, lambda line, text: line not in bound)


def _is_bound(row: Row) -> bool:
    return row.solution is not None and row.solution.library in _LIBRARIES and row.solution.id != "heuristic"


def _calls(format: OverrideFormat, file: Emission, rows: Mapping[str, Row], tables: Tables) -> Mapping[str, int]:
    """Return how often the job calls the operator of each row in an aiter table (a file of kernel choices).

    The keys are the keys of the rows. The result is empty if the logs do not count calls.
    """
    keys, out = {row.line: key for key, row in rows.items()}, Counter[str]()
    for use in coverage(format.inspect(file.name, file.data, facts_of_run(tables)), tables).uses:
        if use.line is not None:
            out[keys[use.line]] += use.calls or 0
    return out


def _cost(old: Mapping[str, Row], new: Mapping[str, Row], weights: Mapping[str, int], run: str) -> list[str]:
    bound = {key: row for key, row in old.items() if _is_bound(row)}
    if not bound:
        return ["every row names its kernel in a way that other library builds understand, so all rows are kept"]
    replaced = [key for key in bound if key in new]
    left_out = len(bound) - len(replaced)
    out = [f"{pluralize(len(bound), 'row')} named an index: {len(replaced):,} replaced by the next best kernel"]
    out[0] += f", {left_out:,} left out"
    timed = {key for key in replaced if bound[key].time_us and new[key].time_us}
    if run and not any(weights.get(key) for key in bound):
        out.append(f"run {run} counts no call for which these rows are used, so every row has the same weight")
        weights = {}
    each = f"per run of {run}" if weights else "if each is called once"

    def total_us(rows: Mapping[str, Row], keys: Iterable[str]) -> float:
        return math.fsum((weights.get(key, 0) if weights else 1) * (rows[key].time_us or 0.0) for key in keys)

    before, after = total_us(bound, timed), total_us(new, timed)
    if before:
        out.append(
            f"time of the replaced rows: {duration(before)} → {duration(after)} "
            f"({signed_percent(after / before - 1)}) {each}"
        )
    if lost := bound.keys() - timed:
        what = f"unknown, because no other kernel is timed in these files; now {duration(total_us(bound, lost))} {each}"
        out.append(f"time of {pluralize(len(lost), 'more row' if timed else 'row')}: {what}")
    return out
