"""Tests of comparing two versions of a job that run at the same time and take turns.

Both then see the same state of the machine.
"""

# The tests use real jobs on the CPU, and jobs that cannot run twice at once.

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from analyzers.compare.unit_time import Pair, SideBySide
from analyzers.tune import by_turns as module
from analyzers.tune import side_by_side
from analyzers.tune.by_turns import by_turns
from analyzers.tune.side_by_side import AloneError, Side, fixed_port, pair
from logparse.capture import job
from tests.capture.observing import CLOCK
from tests.waiting import PATIENCE_S, wait_until

JOB = (
    CLOCK
    + """
import os, sys
import torch
import torch.distributed as dist

if "RANK" in os.environ:
    dist.init_process_group("gloo")
name, us, units, log = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for unit in range(units):
    start = time.monotonic()
    model(torch.ones(2, 4)).sum().backward()
    if dist.is_initialized():
        dist.all_reduce(model.weight.grad)
    time.sleep(us / 1e6)
    with open(log, "a") as file:
        print(name, start, time.monotonic(), file=file)
    optimizer.step()
if dist.is_initialized():
    dist.destroy_process_group()
"""
)
"""Python code of a real job with optimizer steps, which logparse finds and times as in any other job."""
FAKE = """
import sys, time, types

name, us, units, log, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
alone = types.SimpleNamespace(is_available=lambda: False)
free = 70 if name == "was" else 40
device = types.SimpleNamespace(is_initialized=lambda: True, mem_get_info=lambda: (free, 100))
sys.modules["torch"] = types.SimpleNamespace(distributed=alone, cuda=device)
from logparse_in_job.turns import Turns

turns, timed = Turns(), []
for unit in range(units):
    with open(log, "a") as file:
        print(name, time.monotonic(), file=file)
    time.sleep(us / 1e6)
    of = "odd" if us == 1 and unit % 2 else "unit"
    timed.append(of)
    if turns.over():
        turns.wait({kind: [us] for kind in timed[1:]} if us else {"unit": []})
        timed.clear()
sys.exit(code)
"""
"""Python code of a fake job that takes turns with another one as a job with torch does, but without torch.

Its steps of 1 µs alternate between two kinds.
"""
ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1"}


def sides(folder: Path, units: int, *launch: str, code: int | None = None) -> tuple[Side, Side]:
    """Return two commands that start a job before and after a change: a step takes 10 ms, then 7 ms.

    If ``code`` is given, the job is a fake without torch, and the second command ends with this exit code.
    """
    script, log = folder / "job.py", folder / "log"
    script.write_text(JOB if code is None else FAKE)
    command, of = [sys.executable, *launch, str(script)], (("was", 10_000, 0), ("is", 7_000, code or 0))
    a, b = ([*command, name, str(us), str(units), str(log), str(last)] for name, us, last in of)
    return (a, ENVIRON), (b, ENVIRON)


def worked(log: Path) -> list[str]:
    """Return for each step whether the job before or after the change did it, in the order in which the steps began."""
    # Both jobs run at the same time and take turns. The names are read from a log that they write.
    lines = (x.split() for x in log.read_text().splitlines())
    return [name for name, *_ in sorted(lines, key=lambda x: float(x[1]))]


def test_two_of_a_job_work_by_turns_and_the_faster_one_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(module, "PAIRS", 1)
    said: list[str] = []
    times = by_turns(*sides(tmp_path, 220), "", said.append, 1)
    assert isinstance(times, SideBySide)
    assert len(said) == 1
    wall = times.unit_time(times.kinds)
    assert wall is not None
    assert wall.faster
    assert wall.turns == len(times.pairs[0][0]) >= 6
    assert wall.saving_us / wall.now_us == pytest.approx(0.3)
    done = worked(tmp_path / "log")
    assert [done.count(name) for name in ("was", "is")] == [220, 220], "both went on to their end"
    changes = sum(a != b for a, b in itertools.pairwise(done))
    assert 6 <= changes <= 30, "some units of one, then of the other"


@pytest.mark.parametrize("most", [3, 4, 6])
def test_an_undecided_comparison_ends_at_the_users_limit(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it stays unclear which of two versions of a job is faster, ``tune`` stops after the user's maximum of starts.

    Single starts differ by up to 10 %, but the two versions do not differ. So more starts decide nothing.
    """
    starts = itertools.cycle((1000.0, 1100.0, 1050.0, 950.0))
    monkeypatch.setattr(module, "pair", lambda *_: tuple([{"all": us}] * 8 for us in (next(starts), next(starts))))
    side: Side = (["job"], ENVIRON)
    times = by_turns(side, side, "", [].append, most)
    assert isinstance(times, SideBySide)
    assert len(times.pairs) == most


def test_each_turn_uses_another_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the beginning of each turn, PyTorch's autograd thread is put on a single core, each time another one.

    Two versions of a job take turns. During a turn the autograd thread runs only on this core, and afterwards on all
    cores again. The thread that launches kernels is only moved to the core and may leave it, because threads that it
    starts inherit its cores. The cores of two ranks differ.
    """
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(Path(job.__file__).parent / "in_job"))
    turns = importlib.import_module("logparse_in_job.turns")
    cores, begun, end = os.sched_getaffinity(0), threading.Event(), threading.Event()
    moved: list[int] = []
    set_affinity = os.sched_setaffinity

    def watched(thread: int, to: set[int]) -> None:
        moved.extend(to if len(to) == 1 and thread == threading.get_native_id() else ())
        set_affinity(thread, to)

    def sleeps() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_autograd_0")
        begun.set()
        end.wait(PATIENCE_S)

    monkeypatch.setattr(os, "sched_setaffinity", watched)
    thread = threading.Thread(target=sleeps)
    thread.start()
    begun.wait(PATIENCE_S)
    assert thread.native_id is not None
    for rank, turn in itertools.product((0, 1), range(len(cores))):
        monkeypatch.setattr(turns, "_rank", lambda rank=rank: (rank, 2))
        held = turns.on_one_core(turn)
        assert os.sched_getaffinity(0) == cores
        assert os.sched_getaffinity(thread.native_id) == {moved[-1]}
        turns.on_all_cores(held)
        assert os.sched_getaffinity(thread.native_id) == cores
    end.set()
    thread.join()
    assert set(moved) == cores
    if len(cores) > 1:
        assert moved[0] != moved[len(cores)], "two ranks have a core each"


@pytest.mark.nightly  # thousands of comparisons
@pytest.mark.parametrize("most", [4, 12])
def test_a_change_without_gain_is_rarely_reported(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that gains nothing is rarely reported as a gain, although times are noisy.

    Two equal jobs are compared 500 times. Fewer than 6 % of the comparisons may report a gain. The times of two starts
    of a job differ by 2.5 %, and the times of two turns of a start by 8 %. If the comparison stopped as soon as a 95 %
    interval showed a gain, it would report a gain in 8 % of the cases.
    """
    chance = random.Random(5)

    def made(*_: object) -> Pair:
        sides = [100 * math.exp(chance.gauss(0, 0.025)) for _ in range(2)]
        a, b = ([{"all": us * math.exp(chance.gauss(0, 0.08))} for _ in range(60)] for us in sides)
        return a, b

    monkeypatch.setattr(module, "pair", made)
    side: Side = (["job"], ENVIRON)
    faster = 0
    for _ in range(500):
        times = by_turns(side, side, "", [].append, most)
        assert isinstance(times, SideBySide)
        wall = times.unit_time(times.kinds)
        faster += wall is not None and wall.faster
    assert faster / 500 < 0.06


@pytest.mark.nightly
def test_all_ranks_of_a_job_take_the_same_turns(tmp_path: Path) -> None:
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    before, after = pair(*sides(tmp_path, 200, *launch), "")
    assert len(before) == len(after) >= 6
    done = worked(tmp_path / "log")
    assert [done.count(name) for name in ("was", "is")] == [400, 400]


def test_both_kinds_of_alternating_steps_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two kinds of steps alternate in a job, both kinds are timed in each turn of the job."""
    # The first step of a turn is not timed. So with two steps per turn, only one of the kinds would be timed.
    monkeypatch.setattr(side_by_side, "_TURN_S", 1e-6)
    monkeypatch.setattr(side_by_side, "_MEMORY", 1.0)
    both = [([*words[:3], "1", *words[4:]], environ) for words, environ in sides(tmp_path, 60, code=0)]
    turns, _ = pair(*both, "")
    assert all(sum(kind in turn for turn in turns) >= 6 for kind in ("unit", "odd"))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"memory": 0.6}, "the job uses over 45% of the device's memory"),
        ({"workers": 4}, "the job's worker processes do not pause"),
        (None, "the job reached no step at which it could pause while the other run continues"),
    ],
)
def test_a_job_that_cannot_run_twice_runs_alone(said: dict[str, object] | None, why: str, tmp_path: Path) -> None:
    """If a job cannot run twice at the same time, its two versions are run alternately, three times each."""
    # The versions are the job without and with a change. tune starts one process of the job before it finds this out.
    # So there are 1 + 2 · 3 = 7 starts.
    ready = json.dumps({"kinds": {"a": [1e4]}, "ranks": 1, **(said or {})})
    units = json.dumps({"logparse_units": "call", "kinds": {"a": {"count": 8, "traced": 0, "us": [2e4] * 8}}})
    script = tmp_path / "job.sh"
    waits = f"""
    echo '{ready}' > $LOGPARSE_TURNS/part && mv $LOGPARSE_TURNS/part $LOGPARSE_TURNS/0_1.json
    while [ ! -e $LOGPARSE_TURNS/free ]; do sleep 0.01; done
    """
    script.write_text(f"""
    echo x >> {tmp_path}/log
    if [ -n "$LOGPARSE_TURNS" ]; then
        {waits if said else "exit 0"}
    fi
    echo '{units}' > $LOGPARSE_TRACE_DIR/units_1.json
    """)
    side = (["sh", str(script)], {"PATH": os.environ["PATH"]})
    told: list[str] = []
    times = by_turns(side, side, "", told.append)
    assert isinstance(times, tuple)
    assert [len(x) for x in times] == [3, 3]
    assert why in told[1]
    assert (tmp_path / "log").read_text().split() == ["x"] * 7


@pytest.mark.parametrize(
    ("command", "environ", "fixed"),
    [
        ("python train.py --epochs 3", {}, False),
        ("python serve.py --port 8000", {}, True),
        ("python serve.py --port=8000", {}, True),
        ("torchrun --nproc-per-node 2 train.py", {}, True),
        ("torchrun --standalone --nproc-per-node 2 train.py", {}, False),
        ("python -m torch.distributed.run --rdzv-endpoint=host:29400 train.py", {}, True),
        ("python train.py", {"MASTER_PORT": "29500"}, True),
    ],
)
def test_jobs_that_want_a_port(command: str, environ: dict[str, str], fixed: bool) -> None:
    assert fixed_port(command.split(), environ) == fixed


LEADER = """
import os, sys
from analyzers.tune.side_by_side import pair
print("leads", flush=True)
named = (("was", "10000"), ("is", "7000"))
sides = [([sys.executable, sys.argv[1], name, us, "200", sys.argv[2], "0"], dict(os.environ)) for name, us in named]
try:
    pair(*sides, "")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_both_end_with_tune_or_go_on_without_it(number: signal.Signals, tmp_path: Path) -> None:
    script, log = tmp_path / "job.py", tmp_path / "log"
    script.write_text(FAKE)
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(script), str(log)], env=ENVIRON, stdout=subprocess.PIPE, text=True
    )
    assert leader.stdout is not None
    assert wait_until(lambda: log.exists() and worked(log).count("is") > 10)
    leader.send_signal(number)
    if number == signal.SIGTERM:
        assert "interrupted" in leader.stdout.read()
        assert worked(log).count("was") < 200
    else:  # nobody asked the job to end
        assert wait_until(lambda: worked(log).count("was") == worked(log).count("is") == 200)
    leader.stdout.close()
    leader.wait()


def test_units_that_nothing_timed_leave_the_job_alone(tmp_path: Path) -> None:
    (command, environ), _ = sides(tmp_path, 10, code=0)
    untimed = ([*command[:3], "0", *command[4:]], environ)
    with pytest.raises(AloneError, match="the first steps of the job were not timed"):
        pair(untimed, untimed, "")


def test_a_run_that_fails_at_its_end_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(AloneError, match="exit code 3"):
        pair(*sides(tmp_path, 300, code=3), "")


def test_a_job_that_ends_too_soon_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(AloneError, match=r"the job did [12] turns? of"):
        pair(*sides(tmp_path, 45, code=0), "")
