"""Find out whether a library searched for the fastest kernel while the job was traced, and how to avoid that.

For example, MIOpen may try many kernels at the first call of a convolution.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzers.evidence.tables import Tables, cached_per_run
from logparse.model import Problem, problem_from_text
from logparse.text import duration, pluralize

FIND = (
    "MIOpen's Find ran within the traced calls. Warm the job up before you trace or time it. Keep the user find-db "
    "that Find wrote (MIOPEN_USER_DB_PATH on a disk that is not erased), so that the next start finds its solvers "
    "there."
)
BENCHMARK = (
    "cuDNN's benchmark mode searched within the traced calls. Warm the job up with every shape before you trace or "
    "time it. Keep the number of shapes small, because every process searches again."
)
TUNING = (
    "TunableOp tuned a matrix product within the traced calls. Tune once, then run the job with "
    "PYTORCH_TUNABLEOP_TUNING=0 and the results file."
)


# The kernels of a search belong to no call and no step. logparse/libraries/torch_profiler/searches.py defines which
# kernels belong to a search.
@dataclass(frozen=True)
class Search:
    """The searches for the fastest kernel of one GEMM or convolution while the job was traced.

    * ``calls``: calls that searched.
    * ``us``: time of all ``kernels`` tried, µs.
    * ``naive_us``: time of the naive (slow) ones, µs.
    """

    problem: Problem
    calls: int
    kernels: int
    us: float
    naive_us: float


@cached_per_run
def searches(tables: Tables) -> tuple[Search, ...]:
    """Return the searches for the fastest kernel that the job's traces contain, the longest first."""
    facts = tables.facts[(tables.facts["run"] == tables.run) & (tables.facts["name"] == "searches")]
    listed = [x for value in facts["value"].dropna() for x in json.loads(value)]
    of: dict[str, list[Mapping[str, float]]] = {}
    for x in listed:
        of.setdefault(x["problem"], []).append(x)
    found = [
        Search(
            problem_from_text(text),
            calls=int(sum(x["calls"] for x in each)),
            kernels=int(sum(x["kernels"] for x in each)),
            us=math.fsum(x["us"] for x in each),
            naive_us=math.fsum(x["naive_us"] for x in each),
        )
        for text, each in of.items()
    ]
    return tuple(sorted(found, key=lambda x: (-x.us, x.problem.text)))


def in_words(found: Sequence[Search]) -> str:
    """Return a sentence for the user about searches for the fastest kernel. It is empty if there were no searches."""
    if not found:
        return ""
    kernels, us = sum(x.kernels for x in found), sum(x.us for x in found)
    calls = pluralize(sum(x.calls for x in found), "first call")
    return (
        f"{calls} searched for a solver, with {pluralize(kernels, 'kernel')} that took {duration(us)}, mostly for "
        f"{found[0].problem.label}; warm up before the trace begins, and keep the results of the search"
    )
