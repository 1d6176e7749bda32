"""Fixture with a process that starts jobs in which logparse's observer runs, the code that traces a user's job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.capture.in_job.observed import Server


@pytest.fixture(scope="session")
def job_server() -> Iterator[Server]:
    """Return a process that has imported torch and starts jobs by forking.

    A new process for each job would need 4 s to import torch.
    """
    pytest.importorskip("torch")
    server = Server()
    yield server
    server.close()
