"""Fixture with the process that starts jobs under logparse's observer, its code in a user's job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.capture.in_job.observed import Server


@pytest.fixture(scope="session")
def job_server() -> Iterator[Server]:
    """Return a process that has imported torch and forks jobs.

    If each job were a process of its own, it would import torch for 4 s.
    """
    pytest.importorskip("torch")
    server = Server()
    yield server
    server.close()
