"""Tests of tracing steps, and of trying a change, in a running job with several ranks.

All ranks must switch the change on and off after the same step. If a rank is missing, all stop trying the change.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analyzers.tune.in_the_job import read
from logparse.capture.in_job.logparse_in_job import ranks
from logparse.capture.in_job.logparse_in_job.ranks import Alone, LateError, Ranks
from logparse.capture.plan import make_trial_environment
from logparse.libraries.own.job_trials import Record
from tests.capture.in_job.observed import Job, Server, observer_environ
from tests.capture.in_job.test_trial import PROGRAM
from tests.capture.observing import SET_OBSERVERS_CLOCK


class Store:
    """Stand-in, within one process, for the key-value store through which the ranks of a job communicate."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.held[key] = value

    def get(self, key: str) -> bytes:
        return self.held[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.held for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if self.held.get(key, "") == expected:
            self.held[key] = desired
        return self.held[key].encode()


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


def test_a_missing_rank_ends_the_trial_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one rank of a job is late, all ranks stop trying the change."""
    # The ranks must agree on a common step. As soon as one rank has waited too long, all get the same error, even ranks
    # that would wait longer and the late rank itself.
    monkeypatch.setattr(ranks, "_LATE_S", 0.0)
    store = Store()
    with pytest.raises(LateError, match="rank 1 did not reach"):
        Ranks(store, 0, 3).exchange({})
    monkeypatch.setattr(ranks, "_LATE_S", float("inf"))
    with pytest.raises(LateError, match="rank 1 did not reach"):
        Ranks(store, 2, 3).exchange({})
    with pytest.raises(LateError, match="rank 1 did not reach"):
        Ranks(store, 1, 3).exchange({})


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
sys.kept = model  # see TWO_PHASES
dist.destroy_process_group()
"""


WRAPPED = (
    """
import hashlib, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

now = [0.0]
time.perf_counter = lambda: now[0]
"""
    + SET_OBSERVERS_CLOCK
    + """
rank, kind = int(sys.argv[1]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(16, 48), nn.BatchNorm1d(5)

    def forward(self, x):
        if "fails" in kind and not torch.is_grad_enabled():
            raise RuntimeError("no call without gradients")
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return x + scaled_dot_product_attention(q, k, v, dropout_p=0.1)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        has_none = "apart" in kind and rank == 1 and not torch.is_grad_enabled()
        return self.inner(x) * float("nan") if has_none else self.inner(x)


cpu = torch.device("cpu")
model = nn.Sequential(nn.Embedding(11, 16), Attention(), Attention(), nn.Linear(16, 11))
if kind.startswith("fsdp2"):
    for block in model[1:3]:
        fully_shard(block)
    fully_shard(model)
elif kind.startswith("fsdp1"):
    flat = dict(use_orig_params=kind.endswith("orig"), device_id=cpu)
    for index in (1, 2):
        model[index] = FullyShardedDataParallel(model[index], **flat)
    model = FullyShardedDataParallel(model, **flat)
else:
    unused = "unused" in kind
    if unused:
        model[1].unused = nn.Parameter(torch.ones(3))
    model = DistributedDataParallel(model, static_graph="static" in kind, find_unused_parameters=unused)
if kind.endswith("within"):
    model = Outer(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
words = torch.randint(11, (3, 5), generator=torch.Generator().manual_seed(rank))
digest = hashlib.sha256()


def note(x):
    x = x.to_local() if hasattr(x, "to_local") else x
    digest.update(x.detach().flatten().numpy().tobytes())


def unit():
    optimizer.zero_grad()
    loss = model(words).square().mean()
    loss.backward()
    now[0] += 0.1 if torch.backends.cuda.flash_sdp_enabled() else 0.05
    for x in model.parameters():
        note(x.grad if x.grad is not None else x.new_zeros(1))
    optimizer.step()
    note(loss)


def sharding():
    registered = [(type(x).__name__, tuple(x.shape)) for x in model.parameters()]
    freed = [x._handle.needs_unshard() for x in model.modules() if hasattr(x, "_handle")]
    states = [x._get_fsdp_state() for x in model.modules() if hasattr(x, "_get_fsdp_state")]
    groups = [group for x in states for group in vars(x).get("_fsdp_param_groups") or [x._fsdp_param_group]]
    order = [len(x._comm_ctx.post_forward_order) for x in states]
    return registered, freed, order, [str(x._sharded_state) for x in groups]


unit()
before = sharding()
for _ in range(120):
    unit()
    if sharding() != before:
        print(sharding(), before)
for x in (*model.parameters(), *model.buffers()):
    note(x)
note(torch.rand(3))
print(rank, digest.hexdigest(), before)
sys.kept = model  # see TWO_PHASES
dist.destroy_process_group()
"""
)
"""Program of a job with two ranks. It prints a digest of all losses, gradients and parameters.

Whenever the sharding of its parameters has changed between two steps, it prints the sharding, too.
"""


def in_two_ranks(server: Server, program: Path, folder: Path, environ: Mapping[str, str], *words: str) -> list[str]:
    """Run a program twice at the same time, as rank 0 and rank 1. Returns what each rank printed.

    logparse observes both if ``environ`` has variables for it.
    """
    jobs = [
        Job(program, folder / f"{'observed' if environ else 'plain'}_{rank}", environ,
            (str(rank), str(folder / "store"), *words), observed=bool(environ))
        for rank in range(2)
    ]  # fmt: skip
    both = server.behaviours(*jobs)
    (folder / "store").unlink(missing_ok=True)
    assert [x.code for x in both] == [0, 0], both
    return [x.out.decode() for x in both]


TWO_PHASES = """
import sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, steps = int(sys.argv[1]), int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for optimizer, times in ((torch.optim.SGD(model.parameters(), lr=0.1), 120),
                         (torch.optim.Adam(model.parameters()), steps)):
    for _ in range(times):
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
with torch.no_grad():
    print(float(sum(x.sum() for x in model.parameters())))
sys.kept = model
dist.destroy_process_group()
"""
"""Program of a job with two ranks that trains with one optimizer, and then some steps with another one.

``sys.kept`` keeps the model until the process exits. Otherwise PyTorch 2.13 sometimes hangs, with and without logparse:
the main thread deletes the model, holds the GIL and waits for Gloo's thread, which waits for the GIL.
"""


@pytest.mark.parametrize(("steps", "windows"), [("120", 3), ("6", 1)])
def test_ranks_trace_the_same_steps_of_a_second_phase(
    job_server: Server, tmp_path: Path, steps: str, windows: int
) -> None:
    program, logs = tmp_path / "job.py", tmp_path / "logs"
    logs.mkdir()
    program.write_text(TWO_PHASES)
    plain = in_two_ranks(job_server, program, tmp_path, {}, steps)
    assert in_two_ranks(job_server, program, tmp_path, observer_environ(logs), steps) == plain
    traced: dict[str, list[int]] = {}
    for path in sorted(logs.glob("trace_*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        if any(name.endswith("(phase 2)") for name in trace["logparse_unit_kinds"].values()):
            traced.setdefault(path.name.split("_")[1], []).append(trace["logparse_first_unit"])
    one, other = traced.values()
    assert one == other
    assert len(one) == windows


_OTHERS = ("fsdp2_within", "fsdp1", "ddp", "ddp_static", "ddp_static_within", "ddp_unused_within")


def try_in_two_ranks(server: Server, kind: str, folder: Path) -> list[Record]:
    """Run a job of two ranks, first alone and then while logparse tries a change in it. Both must print the same.

    Returns what each rank recorded about the change.
    """
    program, plan = folder / "job.py", folder / "asked.json"
    program.write_text(WRAPPED)
    plan.write_text(json.dumps({"actions": ["attention_math"], "seconds": 60.0, "floor": 0.01}))
    plain = in_two_ranks(server, program, folder, {}, kind)
    assert in_two_ranks(server, program, folder, make_trial_environment(folder, "", {}, plan), kind) == plain
    found = read(folder)
    assert [x.rank for x in found] == [0, 1]
    return found


@pytest.mark.parametrize(
    "kind", ["fsdp2", "fsdp1_orig", *(pytest.param(x, marks=pytest.mark.nightly) for x in _OTHERS)]
)
def test_a_sharded_job_computes_the_same_bits(job_server: Server, tmp_path: Path, kind: str) -> None:
    """Trying a change in a running job with sharded parameters does not alter any bit of the job's results.

    The parameters remain sharded as before. logparse also compares the results with the change switched on with the
    results without it.
    """
    compared = "output" if "fsdp" in kind else "output and gradients"
    for record in try_in_two_ranks(job_server, kind, tmp_path):
        (attention,) = record.seen
        assert (attention.ended, attention.why) == ("decided", "")
        assert attention.same is not None
        assert attention.same[2].split(",")[0] == compared


_FAILURES = [
    (
        "fsdp2_apart_within",
        "two equal calls of the model, both without the change, returned tensors of different sizes, "
        "or numbers that are infinite or NaN",
    ),
    pytest.param("fsdp2_fails", "RuntimeError: no call without gradients", marks=pytest.mark.nightly),
    pytest.param("fsdp1_fails_orig", "RuntimeError: no call without gradients", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("kind", "why"), _FAILURES)
def test_a_failed_comparison_is_refused_in_all_ranks(job_server: Server, tmp_path: Path, kind: str, why: str) -> None:
    """If one rank cannot compare the results with and without a change, all ranks refuse the change."""
    # To compare, a call is repeated with the change. In one case the repeated call fails, in the other case it returns
    # NaN in rank 1 only. Then no rank repeats another call, because it would wait in vain for the other rank.
    for record in try_in_two_ranks(job_server, kind, tmp_path):
        (attention,) = record.seen
        assert (attention.ended, attention.why) == ("refused", f"the action's result could not be compared: {why}")


def test_two_ranks_switch_after_the_same_step(job_server: Server, tmp_path: Path) -> None:
    """When a change is tried in a running job, both ranks switch it on and off after the same steps.

    Here the change is a setting. Both ranks refuse to change a model that is already wrapped by
    DistributedDataParallel.
    """
    program, plan = tmp_path / "job.py", tmp_path / "asked.json"
    program.write_text(PROGRAM + TOGETHER)
    actions = ["channels_last", "attention_math"]
    plan.write_text(json.dumps({"actions": actions, "seconds": 60.0, "floor": 0.01}))
    outs = in_two_ranks(job_server, program, tmp_path, make_trial_environment(tmp_path, "", {}, plan))
    assert outs == [f"{rank} True True\n" for rank in range(2)]
    found = read(tmp_path)
    assert [x.rank for x in found] == [0, 1]
    for record in found:
        channels, attention = record.seen
        assert channels.why.startswith("the model's parameters are in DistributedDataParallel")
        assert attention.ended == "decided"
        assert len(attention.pairs) == 8
