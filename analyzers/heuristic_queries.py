"""Heuristic queries that a process repeats for problems that it has queried before."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.times.cells import count_of
from logparse.model import Evidence, Finding
from logparse.text import counted, duration

NAME = "heuristic-queries"
FUNCTIONS = (
    "rocblaslt_matmul_algo_get_heuristic|rocblaslt_algo_get_heuristic_cpp|hipblasLtMatmulAlgoGetHeuristic"
    "|cublasLt(?:[A-Z]{3})?MatmulAlgoGetHeuristic"
)
"""Functions whose Api line is one query.  cuBLASLt writes an Info line with the answer beside it, and hipBLASLt's
override messages name the public function at other layers: those are no queries.
"""
SECOND_LINE = "final "
"""hipBLASLt logs a query twice; the second line begins so and is not counted."""


def queries(tables: Tables) -> pd.DataFrame:
    """Per process: columns ``pid, queries, problems`` (distinct ones that it launched; 0 where none was logged)."""
    rows = tables.messages
    second = rows["text"].fillna("").astype(str).str.startswith(SECOND_LINE)
    asking = rows["function"].fillna("").astype(str).str.fullmatch(FUNCTIONS)
    rows = rows[(rows["category"] == "api") & asking & ~second]
    asked = rows.groupby("pid", dropna=False)["count"].sum().rename("queries").reset_index()
    gemms = tables.workload[tables.workload["kind"].isin(("gemm", "grouped"))]
    launched = gemms.groupby("pid", dropna=False)["problem"].nunique().rename("problems").reset_index()
    out = asked.astype({"pid": "Float64"}).merge(launched.astype({"pid": "Float64"}), on="pid", how="left")
    return out.fillna({"problems": 0}).sort_values("pid", ignore_index=True)


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """One finding per process that queried more often than it has problems, at ``query_cost_us`` a query."""
    out = []
    for pid, asked, problems in queries(tables).itertuples(index=False):
        if not problems:
            continue  # no launch is logged: nothing to compare the queries with
        extra = int(asked) - int(problems)
        if extra <= 0:
            continue
        who = "a process" if pd.isna(pid) else f"process {int(pid)}"
        message = (
            f"{who} asked the heuristic {int(asked):,} times for {counted(int(problems), 'distinct problem')}; keeping "
            f"the answers would save {extra:,} of them, {duration(extra * settings.query_cost_us)} of host time at "
            f"{settings.query_cost_us:g} µs each"
        )
        out.append(
            Finding(
                analyzer=NAME,
                message=message,
                per_call_us=settings.query_cost_us,
                calls=extra,
                saving_us=extra * settings.query_cost_us,
                evidence=Evidence(
                    details={
                        "pid": count_of(pid),
                        "queries": int(asked),
                        "problems": int(problems),
                        "time": "host",
                        "confidence": 0.3,  # host time only counts where the GPU waits for it
                    }
                ),
                advice="Ask once per problem, keep the algo and pass it to every matmul of that problem.",
            )
        )
    return out


ANALYZER = Analyzer(name=NAME, about="heuristic queries repeated for problems already asked about", find=find)
