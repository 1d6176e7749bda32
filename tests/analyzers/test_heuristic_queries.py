from __future__ import annotations

from analyzers import heuristic_queries
from analyzers.analyzer import Settings, Tables
from tests.analyzers.build import tables, work
from tests.analyzers.example import W, gemm


def asked(count: int, pid: int | None = 1, function: str = "rocblaslt_matmul_algo_get_heuristic", **more: object):  # type: ignore[no-untyped-def]
    row = {"source_id": "log", "run": "r", "category": "api", "function": function, "text": "returnAlogCount=1"}
    return row | {"pid": pid, "count": count} | more


def planted() -> Tables:
    """A process that asked 100 times for two problems, one that asked once for each, and one without launches."""
    return tables(
        messages=[
            asked(100),
            asked(100, text="final returnAlogCount=1"),
            asked(9, function="rocblaslt_matmul_desc_create"),
            asked(50, category="info", function="cublasLtMatmulAlgoGetHeuristic"),
            asked(2, pid=2, function="cublasLtMatmulAlgoGetHeuristic"),
            asked(7, pid=3),
        ],
        workload=[
            work(gemm(1).text, 500),
            work(gemm(2).text, 5),
            work(W.text, 5),
            work(gemm(1).text, 500, pid=2),
            work(gemm(2).text, 500, pid=2),
        ],
    )


def test_repeated_queries() -> None:
    [found] = heuristic_queries.find(planted(), Settings(query_cost_us=20.0))
    # Process 2 asked once per problem; of process 3 no launch is known.
    assert (found.calls, found.saving_us) == (98, 1960.0)
    assert found.evidence["pid"] == 1
    assert found.evidence["problems"] == 2


def test_process_unknown() -> None:
    t = tables(messages=[asked(10, pid=None)], workload=[work(gemm().text, 500, pid=None)])
    [found] = heuristic_queries.find(t, Settings())
    assert (found.calls, found.evidence["pid"]) == (9, None)
