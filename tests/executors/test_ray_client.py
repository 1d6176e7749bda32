"""Tests of ``--engine ray://HOST:PORT``, by which a program outside of a Ray cluster connects to it."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logparse.ingest import ingest
from logparse.store import open_store
from tests.conftest import ROOT, sized, start_cluster
from tests.ingest.test_ingest import bench, counts

CONTRACT = (
    "tests/executors/test_executors.py",
    "tests/executors/test_ingest_on_ray.py::test_a_file_that_fails_fails_alone",
    "tests/analyzers/replay/test_replay_on_ray.py::test_a_cluster_gives_the_same_findings",
    "tests/analyzers/replay/test_replay_on_ray.py::test_interrupt_keeps_what_was_measured_and_ends_the_actors",
)

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a server for Ray clients on the tests' cluster, and return its address.

    ``ray start --head`` would open port 10001. Here a port is taken that nothing else uses.
    """
    import ray

    start_cluster()
    port = next(port for port in random.sample(range(20_000, 30_000), 99) if _is_free(port))
    module = ("-m", "ray.util.client.server", "--mode", "legacy", "--host", "127.0.0.1", "--port", str(port))
    command = [sys.executable, *module, "--address", ray.get_runtime_context().gcs_address]
    with subprocess.Popen(command, cwd=ROOT, stdout=-3, stderr=-3) as server:
        deadline = time.monotonic() + 300
        while _is_free(port) and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not _is_free(port), "Ray's server did not open its port"
        yield f"ray://127.0.0.1:{port}"
        server.kill()


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | variables
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, env=env)


@pytest.mark.nightly
def test_the_command_ingests_through_a_client(address: str, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"hipblaslt_{number}.log").write_text(bench(64, 32))
    command = [sys.executable, "-m", "logparse", "ingest", "--engine", address, "--store", str(tmp_path / "s")]
    for state in ("new", "unchanged")[: sized(1, 2)]:  # each run has a process of its own at the port, and workers
        done = run([*command, str(tmp_path / "*.log")], COLUMNS="300")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(f" {state} ") == 3
    store = open_store(tmp_path / "s")
    assert counts(store) == {64: 3, 32: 3}
    assert [x.state for x in ingest([str(tmp_path / "*.log")], store)] == ["unchanged"] * 3


@pytest.mark.nightly
def test_everything_works_through_a_ray_client(address: str) -> None:
    """The tests in ``CONTRACT`` also pass if the program connects to the cluster through Ray's client port.

    They cover results, failures, dying processes, cancelled tasks, reading parts of files, and measuring kernels.
    """
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-k", "not local", "-x"]
    command = [sys.executable, "-m", "pytest", *options, *CONTRACT]
    done = run(command, RAY_ADDRESS=address)
    assert done.returncode == 0, done.stdout[-4000:]
