"""Fixtures of the tests against the real ROCm libraries.

At the end of a test run, a table of all comparisons between the libraries and logparse is printed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import report
from tests.conformance.rocm import Rocm

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Rocm:
    """Return the real ROCm libraries. They are in ``build/rocm``, or in the folder that ``ROCM_LIBRARIES`` names."""
    folder = Path(os.environ.get("ROCM_LIBRARIES") or ROOT / "build/rocm")
    return Rocm.installed(folder, tmp_path_factory.mktemp("python") / "rocm")


@pytest.fixture(autouse=True)
def other_versions(rocm: Rocm, request: pytest.FixtureRequest) -> None:
    """Let a test fail without consequences if the libraries have other versions than the tests were written for.

    Differences are then only reported.
    """
    others = rocm.others()
    if others:
        request.applymarker(pytest.mark.xfail(reason=f"written against other libraries: {others}"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send this worker's rows of the comparison table to pytest's main process, which prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["table"] = [list(vars(row).values()) for row in report.TABLE]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    report.TABLE.extend(report.Comparison(*row) for row in getattr(node, "workeroutput", {}).get("table", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if report.TABLE:
        terminalreporter.section("real reader against ours")
        for line in report.lines():
            terminalreporter.write_line(line)
