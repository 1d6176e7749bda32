"""Calls that no override serves although a row exists whose key differs in one field only.

What is seen: a row of an override file of the run and a call of the run have keys that differ in one field.  Why it
costs time: every library looks a call up by an exact key, so a leading dimension that a view made larger, a batch size,
a bias, a layout or a type makes it run untuned, silently.

Each library has a key of its own, and only the fields of that key are compared:

* TunableOp: transposes, m, n, k, batch count, leading dimensions, types, compute type, bias
  (``formats/tunableop/signature.py``; PyTorch ``GemmCommon.h``, ``Signature``).
* hipBLASLt's tuning file: transposes, m, n, k, batch count, types of a, b and c, compute type, and nothing else
  (``formats/hipblaslt/tuning_file.py``; ``UserDrivenTuningParser.cpp``).
* MIOpen's user find-db: everything that describes the convolution (``formats/miopen/problem_key.py``).

Fields that follow from another do not count by themselves: a leading dimension without a gap follows from a size, all
types from one.  Two sizes that differ are mostly two problems: they are a near miss only within 2 %, which is what
padding does (50257 and 50304).  A convolution's number of images may differ by any factor: it is often changed without
tuning again.  Directions are always two problems.

Evidence needed: a row, a call, and every field of the key known on both sides.  What the call would gain is not known:
the row's time is another problem's.  It is ranked last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.stale_override import MIOPEN, TUNABLEOP, TUNING_FILE, override_sources
from analyzers.times.cells import count_of
from analyzers.times.joins import calls_by_problem
from analyzers.times.neighbours import matrices
from logparse.model import ConvProblem, Evidence, Finding, GemmProblem, Problem, problem_from_text

NAME = "near-miss"
CLOSE = 0.02
"""Sizes that differ by less than this share may be one size and its padding."""
MOST_ROWS = 20_000
"""Above this many rows a file is a shipped database, of which no row was made for a certain call."""
_GEMM = ("trans_a", "trans_b", "m", "n", "k", "batch_count", "a_type", "b_type", "c_type", "compute_type")
_CONV_SIZES = ("c", "d", "h", "w", "k", "filter_d", "filter_h", "filter_w")
_CONV = (
    *("direction", "spatial", "n", *_CONV_SIZES, "pad_d", "pad_h", "pad_w", "stride_d", "stride_h", "stride_w"),
    *(
        "dilation_d",
        "dilation_h",
        "dilation_w",
        "groups",
        "in_type",
        "in_layout",
        "weights_layout",
        "out_layout",
        "bias",
    ),
)
KEYS: Mapping[str, tuple[str, ...]] = {
    TUNABLEOP: (*_GEMM, "lda", "ldb", "ldc", "bias"),
    TUNING_FILE: _GEMM,
    **dict.fromkeys(MIOPEN, _CONV),
}
"""The fields by which a library matches, by the format of its override file."""
_ONE: Mapping[str, str] = {
    **dict.fromkeys(("a_type", "b_type", "c_type", "in_type", "compute_type"), "type"),
    **dict.fromkeys(("in_layout", "weights_layout", "out_layout"), "layout"),
    **dict.fromkeys(("trans_a", "trans_b"), "transposes"),
}
"""Fields that change together, and the word for them."""
_SIZES = frozenset({"m", "n", "k", *_CONV_SIZES})
_NEVER = frozenset({"direction", "spatial"})


@dataclass(frozen=True)
class Row:
    """A row of an override file."""

    file: str
    source_id: str
    problem: Problem
    key_text: str | None


@dataclass(frozen=True)
class Difference:
    """The only thing in which a call's key differs from a row's."""

    what: str
    of_row: str
    of_call: str


def difference(row: Problem, call: Problem, format_: str) -> Difference | None:
    """The one thing that keeps a row from serving a call, in the terms of the format's key.

    None where nothing or more than one thing differs, where it makes them plainly two problems, or where the call's log
    does not contain a field of the row's key.
    """
    mine, theirs = _cells(row, format_), _cells(call, format_)
    if not mine.keys() <= theirs.keys():
        return None
    differ: dict[str, list[str]] = {}
    for name, value in mine.items():
        if theirs[name] != value:
            differ.setdefault(_ONE.get(name, name), []).append(name)
    if len(differ) != 1:
        return None
    [(what, names)] = differ.items()
    size = names[0] in _SIZES and not (names == ["n"] and isinstance(row, ConvProblem))
    if names[0] in _NEVER or (size and not _close(mine[names[0]], theirs[names[0]])):
        return None
    return Difference(what, *(",".join(str(x[name]) for name in names) for x in (mine, theirs)))


def _close(one: object, other: object) -> bool:
    if not isinstance(one, int) or not isinstance(other, int):
        return False
    return abs(one - other) <= CLOSE * max(one, other)


def _cells(problem: Problem, format_: str) -> dict[str, object]:
    """The fields of the key that are known; a leading dimension without a gap is ``tight``.

    What a row leaves open (leading dimensions before PyTorch 2.7) is no part of its key.
    """
    out: dict[str, object] = {}
    normal = problem.normal
    for name in KEYS[format_]:
        value = getattr(normal, name, None)
        if isinstance(normal, GemmProblem) and name.startswith("ld"):
            size = getattr(normal, matrices(normal)[name[2:]][0])
            if name == "ldc" and value is None:
                value = normal.ldd  # dropped at beta 0, and the libraries give C the leading dimension of D
            value = None if value is None or size is None else "tight" if value == size else value
        elif name == "c_type" and value is None and isinstance(normal, GemmProblem):
            value = normal.d_type
        if value is not None:
            out[name] = value.replace("_fnuz", "") if isinstance(value, str) else value
    return out


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per call that no row of a format serves and that one row nearly serves."""
    calls, out = calls_by_problem(tables.workload), []
    for format_, rows in _rows(tables):
        kind = "conv" if format_ in MIOPEN else "gemm"
        wanted = tables.workload.loc[tables.workload["kind"] == kind, "problem"].drop_duplicates()
        known = {x.problem.text for x in rows}
        links = tables.links[tables.links["problem"].isin(wanted) & tables.links["other"].isin(known)]
        served = known | set(links["problem"])
        book = _Book(rows, format_)
        for text in sorted(set(wanted) - served):
            problem = problem_from_text(text)
            found = book.nearest(problem)
            if found is not None:
                count = calls.get(text)
                out.append(_finding(problem, *found, count_of(count)))
    return out


def _rows(tables: Tables) -> Iterator[tuple[str, list[Row]]]:
    """The rows of the run's override files, by format; rows of one problem count once."""
    sources = override_sources(tables)
    for format_, own in sources.groupby("format"):
        rows = tables.measurements[tables.measurements["source_id"].isin(own["source_id"])]
        rows = rows[rows["status"].isin(["ok", "no_time"])].sort_values(["source_id", "problem", "ordinal"])
        rows = rows.drop_duplicates("problem")
        if 0 < len(rows) <= MOST_ROWS:
            paths = dict(zip(own["source_id"], own["path"].str.rpartition("/")[2], strict=True))
            columns = (rows["source_id"], rows["problem"], rows["key_text"])
            yield (
                str(format_),
                [
                    Row(str(paths[source]), str(source), problem_from_text(text), key if isinstance(key, str) else None)
                    for source, text, key in zip(*columns, strict=True)
                ],
            )


class _Book:
    """Rows by their key with each one thing left out: those that a call's key meets differ from it in that thing."""

    def __init__(self, rows: Sequence[Row], format_: str) -> None:
        self._format = format_
        self._rows: dict[tuple[object, ...], list[Row]] = {}
        self._known: set[tuple[str, ...]] = set()
        for row in rows:
            cells = _cells(row.problem, format_)
            self._known.add(tuple(cells))
            for key in _keys(cells):
                self._rows.setdefault(key, []).append(row)

    def nearest(self, problem: Problem) -> tuple[Row, Difference] | None:
        """The row that differs from a call in one thing; of several one whose sizes are the same."""
        cells = _cells(problem, self._format)
        complete = [names for names in self._known if cells.keys() >= set(names)]
        keys = [key for names in complete for key in _keys({name: cells[name] for name in names})]
        found = []
        for key in keys:
            for row in self._rows.get(key, ()):
                one = difference(row.problem, problem, self._format)
                if one is not None:
                    found.append((one.what in _SIZES, one.what, row.problem.text, row, one))
        if not found:
            return None
        *_, row, one = min(found, key=lambda x: x[:3])
        return row, one


def _keys(cells: Mapping[str, object]) -> Iterator[tuple[object, ...]]:
    """The key once for each thing that is left out of it."""
    things: dict[str, list[object]] = {}
    for name, value in cells.items():
        things.setdefault(_ONE.get(name, name), []).append(value)
    for left_out in things:
        if left_out not in _NEVER:
            yield (left_out, *((what, *values) for what, values in things.items() if what != left_out))


def _finding(problem: Problem, row: Row, one: Difference, calls: int | None) -> Finding:
    return Finding(
        analyzer=NAME,
        problem=problem,
        message=(
            f"{row.file} has a row for this but for one thing: {one.what} is {one.of_row} in the row and {one.of_call} "
            "in the call, which therefore runs untuned; what it would gain is not measured"
        ),
        calls=calls,
        evidence=Evidence(
            source_id=row.source_id,
            details={
                "row": row.problem.text,
                "key_text": row.key_text,
                "field": one.what,
                "of_row": one.of_row,
                "of_call": one.of_call,
            },
        ),
        advice="Tune this problem too, or give the program the shape that was tuned.",
    )


ANALYZER = Analyzer(name=NAME, about="calls that miss an override by one field of its key", find=find)
