"""Tell what MIOpen's log says of kernels that MIOpen chose without timing them (immediate mode, estimates).

Such a run has no time to compare, but it is not empty. The choices and the naive kernels among them are known.
"""

from __future__ import annotations

from analyzers.evidence.origins import CHOSEN
from analyzers.evidence.tables import Tables
from logparse.text import pluralize

_NAMED = r"(?:^solver_id = (?P<ran>\S+), workspace = |Chosen Algorithm: (?P<found>\S+) ,)"
"""A line of MIOpen's log that names a kernel (see ``libraries/miopen/log.py``).

It is a message only if no line before it names the convolution.
"""
_LOST = r"Solver <[^>]+>, workspace required: \d+, provided"
_NAIVE = "ConvDirectNaiveConv"


def untimed_choices(tables: Tables) -> str:
    """Return a clause about the kernels that MIOpen chose for a run and that no file of the run times.

    It is empty without such kernels. If the log does not name the convolutions, the clause says how to get their names.
    """
    rows = tables.measurements[tables.measurements["run"] == tables.run]
    chosen = rows["origin"] == CHOSEN
    timed = rows.loc[rows["time_us"].notna(), "problem"]
    without = rows.loc[chosen & ~rows["problem"].isin(timed), "problem"].nunique()
    if without:
        return f"MIOpen chose the kernels of {pluralize(without, 'problem')} without timing any"
    return "" if chosen.any() else _unnamed(tables)


def _unnamed(tables: Tables) -> str:
    messages = tables.messages[tables.messages["category"].isin(["miopen_info", "miopen_warning"])]
    text, count = messages["text"].astype("str"), messages["count"]
    named = text.str.extract(_NAMED)
    solver = named["ran"].fillna(named["found"])
    many, naive = (int(count[which].sum()) for which in (solver.notna(), solver.str.startswith(_NAIVE, na=False)))
    lost = int(count[text.str.contains(_LOST)].sum())
    found = [f"names {pluralize(many, 'choice')} of a kernel"] if many else []
    found += [f"{naive:,} of them slow naive kernels"] if naive else []
    found += [f"{'' if many else 'has '}{pluralize(lost, 'warning')} of too little workspace"] if lost else []
    if not found:
        return ""
    return (
        f"MIOpen's log {', '.join(found)}, but does not name the convolutions: run the job with "
        "MIOPEN_ENABLE_LOGGING_CMD=1, as `logparse capture` does"
    )
