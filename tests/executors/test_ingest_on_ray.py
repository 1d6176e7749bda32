"""Tests of reading logs on a Ray cluster: the result is the same as without Ray, whichever process dies meanwhile."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logparse.errors import StoreError
from logparse.executors.executor import Executor, Resources
from logparse.executors.local import LocalExecutor
from logparse.ingest import ingest
from logparse.ingest.render import answer
from logparse.store import Store, open_store
from tests.conftest import ROOT, SAMPLES, sized
from tests.executors.processes import processes
from tests.ingest.test_ingest import BENCH, TRACE, bench, counts
from tests.libraries.reading import check_conservation
from tests.store.contents import OF_THE_MOMENT, contents
from tests.test_location import address, options, s3  # noqa: F401 - fixtures
from tests.waiting import wait_until


def test_the_views_are_equal_whoever_reads(tmp_path: Path, on_ray: Executor) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(3):
        text = bench(*range(number, number + 9)) + "a foreign line\n" + TRACE.format(s=number, pid=1)
        (logs / f"log_{number}.log").write_text(text)
    paths = [str(logs), str(SAMPLES / "hipblaslt"), str(SAMPLES / "tunableop")]
    seen = []
    for name, executor in (("alone", LocalExecutor(1)), ("ray", on_ray)):
        store = open_store(tmp_path / name, create=True)
        results = ingest(paths, store, run="r", executor=executor)
        assert {result.state for result in results} == {"new"}
        check_conservation(store)
        assert {x.state for x in ingest(paths, store, run="r", executor=executor)} == {"unchanged"}
        seen.append((contents(store, OF_THE_MOMENT), [(x.path, x.lines, x.calls, x.units) for x in results]))
    assert seen[0] == seen[1]


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(tmp_path: Path, on_ray: Executor) -> None:
    for number in range(4):
        (tmp_path / f"log_{number}.log").write_text("".join(BENCH.format(m=m, i=m) + "\n" for m in range(1, 4000)))
    store = open_store(tmp_path / "s", create=True)
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        while not done.is_set() and len(killed) < 2:
            killed.extend(_kill_one(killed))
            done.wait(0.1)

    killer = threading.Thread(target=kill)
    killer.start()
    results = ingest([str(tmp_path / "log_*.log")], store, executor=on_ray)
    done.set()
    killer.join()
    assert killed, "a worker was at it"
    assert {result.state for result in results} <= {"new", "unchanged"}, "unchanged: killed after its commit"
    assert counts(store) == dict.fromkeys(range(1, 4000), 4)
    store.sweep(older_than_s=0)
    assert counts(store) == dict.fromkeys(range(1, 4000), 4)


def _kill_one(but: list[int]) -> list[int]:
    """Kill one of Ray's processes that work for logparse, except for those in ``but``. Returns its id in a list."""
    for pid in processes(b"ray::_run"):
        if pid not in but:
            os.kill(pid, signal.SIGKILL)
            return [pid]
    return []


def committed(path: Path) -> int:
    """Return the number of log files that have been read completely.

    The data of a file are written first, and then the file is marked as complete.
    """
    with contextlib.suppress(StoreError):
        return len(open_store(path).sources())
    return 0


def test_a_file_that_no_node_can_read_is_named(
    tmp_path: Path, on_ray: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no node of the cluster has enough cores to read a file, ``ingest`` names the file and ends."""
    # Ray would keep the task for ever, and an earlier version waited for it. If ingest is run again, it reads the file.
    monkeypatch.setattr("logparse.executors.ray._NODE_SECONDS", 0.5)
    for number in range(3):
        (tmp_path / f"log_{number}.log").write_text(bench(number + 1))
    nodes = [[64, 2], [64, 2], [2]]  # the cores of the nodes at each request; one node dies

    def alive() -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": x}} for x in (nodes.pop(0) if len(nodes) > 1 else nodes[0])]

    def needed(task: Any) -> Resources:
        return Resources(cpus=64 if task.path.endswith("log_1.log") else 1)

    store = open_store(tmp_path / "s", create=True)
    with monkeypatch.context() as patch:
        patch.setattr(on_ray, "_ray", _Ray(on_ray._ray, alive))  # type: ignore[attr-defined]
        patch.setattr("logparse.ingest.all_inputs.resources", needed)
        results = ingest([str(tmp_path / "*.log")], store, executor=on_ray)
    assert [x.state for x in results] == ["new", "failed", "new"]
    assert (
        results[1].error
        == f"{tmp_path}/log_1.log: the cluster's node that read this file died, and no other node was free within 0.5 s"
    )
    done = answer(results)
    assert (done.code, list(done.errors)) == (1, [f"error: {results[1].error}"])
    assert [x.state for x in ingest([str(tmp_path / "*.log")], store, executor=on_ray)] == [
        "unchanged",
        "new",
        "unchanged",
    ]
    assert counts(store) == {1: 1, 2: 1, 3: 1}


class _Ray:
    """The module ``ray`` with a made-up list of nodes."""

    def __init__(self, ray: Any, nodes: Callable[[], object]) -> None:
        self._ray, self.nodes = ray, nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ray, name)


@pytest.mark.nightly
@pytest.mark.skipif(bool(os.environ.get("RAY_ADDRESS")), reason="a cluster of its own is killed")
def test_files_of_a_dead_node_are_read_by_another(tmp_path: Path) -> None:
    """If a node of the cluster dies, another node reads its log files. If there is no other node, these files fail.

    The test runs in a process of its own, because a process can be connected to only one cluster.
    """
    for number in range(8):
        (tmp_path / f"log_{number}.log").write_text("".join(BENCH.format(m=m, i=m) + "\n" for m in range(1, 4000)))
    script = tmp_path / "dying.py"
    script.write_text(_DYING.format(folder=str(tmp_path)))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    for more, states in (("1", {"new"}), ("0", {"failed"})):
        out = subprocess.run(
            [sys.executable, str(script), more], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
        )
        found = re.findall(r"^log_\d\.log (\w+) (.*)$", out.stdout, re.MULTILINE)
        assert len(found) == 8, out.stderr[-2000:]
        assert {state for state, _ in found} - {"new", "unchanged"} == states - {"new"}
        assert all("no other node of the cluster was free" in error for state, error in found if state == "failed")
    store = open_store(tmp_path / "s0")
    assert {x.state for x in ingest([str(tmp_path / "log_*.log")], store)} <= {"new", "unchanged"}
    assert counts(store) == dict.fromkeys(range(1, 4000), 8)


_DYING = """
import sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
import logparse.executors.ray
from logparse.ingest import ingest
from logparse.store import open_store

logparse.executors.ray._NODE_SECONDS = 3.0
cores = int(sys.argv[1])
options = {{"include_dashboard": False, "object_store_memory": 128 << 20}}
cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": cores, **options}})
node = cluster.add_node(num_cpus=2, object_store_memory=128 << 20)
ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
nodes = [node]

def kill(path, count):
    if nodes:
        cluster.remove_node(nodes.pop(), allow_graceful=False)

store = open_store(f"{folder}/s{{cores}}", create=True)
for x in ingest(["{folder}/log_*.log"], store, executor=logparse.executors.ray.RayExecutor(), progress=kill):
    print("\\n" + Path(x.path).name, x.state, x.error, flush=True)
"""


@pytest.mark.nightly
def test_a_file_that_fails_fails_alone(on_ray: Executor, store: Store, tmp_path: Path) -> None:
    damaged = bytearray(gzip.compress(bench(*range(64)).encode()))
    damaged[-8] ^= 0xFF  # byte of the checksum
    (tmp_path / "damaged.log.gz").write_bytes(damaged)
    (tmp_path / "good.log").write_text(bench(64))
    results = ingest([str(tmp_path / "*.log*")], store, executor=on_ray)
    assert {Path(x.path).name: x.state for x in results} == {"damaged.log.gz": "failed", "good.log": "new"}
    assert "damaged.log.gz" in results[0].error
    assert counts(store) == {64: 1}


def test_logs_and_store_in_a_bucket(s3: Any, options: str, on_ray: Executor) -> None:  # noqa: F811
    files = sized(2, 5)
    for number in range(files):
        s3.put_object(Bucket="logs", Key=f"run-17/host{number}/hipblaslt_{number}.log", Body=bench(64, 32).encode())
    store = open_store(f"s3://logs/store{options}", create=True)
    url = f"s3://logs/run-17/**/hipblaslt_*.log{options}"
    assert [x.state for x in ingest([url], store, executor=on_ray)] == ["new"] * files
    assert [x.state for x in ingest([url], store, executor=on_ray)] == ["unchanged"] * files
    assert counts(store) == {64: files, 32: files}


@pytest.mark.nightly
def test_a_killed_ingest_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If ``ingest`` is killed, everything that it stored remains valid, and a repeat reads the remaining files.

    The command finds no cluster, so it starts one. This cluster ends when the command is killed.
    """
    files, problems = 40, 400
    for number in range(files):
        (tmp_path / f"log_{number}.log").write_text("".join(BENCH.format(m=m, i=m) + "\n" for m in range(1, problems)))
    command = [sys.executable, "-m", "logparse", "ingest", "--engine", "ray", "--store", str(tmp_path / "s")]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:  # sockets need a short path
        monkeypatch.setenv("RAY_TMPDIR", folder)
        child = subprocess.Popen([*command, str(tmp_path / "log_*.log")], cwd=ROOT, stdout=-3)
        wait_until(lambda: child.poll() is not None or committed(tmp_path / "s"))
        assert child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        wait_until(lambda: not processes(folder.encode(), ours=False))
        assert not processes(folder.encode(), ours=False), "Ray's processes end with the command"
    store = open_store(tmp_path / "s")
    before = len(store.sources())
    assert 0 < before < files
    results = ingest([str(tmp_path / "log_*.log")], store)
    assert [x.state for x in results].count("unchanged") >= before
    assert counts(store) == dict.fromkeys(range(1, problems), files)
