"""Jobs with two ranks: ``torchrun --nproc-per-node 2 distributed.py ddp|ddp_one_core|fsdp|…``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from job_models import Block
from models import resnext50
from run import DEVICE, applied, begin, network, run, sized
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel


def ddp() -> None:
    """Train ResNeXt-50 in float32 with DistributedDataParallel. Each rank has its own batch."""
    begin()
    batch, size = sized((32, 224), (2, 32))
    model = DistributedDataParallel(applied(network(resnext50()).to(DEVICE)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, size, size, device=DEVICE)
    labels = torch.randint(1000, (batch,), device=DEVICE)

    def step(_: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    run(step)


def ddp_one_core() -> None:
    """Train with DistributedDataParallel (see ``ddp``) while both ranks share one CPU core.

    A job in a small container has only one core of its host, too. If this benchmark starts several such jobs on a host,
    they use different cores.
    """
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[os.getppid() % len(os.sched_getaffinity(0))]})
    ddp()


def fsdp() -> None:
    """Train a Llama in bfloat16 with FSDP, which shards its blocks over the ranks.

    The vocabulary has the odd size 32,001, as after one token was added to 32,000.
    """
    begin()
    width, heads, kv_heads, inner, words, depth = sized((2048, 32, 4, 5632, 32001, 5), (64, 4, 2, 96, 257, 2))
    batch, tokens = sized((4, 1024), (2, 16))
    blocks = [Block(width, heads, kv_heads, inner, causal=True, gated=True) for _ in range(depth)]
    layers = (nn.Embedding(words, width), *blocks, nn.RMSNorm(width), nn.Linear(width, words, bias=False))
    model = applied(nn.Sequential(*layers).to(DEVICE))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = torch.randint(words, (batch, tokens + 1), device=DEVICE)

    def step(_: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        logits = model(text[:, :-1]).flatten(0, 1)
        cross_entropy(logits.float(), text[:, 1:].flatten()).backward()
        optimizer.step()

    run(step)


class Part(nn.Module):
    """The heads and hidden channels of a transformer block that one rank computes.

    An all-reduce adds up the ranks' results twice per block.
    """

    def __init__(self, width: int, heads: int, ranks: int) -> None:
        super().__init__()
        self._heads = heads // ranks
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width // ranks), nn.Linear(width // ranks, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width // ranks), nn.Linear(4 * width // ranks, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply attention, then the feed-forward layers."""
        batch, tokens, _ = x.shape
        parts = self.qkv(self.first(x)).chunk(3, dim=-1)
        q, k, v = (y.view(batch, tokens, self._heads, -1).transpose(1, 2) for y in parts)
        y = self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        dist.all_reduce(y)
        x = x + y
        y = self.down(gelu(self.up(self.second(x))))
        dist.all_reduce(y)
        return x + y


def tensor_parallel() -> None:
    """Run transformer blocks that are split over the ranks: forward only, in bfloat16, one request after another."""
    _, ranks = begin()
    width, heads, depth, batch, tokens = sized((4096, 32, 6, 8, 1024), (64, 4, 2, 2, 16))
    made = nn.Sequential(*(Part(width, heads, ranks) for _ in range(depth)))
    model = applied(made.to(DEVICE, torch.bfloat16).eval())
    x = torch.randn(batch, tokens, width, device=DEVICE, dtype=torch.bfloat16)

    @torch.no_grad()
    def request(_: int) -> None:
        model(x)

    run(request)


if __name__ == "__main__":
    {"ddp": ddp, "ddp_one_core": ddp_one_core, "fsdp": fsdp, "tensor_parallel": tensor_parallel}[sys.argv[1]]()
    dist.destroy_process_group()
