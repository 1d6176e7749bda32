"""The places in the program that call a matrix product or convolution, as the fact ``called_from`` holds them.

The module ``stacks`` finds the places in a trace. The fact (one value per problem, JSON)::

    {"others": 0, "places": [{"at": "model.py:9", "function": "attention", "us": 81.2}], "problem": "gemm trans=…"}

* ``at``: the file as the trace names it, and the line in which the function begins.
* ``us``: the time of the problem's kernels that this place caused, µs. The place with the longest time comes first.
* ``others``: the number of further places.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from logparse.model import Fact

FACT = "called_from"
MOST = 3
"""The maximum number of places that a fact lists, and that a sentence names."""


def fact(problem: str, us: Mapping[tuple[str, str], float]) -> Fact:
    """Return the fact about one problem. ``us`` holds the µs of each place, given by ``at`` and the function."""
    order = sorted(us.items(), key=lambda x: (-x[1], x[0]))
    places = [{"at": at, "function": function, "us": round(us, 3)} for (at, function), us in order[:MOST]]
    return Fact(FACT, json.dumps({"others": len(order) - len(places), "places": places, "problem": problem}))


def sentence(values: Iterable[str], problems: Iterable[str]) -> str:
    """Say from where the program calls some problems. Empty if no trace shows it.

    ``values`` are values of the fact, for example of the traces of several ranks. ``problems`` are texts of problems.
    The names of files and functions come from a trace. Show the sentence as text only.
    """
    wanted, total, others = frozenset(problems), dict[tuple[str, str], float](), False
    for value in values:
        try:
            known = json.loads(value)
            if known["problem"] in wanted:
                others = others or known["others"] > 0
                for place in known["places"]:
                    key = str(place["at"]), str(place["function"])
                    total[key] = total.get(key, 0.0) + float(place["us"])
        except (ValueError, TypeError, KeyError):  # another format may state a fact of this name
            continue
    order = sorted(total, key=lambda place: (-total[place], place))
    told = ", ".join(f"{at} ({function})" for at, function in order[:MOST])
    more = " and other places" if others or len(order) > MOST else ""
    return f"called from {told}{more}" if told else ""
