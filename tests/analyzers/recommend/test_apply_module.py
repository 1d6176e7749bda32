"""Tests of the generated ``apply.py`` in a job of two processes.

``apply.py`` changes a model before DDP or FSDP wraps it, and refuses to do so afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.actions import ActionResult, padded_output
from analyzers.actions.action import Application, definitions
from analyzers.recommend.apply_module import module
from logparse.model import Gain
from logparse.quoting import Python

JOB = """
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import apply

rank, wrapper, early = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "before"
dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
inputs = torch.randn(4, 8)
with torch.no_grad():
    expected = model(inputs)


def wrapped(model):
    if wrapper == "ddp":
        return DistributedDataParallel(model)
    if wrapper == "fsdp":
        mesh = dist.init_device_mesh("cpu", (2,))
        fully_shard(model[2], mesh=mesh)  # a part of it alone
        return model
    return model


try:
    model = wrapped(apply.model(model)) if early else apply.model(wrapped(model))
except ValueError as error:
    print(error)
    sys.exit(7)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
output = model(inputs)
assert torch.allclose(output, expected, atol=1e-6)
(output * (rank + 1)).sum().backward()
optimizer.step()
if wrapper == "ddp":
    mine = model.module[2].weight.detach()
    others = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(others, mine)
    assert mine.shape == (8, 16)
    assert torch.equal(*others), "the ranks stay alike"
dist.barrier()  # a rank that leaves early aborts the other one
dist.destroy_process_group()
"""


def padded(steps: float | None) -> ActionResult:
    return ActionResult(
        action=padded_output.ACTION,
        application=Application(
            line="", model=(Python("model = pad_output(model, 5, 8)"),), helpers=(definitions("padding"),)
        ),
        now_us=20_000.0,
        then_us=10_000.0,
        low_us=9_900.0,
        high_us=10_100.0,
        parts=(),
        steps=steps,
    )


def test_its_times_are_per_step() -> None:
    for steps, text in (
        (4.0, "5.000 -> 2.500 ms of GPU time per step"),
        (None, "20.000 -> 10.000 ms of GPU time per run"),
    ):
        made = module([padded(steps)])
        assert made is not None
        assert text in made.data.decode()
        assert "simulated" not in made.data.decode()
        assert "before DistributedDataParallel or FSDP wraps it and before the optimizer is made" in made.data.decode()
    step = module([padded(4.0)], step_gain={"padded_output": Gain(9_000.0, 8_500.0)}.get)
    assert step is not None
    assert "ms of GPU time per step; the step 9.000 -> 8.500 ms, simulated" in step.data.decode()


@pytest.mark.nightly
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_it_goes_before_the_model_is_wrapped(wrapper: str, when: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made = module([padded(None)])
    assert made is not None
    (tmp_path / "apply.py").write_bytes(made.data)
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    words = [sys.executable, "job.py"]
    ranks = [
        subprocess.Popen(
            [*words, str(rank), wrapper, when, str(tmp_path / "store")],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    texts = [rank.communicate()[0] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    assert codes == [0 if when == "before" else 7] * 2, texts
    if when == "after":
        assert all("goes before DistributedDataParallel or FSDP wraps the model" in text for text in texts)
