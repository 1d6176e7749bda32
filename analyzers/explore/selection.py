"""The user's selection on the web page: filters, tab, and a GEMM or convolution. Charts, table and URL share it.

A selection has allowed values for some columns, an interval for some numbers, a search text and one GEMM or
convolution. It can be written as a query string (``?view=roofline&direction=W&intensity=1..64``) and as a WHERE clause
with parameters. When a query string is read, unknown names and values are dropped, because anybody may have written the
string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, urlencode

from analyzers.explore.plain_text import solution_name
from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.libraries.miopen.find_db_choice import SLOW_FACTOR
from logparse.text import duration

FACETS: Mapping[str, str] = {
    "operation": "Operation",
    "direction": "Direction",
    "dtype": "Input type",
    "library": "Library",
    "calls_from": "Log category",
    "origin": "Measured by",
    "layout": "Layout",
    "solver": "Fastest solution",
    "file": "File",
}
"""Columns by which the user can filter the GEMMs and convolutions by choosing values, with their titles."""

_NONE = "–"  # Value of a facet for problems that have no value.
_MEANING_NONE = {"direction": "none (GEMM)", "calls_from": "no log", "file": "no file"}


_DIRECTIONS = {"F": "forward", "B": "dgrad", "W": "wgrad"}
"""Names of the directions (passes) of a convolution."""
SEARCHED: Mapping[str, str] = {
    **{name.lower(): letter for letter, name in _DIRECTIONS.items()},
    **{letter.lower(): letter for letter in _DIRECTIONS},
    "backward data": "B",
    "backward weights": "W",
}
"""Texts in the search field that find all convolutions of a direction, in lower case."""
MOST_TIMES = 1e6
"""Upper end of a filter on a ratio of times that has no upper end. A browser cannot read infinity in a URL."""


def facet_text(facet: str, value: str, *, whole: bool = False) -> str:
    """Return a value of a filter column as the text that the user sees.

    For example, ``B`` in the column ``direction`` becomes ``B (dgrad)``. The name of a kernel is shortened, except with
    ``whole``.
    """
    if not value.strip("?"):
        return "unknown"
    if value == _NONE:
        return _MEANING_NONE.get(facet, value)
    if facet == "direction":
        return f"{value} ({_DIRECTIONS[value]})" if value in _DIRECTIONS else value
    return value if whole or facet != "solver" else solution_name(value)


NUMBERS: Mapping[str, str] = {
    "intensity": "intensity",
    "tflops": "TFLOP/s",
    "best_us": "best time",
    "sibling_us": "F or B time",
    "w_us": "W time",
    "sibling_ratio": "W ÷ max(F, B)",
    "regret": "regret",
    "here_us": "time in the later run",
    "other_us": "time in the earlier run",
}
"""Columns whose numbers the user can limit to an interval, with their titles."""


def interval_words(name: str, low: float, high: float) -> str:
    """Return a filter on a number as the text that the user sees, such as ``W ÷ max(F, B): 3 or more``."""
    ends = [duration(x) if name.endswith("_us") else f"{x:.4g}" for x in (low, high)]
    return f"{NUMBERS[name]}: {f'{ends[0]} or more' if high >= MOST_TIMES else ' to '.join(ends)}"


VIEWS: Mapping[str, str] = {
    "overview": "Overview",
    "timeline": "Timeline",
    "roofline": "Roofline",
    "regret": "Regret",
    "weights": "Backward weights",
    "compare": "Compare",
}
INTRO: Mapping[str, str] = {
    "overview": "",  # Its parts explain themselves, and the first rows should be on the first screen.
    "timeline": "One step as the GPU ran it (the whole trace, if it marks no steps): a line per stream, the idle "
    "time with its reason, and what the host does in this time. The text below the chart says when the host launched "
    "the work. Drag to zoom, double-click to see all. The table below sums the kernels.",
    "roofline": "How fast each problem runs against what the device allows; larger marks take more time, and the "
    "colour is the time to gain. Drag a box to select, click to open.",
    "regret": (
        "How much time the library's choices lose against the fastest known solutions, and how few override rows "
        "give most of this time back."
    ),
    "weights": "The backward-weight pass (W) of each layer against the slower of its forward pass (F) and backward "
    "data (B), which do the same work; larger marks take more time. W is called slow if it takes more than "
    f"{SLOW_FACTOR:g} × the slower of F and B. The table has the layers that lose most first: calls × (W − max(F, B)). "
    "≈: an estimate, because nobody knows whether W has a solver as fast as F or B. Each row names the file of its "
    "times.",
    "compare": "What changed from the earlier run to the later one, problem by problem, as in logparse diff. Two times "
    "are compared only if files of one kind have them (two traces, two bench outputs). Only changes beyond noise "
    "count.",
}
_LONGEST = 400  # Most characters of a value that is taken from a URL.
_LONGEST_TABLE = 8_000


@dataclass(frozen=True)
class Selection:
    """The user's selection on the web page. The object is immutable: every change returns a new selection."""

    view: str = "overview"
    run: str = ""
    """Name of the shown run. ``compare`` is the name of the run to compare with.

    An empty name means the run with which the web page started.
    """
    compare: str = ""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    between: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    search: str = ""
    mark: str = ""
    """The kind of work that the timeline marks, such as ``communication``. It is no filter."""
    problem: str = ""
    """The ``id`` of the GEMM or convolution whose details are shown. It is no filter."""
    todo: str = ""
    """Name of a thing to do. If it is set, only the GEMMs and convolutions that it concerns are shown."""
    table: str = ""
    """The order and filters that the user chose in the table itself, as JSON. Charts ignore them."""

    def toggled(self, facet: str, value: str) -> Selection:
        """Return a copy of the user's selection with one filter value switched on, or off if it was on.

        ``facet`` is the name of the filtered column.
        """
        if facet not in FACETS:
            return self
        old = self.values.get(facet, ())
        new = tuple(x for x in old if x != value) if value in old else (*old, value)
        return replace(self, values={name: chosen for name, chosen in {**self.values, facet: new}.items() if chosen})

    def limited(self, intervals: Mapping[str, tuple[float, float] | None]) -> Selection:
        """Return a copy of the user's selection that only shows rows whose numbers are in the given intervals.

        The keys are names of columns. None in place of an interval removes the limit on that column.
        """
        merged = {**self.between, **{k: v for k, v in intervals.items() if k in NUMBERS}}
        return replace(self, between={k: v for k, v in merged.items() if v is not None})

    def cleared(self) -> Selection:
        """Return a copy of the user's selection without filters. The tab and the runs stay the same."""
        return Selection(view=self.view, run=self.run, compare=self.compare)

    def on_tab(self, view: str) -> Selection:
        """Return the user's selection for another tab.

        A comparison shows all problems. So a link to the tab or away from it leaves out the filters that a click in a
        chart, a card or a remark has set. What the user chose in the lists of filters, and the search, are kept.
        """
        if view != self.view and "compare" in (view, self.view):
            return replace(self, view=view, between={}, todo="", mark="")
        return replace(self, view=view)

    @property
    def filters(self) -> bool:
        return bool(self.values or self.between or self.search or self.todo)

    def url(self) -> str:
        """Return the user's selection as the query string of a URL, like ``?view=regret``."""
        pairs: list[tuple[str, str]] = [("view", self.view)]
        pairs += [(name, value) for name, value in (("run", self.run), ("compare", self.compare)) if value]
        pairs += [(facet, value) for facet in FACETS for value in self.values.get(facet, ())]
        intervals = ((name, self.between[name]) for name in NUMBERS if name in self.between)
        pairs += [(name, f"{low:.12g}..{high:.12g}") for name, (low, high) in intervals]
        names = ("todo", "search", "mark", "problem", "table")
        texts = ((name, str(getattr(self, name))) for name in names)
        pairs += [(name, value) for name, value in texts if value]
        return "?" + urlencode(pairs)

    def where(self) -> tuple[str, list[object]]:
        """Return the filters as an SQL condition over the table ``points``, and the condition's parameters."""
        parts, parameters = ["true"], list[object]()
        for facet, chosen in self.values.items():
            parts.append(f"{facet} in ({', '.join('?' * len(chosen))})")
            parameters += chosen
        for name, (low, high) in self.between.items():
            parts.append(f"{name} between ? and ?")
            parameters += [low, high]
        if self.todo:
            parts.append("list_contains(todos, ?)")
            parameters.append(self.todo)
        if self.search.lower() in SEARCHED:  # Every name of a kernel would contain the letter.
            parts.append("direction = ?")
            parameters.append(SEARCHED[self.search.lower()])
        elif self.search:
            # Labels are not ASCII, so converting them to lower case would take longest. The option "l" takes the text
            # literally.
            label = "regexp_matches(label, ?, 'il')"
            parts.append(f"(contains(lower(best), ?) or contains(lower(problem), ?) or {label} or dtype = ?)")
            parameters += [self.search.lower(), self.search.lower(), as_label(self.search), type_name(self.search)]
        return " and ".join(parts), parameters


def from_url(query: str | None) -> Selection:
    """Read a selection from the query string of a URL.

    Never raises. Unknown names and unreadable values are dropped.
    """
    values: dict[str, tuple[str, ...]] = {}
    between: dict[str, tuple[float, float]] = {}
    single = dict.fromkeys(("run", "compare", "todo", "search", "mark", "problem", "table"), "") | {"view": "overview"}
    try:
        pairs = parse_qsl((query or "").lstrip("?"), max_num_fields=200)
    except ValueError:
        pairs = []
    for name, text in pairs:
        value = text[: _LONGEST_TABLE if name == "table" else _LONGEST]
        interval = _interval(value) if name in NUMBERS else None
        if name in FACETS and value not in values.get(name, ()):
            values[name] = (*values.get(name, ()), value)
        elif interval is not None:
            between[name] = interval
        elif name in single:
            single[name] = value
    view = single["view"] if single["view"] in VIEWS else "overview"
    return Selection(
        view=view,
        values=values,
        between=between,
        search=single["search"].strip(),
        **{name: single[name] for name in ("run", "compare", "todo", "mark", "problem", "table")},
    )


_BETWEEN_SIZES = re.compile(r"(?<=\d)[xX*](?=\d)")


def as_label(text: str) -> str:
    """Rewrite sizes that the user typed in the search field, so that they match the table's labels.

    ``4096x12288`` and ``4096*12288`` become ``4096×12288``.
    """
    return _BETWEEN_SIZES.sub("×", text)


TYPE_NAMES: Mapping[str, str] = {x.blas: x.conv for x in TORCH_TYPES if x.conv is not None}
"""Maps the name of a data type in GEMMs to its name in convolutions, for example ``bf16_r`` to ``BF16``."""


def type_name(text: str) -> str:
    """Return the common name of an input type, for example ``BF16`` for ``bf16_r``, ``bf16`` and ``BF16``."""
    return TYPE_NAMES.get(text.lower(), text.upper())


def _interval(text: str) -> tuple[float, float] | None:
    low, dots, high = text.partition("..")
    try:
        ends = float(low), float(high)
    except ValueError:
        return None
    return (min(ends), max(ends)) if dots and not any(math.isnan(x) for x in ends) else None
