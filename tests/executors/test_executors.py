"""Tests that work is done in the same way by local processes and by a Ray cluster.

A failed task stops no other task, a task whose process died is tried again, and nothing is left behind.
"""

# A result is returned as soon as its task ends. No process or file is left behind.

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from logparse.errors import InputError, UsageError
from logparse.executors import open_executor
from logparse.executors.executor import Executor, LostError, Resources, TaskError
from logparse.executors.local import LocalExecutor, usable_cores
from logparse.executors.processes import started
from tests.executors.tasks import die, die_once, double, fail_odd, plenty, stay
from tests.waiting import wait_until


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.xdist_group("cluster"))])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "local":
        return LocalExecutor(2)
    on_ray: Executor = request.getfixturevalue("on_ray")
    return on_ray


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_results_come_with_their_items_from_other_processes(executor: Executor) -> None:
    seen: Counter[str] = Counter()
    results = dict(executor.map_unordered(double, range(1, 9), plenty, lambda name, n: seen.update({name: n})))
    values = {item: value for item, (value, _) in results.items()}  # type: ignore[misc]
    assert values == {n: 2 * n for n in range(1, 9)}
    assert os.getpid() not in {pid for _, pid in results.values()}  # type: ignore[misc]
    assert seen == {"doubled": sum(range(1, 9))}


def test_an_exception_is_its_own_items_result(executor: Executor) -> None:
    results = dict(executor.map_unordered(fail_odd, range(4), plenty))
    assert (results[0], results[2]) == (0, 2)
    for odd in (1, 3):
        assert isinstance(results[odd], TaskError)
        assert str(results[odd]) == f"ValueError: {odd} is odd"


def test_a_task_whose_worker_dies_is_tried_again(executor: Executor, tmp_path: Path) -> None:
    items = [str(tmp_path / name) for name in ("mortal1", "a", "mortal2", "b")]
    assert sorted(result for _, result in executor.map_unordered(die_once, items, plenty)) == sorted(
        ["mortal1", "a", "mortal2", "b"]
    )


def test_a_task_that_kills_every_worker_is_lost_alone(executor: Executor) -> None:
    results = dict(executor.map_unordered(die, range(6), plenty))
    lost = results.pop(3)
    assert isinstance(lost, LostError)
    assert "3" in str(lost)
    assert results == {n: n for n in (0, 1, 2, 4, 5)}


def test_items_are_taken_as_there_is_room(executor: Executor) -> None:
    taken = itertools.count()

    def items() -> Iterator[int]:
        for number in range(2000):
            next(taken)
            yield number

    results = executor.map_unordered(double, items(), plenty)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert next(taken) < 200


def test_leaving_early_ends_what_runs(executor: Executor, tmp_path: Path) -> None:
    tasks = [str(tmp_path / "one"), str(tmp_path / "two")]

    def begun() -> bool:
        return all(Path(task).exists() for task in tasks)

    def items() -> Iterator[str]:
        yield from tasks
        while not begun():  # on Ray, which may have room for more tasks
            time.sleep(0.05)
        raise KeyboardInterrupt

    def interrupt(name: str, count: int) -> None:
        if begun():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(executor.map_unordered(stay, items(), plenty, interrupt))
    pids = [int(Path(task).read_text()) for task in tasks]
    assert wait_until(lambda: not any(alive(pid) for pid in pids))


def test_the_users_script_is_run_again_only_if_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process runs the user's script again only if the script defines the function that the process must call.

    Many scripts lack ``if __name__ == "__main__"``. They must not start over in each process that measures kernels.
    """
    script, ran, main = tmp_path / "script.py", tmp_path / "ran", ModuleType("__main__")
    main.__file__ = str(script)
    script.write_text(f"def nothing(): ...\nopen({str(ran)!r}, 'w').close()\n")
    exec(script.read_text(), main.__dict__)
    ran.unlink()
    monkeypatch.setitem(sys.modules, "__main__", main)
    for function, again in ((os.getpid, False), (main.nothing, True)):
        process = started(function)
        process.join()
        assert (process.exitcode, ran.exists()) == (0, again)
    assert sys.modules["__main__"] is main


def test_little_work_is_done_here() -> None:
    results = dict(LocalExecutor(4).map_unordered(double, range(3), lambda _: Resources(weight=1.0)))
    assert {pid for _, pid in results.values()} == {os.getpid()}  # type: ignore[misc]


def test_an_unknown_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ("spark", "ray://", "rayon"):
        with pytest.raises(UsageError, match=f"--engine {engine}: must be local, ray"), open_executor(engine):
            pass
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'logparse\[ray\]'"), open_executor("ray"):
        pass


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_workers_are_no_more_than_the_cores_that_are_ours(tmp_path: Path) -> None:
    all_of_them = os.sched_getaffinity(0)
    quota = tmp_path / "cpu.max"
    assert usable_cores(str(quota)) == len(all_of_them), "no quota is set"
    for text, cores in (("max 100000\n", len(all_of_them)), ("150000 100000\n", 1), ("20000 100000\n", 1)):
        quota.write_text(text)
        assert usable_cores(str(quota)) == min(cores, len(all_of_them))
    os.sched_setaffinity(0, {min(all_of_them)})
    try:
        assert usable_cores(str(tmp_path / "none")) == LocalExecutor().together == 1
    finally:
        os.sched_setaffinity(0, all_of_them)
