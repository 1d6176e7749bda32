"""Tests of the order in which ``ingest`` reads files: large ones first, and each exactly once even if reading fails."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.executors.executor import LostError, TaskError
from logparse.ingest.process_of_file import Process
from logparse.ingest.schedule import MANY, SMALL_BYTES, Ingested, JointTask, Schedule, Several, Task, resources


def read(task: Task | JointTask) -> Ingested | Several:
    """Pretend to read the files of a task, and return a result that states success for every file.

    A worker process returns results of the same form.
    """
    if isinstance(task, Task):
        return Ingested(task.path, "new")
    return Several(tuple(Ingested(one.path, "new") for one in task), pa.table({}))


def small(count: int) -> dict[str, int]:
    return {f"small{number}": 100 for number in range(count)}


def paths(task: Task | JointTask) -> list[str]:
    return [task.path] if isinstance(task, Task) else [one.path for one in task]


def test_large_files_come_first_with_the_threads_of_their_share() -> None:
    sizes = {"small": 10 << 20, "large": 80 << 30, "middle": 20 << 30}
    schedule = Schedule(sizes, cores=16, most=8, processes={"large": Process(7, "name")})
    tasks = [task for task in schedule.tasks() if isinstance(task, Task)]
    assert [(x.path, x.threads, x.process.pid) for x in tasks] == [
        ("large", 8, 7),
        ("middle", 3, None),
        ("small", 1, None),
    ]
    assert [resources(task).cpus for task in tasks] == [8, 3, 1]
    assert [resources(task).weight for task in tasks] == sorted(sizes.values(), reverse=True)


@pytest.mark.parametrize("count", [MANY - 1, MANY])
def test_only_very_many_small_files_are_read_together(count: int) -> None:
    schedule = Schedule(small(count) | {"large": SMALL_BYTES + 1}, cores=2)
    tasks = list(schedule.tasks())
    assert paths(tasks[0]) == ["large"]
    joint = [task for task in tasks if isinstance(task, tuple)]
    assert len(joint) == (8 if count == MANY else 0), "four per core"
    assert sum(len(paths(task)) for task in tasks) == count + 1
    assert not joint or resources(joint[0]).weight == 100 * len(joint[0])


def test_a_lost_joint_task_is_taken_apart() -> None:
    schedule = Schedule(small(MANY))
    first, *others = schedule.tasks()
    assert not schedule.waiting
    for task in others:
        schedule.ended(task, read(task))
    assert schedule.ended(first, LostError("its worker died")) == []
    assert schedule.waiting
    again = list(schedule.tasks())
    assert [paths(task) for task in again] == [[path] for path in paths(first)]
    [failed] = schedule.ended(again[0], LostError("its worker died"))
    assert (failed.state, failed.error) == ("failed", f"{failed.path}: its worker died")
    assert not schedule.waiting


@given(
    st.lists(st.sampled_from([1, SMALL_BYTES, SMALL_BYTES + 1, 1 << 33]), max_size=4), st.integers(0, 2), st.randoms()
)
def test_each_file_has_one_result(large: list[int], share: int, rng: random.Random) -> None:
    sizes = small(share * MANY) | {f"large{number}": size for number, size in enumerate(large)}
    schedule, results = Schedule(sizes, cores=rng.randint(1, 9), most=4), list[Ingested]()
    while schedule.waiting:
        tasks = list(schedule.tasks())
        rng.shuffle(tasks)
        for task in tasks:
            result = TaskError("no") if rng.random() < 0.3 else read(task)
            results += schedule.ended(task, result)
    assert sorted(x.path for x in results) == sorted(sizes)
