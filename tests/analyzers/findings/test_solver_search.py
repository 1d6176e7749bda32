"""Tests that logparse notices if a job was still searching for the fastest convolution solvers in its trace."""

from __future__ import annotations

import json

from analyzers.evidence.tables import Settings, Tables
from analyzers.findings import solver_search
from analyzers.job.searches import FIND, TUNING
from tests.analyzers.build import facts, tables
from tests.analyzers.example import W, gemm


def searched(problem: str, source: str = "trace", **more: str) -> Tables:
    found = json.dumps([{"problem": problem, "calls": 1, "kernels": 5, "us": 2e6, "naive_us": 1.5e6}])
    return tables(facts=facts(source, searches=found, **more))


def planted() -> Tables:
    return searched(W.text)


def test_its_cost_and_its_remedy() -> None:
    [found] = solver_search.find(planted(), Settings())
    assert found.message.startswith(
        "1 first call in the traces searched for the fastest solver (kernel): 5 kernels took 2 s, including 1.5 s in "
        "naive solvers"
    )
    assert (found.problem, found.saving_us, found.advice) == (None, None, FIND)


def test_products_are_tuned() -> None:
    [found] = solver_search.find(searched(gemm(1).text), Settings())
    assert found.advice == TUNING
