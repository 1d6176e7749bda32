"""Find time that a library spent searching for its fastest kernel while the job was traced.

Such searches are MIOpen's Find, cuDNN's benchmark mode and TunableOp's tuning. The first call of each shape runs all
kernels, also slow ones. The time of the search is not part of the call or of the step
(``logparse/libraries/torch_profiler/searches.py``). Every start of the job searches again unless the result is kept. No
saving is stated, because the search is not part of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from analyzers.job.searches import BENCHMARK, FIND, TUNING, searches
from logparse.model import Advise, ConvProblem, Evidence, Finding
from logparse.text import duration, pluralize

NAME = "solver-search"
_SHOWN = 3


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Return one finding if the job's traces show that a library searched for its fastest kernel."""
    found = searches(tables)
    if not found:
        return []
    us, naive = sum(x.us for x in found), sum(x.naive_us for x in found)
    shown = "; ".join(f"{x.problem.label} {duration(x.us)}" for x in found[:_SHOWN])
    more = f"; {pluralize(len(found) - _SHOWN, 'more shape')}" if len(found) > _SHOWN else ""
    of_naive = f", including {duration(naive)} in naive solvers (slow, but they run every call)" if naive else ""
    return [
        Finding(
            analyzer=NAME,
            message=(
                f"{pluralize(sum(x.calls for x in found), 'first call')} in the traces searched for the fastest solver "
                f"(kernel): {pluralize(sum(x.kernels for x in found), 'kernel')} took {duration(us)}{of_naive} "
                f"({shown}{more}). The times of calls and steps do not include this search. But if the results of the "
                "search are not kept, the library searches again at each start of the job"
            ),
            evidence=Evidence(details={"search_us": us}),
            remedy=Advise(
                "keep the results of the search",
                "warm up before the trace begins, or load a file with the search's results",
            ),
            advice=_advice(tables, isinstance(found[0].problem, ConvProblem)),
        )
    ]


def _advice(tables: Tables, conv: bool) -> str:
    facts = tables.facts[tables.facts["run"] == tables.run]
    cuda = facts.loc[facts["name"] == "backend", "value"].eq("CUDA").any()
    return TUNING if not conv else BENCHMARK if cuda else FIND


ANALYZER = Analyzer(
    name=NAME,
    about="a search for solvers that ran while the job was traced (MIOpen's Find, cuDNN's benchmark mode, TunableOp)",
    worth=(
        "no saving per step, because the search is not part of a step; but each start of the job spends the time "
        "of the search"
    ),
    find=find,
    place=4,
)
