"""Jobs that train on one device: ``python training.py moe|data_loader|small_kernels|wav2vec2``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from job_models import Block
from models import resnet50
from run import DEVICE, applied, network, run, sized
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from torch.utils.data import DataLoader, Dataset


def _train(model: nn.Module, loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, **how: int) -> None:
    def step(_: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    run(step, **how)


class Experts(nn.Module):
    """A mixture of experts, in which a router sends each token to two experts.

    The number of tokens per expert differs in every step.
    """

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)) for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input plus the experts' outputs, weighted by the router."""
        tokens = self.norm(x).flatten(0, -2)
        weights, chosen = self.router(tokens).softmax(dim=-1).topk(2, dim=-1)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, place = (chosen == index).nonzero(as_tuple=True)
            found = expert(tokens[rows]) * weights[rows, place, None]
            out = out.index_add(0, rows, found.to(out.dtype))
        return x + out.view_as(x)


def moe() -> None:
    """Train four layers of eight experts each (mixture of experts) in bfloat16, with new tokens in every step.

    The number format is chosen by autocast.
    """
    width, inner, experts, depth, batch, tokens = sized((1024, 4096, 8, 4, 16, 512), (32, 64, 4, 1, 2, 16))
    made = nn.Sequential(*(Experts(width, inner, experts) for _ in range(depth)), nn.Linear(width, 1000))
    model = applied(made.to(DEVICE))

    def loss() -> torch.Tensor:
        x = torch.randn(batch, tokens, width, device=DEVICE)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return model(x).float().square().mean()

    _train(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-4))


class Slow(Dataset[tuple[torch.Tensor, int]]):
    """A data set of images. Reading one takes a few milliseconds."""

    def __init__(self, size: int) -> None:
        self._image = torch.randn(3, size, size)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(sized(0.006, 0.001))
        return self._image, index % 1000


def data_loader() -> None:
    """Train ResNet-50 in float32 with a data loader of four workers. Loading a batch takes longer than the step."""
    batch, size = sized((48, 224), (2, 32))
    model = applied(network(resnet50()).to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Slow(size), batch_size=batch, num_workers=sized(4, 1), pin_memory=DEVICE.type == "cuda")
    batches: Iterator[list[torch.Tensor]] = iter(loader)

    def loss() -> torch.Tensor:
        images, labels = (x.to(DEVICE, non_blocking=True) for x in next(batches))
        return cross_entropy(model(images), labels)

    # The first 3 × 4 units of a turn are not timed, because the workers loaded eight batches while other programs had
    # their turns. Units are counted in fours, because the four workers are done at about the same time.
    _train(model, loss, optimizer, kinds=4, settle=3)


def small_kernels() -> None:
    """Train many layers with few channels, so that the kernels are small.

    The optimizer updates one parameter after another, so the host limits the speed.
    """
    width, depth, batch = sized((128, 60, 64), (16, 4, 8))
    layers = (layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()))
    model = applied(nn.Sequential(*layers).to(DEVICE))
    x = torch.randn(batch, width, device=DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    _train(model, lambda: model(x).square().mean(), optimizer)


class Waves(nn.Module):
    """The speech network wav2vec 2.0.

    It has seven strided convolutions over the sound samples, a grouped convolution for positions, and a transformer.
    """

    def __init__(self, channels: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        windows = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
        ins = (1, *[channels] * (len(windows) - 1))
        convs = [nn.Conv1d(c, channels, k, s, bias=False) for c, (k, s) in zip(ins, windows, strict=True)]
        self.extract, self.norm = nn.ModuleList(convs), nn.GroupNorm(channels, channels)
        self.project = nn.Linear(channels, width)
        self.place = nn.Conv1d(width, width, 128, padding=64, groups=16)
        blocks = (Block(width, heads, heads, 4 * width, causal=False, gated=False) for _ in range(depth))
        self.body = nn.Sequential(*blocks, nn.LayerNorm(width), nn.Linear(width, 32))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Map samples (batch, samples) to (batch, frames, letters)."""
        y = samples[:, None]
        for index, conv in enumerate(self.extract):
            y = conv(y)
            y = gelu(self.norm(y) if index == 0 else y)
        y = self.project(y.transpose(1, 2))
        place = self.place(y.transpose(1, 2))[..., :-1]
        found: torch.Tensor = self.body(y + gelu(place).transpose(1, 2))
        return found


def wav2vec2() -> None:
    """Train wav2vec 2.0 on five seconds of sound at 16 kHz, in float32."""
    channels, width, heads, depth, batch, samples = sized((512, 768, 12, 6, 8, 80_000), (32, 32, 2, 1, 2, 4_000))
    model = applied(Waves(channels, width, heads, depth).to(DEVICE))
    x = torch.randn(batch, samples, device=DEVICE)

    def loss() -> torch.Tensor:
        found: torch.Tensor = model(x)
        return cross_entropy(found.flatten(0, 1), torch.zeros(found.shape[:2].numel(), dtype=torch.long, device=DEVICE))

    _train(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-4))


if __name__ == "__main__":
    torch.manual_seed(0)
    jobs = {"moe": moe, "data_loader": data_loader, "small_kernels": small_kernels, "wav2vec2": wav2vec2}
    jobs[sys.argv[1]]()
