"""Trials of several ranks: all ranks switch after the same unit, and a missing rank ends the trial."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from analyzers.tune.in_the_job import read
from logparse.capture.in_job.logparse_in_job import ranks
from logparse.capture.in_job.logparse_in_job.ranks import Alone, LateError, Ranks
from logparse.capture.plan import trying
from tests.capture.in_job.test_trial import PROGRAM
from tests.capture.observing import ENVIRON


class Store:
    """Stand-in for the key-value store by which ranks of a job talk, within one process."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.held[key] = value

    def get(self, key: str) -> bytes:
        return self.held[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.held for key in keys)


def test_every_rank_hears_all() -> None:
    store, heard = Store(), dict[int, Any]()

    def speak(rank: int) -> None:
        here = Ranks(store, rank, 3)
        heard[rank] = [here.exchange({"is": rank * 10}), here.exchange({"is": rank})]

    threads = [threading.Thread(target=speak, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = [{"is": 0}, {"is": 10}, {"is": 20}], [{"is": 0}, {"is": 1}, {"is": 2}]
    assert heard == {rank: [first, second] for rank in range(3)}
    assert Alone().exchange({"is": 1}) == [{"is": 1}]


def test_a_rank_that_does_not_come_ends_it_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_LATE_S", 0.0)
    store = Store()
    with pytest.raises(LateError, match="rank 1 did not reach"):
        Ranks(store, 0, 2).exchange({})
    monkeypatch.setattr(ranks, "_LATE_S", 60.0)
    with pytest.raises(LateError, match="rank 1 did not reach"):
        Ranks(store, 2, 3)._of(1, float("inf"))


def test_ranks_begin_after_the_same_unit() -> None:
    store = Store()
    lead, other = Ranks(store, 0, 2), Ranks(store, 1, 2)
    assert not lead.begins_at(20, False, 3)
    assert not other.begins_at(21, True, 3), "only rank 0 announces"
    assert not lead.begins_at(21, True, 3)
    assert [other.begins_at(unit, False, 3) for unit in (22, 23, 24, 25)] == [False, False, True, True]
    assert [lead.begins_at(unit, True, 3) for unit in (22, 23, 24, 25)] == [False, False, True, True]


TOGETHER = """
import sys
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
from torch.nn.parallel import DistributedDataParallel

inner = model
model = DistributedDataParallel(model)


def took():
    return 0.1 if torch.backends.cuda.flash_sdp_enabled() else 0.05


states = []
for _ in range(120):
    step()
    states.append(torch.backends.cuda.flash_sdp_enabled())
    kept = [None, None]
    dist.all_gather_object(kept, states[-1])
    assert kept[0] == kept[1], "the ranks stay alike"
print(rank, states.count(False) > 20, torch.backends.cuda.flash_sdp_enabled())
dist.destroy_process_group()
"""


def test_two_ranks_switch_after_the_same_unit(tmp_path: Path) -> None:
    """Both ranks try a setting. They refuse a change of a model that DistributedDataParallel wraps."""
    pytest.importorskip("torch")
    program, plan = tmp_path / "job.py", tmp_path / "asked.json"
    program.write_text(PROGRAM + TOGETHER)
    actions = ["channels_last", "attention_math"]
    plan.write_text(json.dumps({"actions": actions, "seconds": 60.0, "floor": 0.01}))
    environ = trying(tmp_path, "", ENVIRON, plan)
    words = [sys.executable, str(program)]
    both = [
        subprocess.Popen(
            [*words, str(rank), str(tmp_path / "store")],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    texts = [x.communicate(timeout=240) for x in both]
    assert [x.returncode for x in both] == [0, 0], texts
    assert [out for out, _ in texts] == [f"{rank} True True\n" for rank in range(2)]
    found = read(tmp_path)
    assert [x.rank for x in found] == [0, 1]
    for record in found:
        channels, attention = record.seen
        assert channels.why.startswith("its parameters are in DistributedDataParallel")
        assert attention.ended == "decided"
        assert len(attention.pairs) == 8
