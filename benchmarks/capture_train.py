"""A small training loop for trying `logparse capture` on a real machine: GPT-2-like blocks behind a convolution.

    logparse capture --store store -- python benchmarks/capture_train.py --steps 20

The program runs on a GPU (CUDA or ROCm) if torch sees a GPU.  Otherwise it runs on the CPU, where no library writes a
log.  It prints one line per step, to show that output passes through ``capture``, and ends with exit code ``--exit``.
The convolution (the stem of a vision model: strided, three channels) gives MIOpen or cuDNN work in all three
directions.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and MLP of GPT-2.

    There are four GEMMs with bias in the forward pass. The backward pass has two more GEMMs for each of the four.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map a tensor (batch, length, width) to a tensor of the same shape."""
        batch, length, width = x.shape
        parts = self.attend(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norms[1](x)), approximate="tanh"))


class Model(nn.Module):
    """A small model: patches of an image as a sequence, some transformer blocks, and a wide output layer.

    The output layer is as wide as GPT-2's vocabulary.
    """

    def __init__(self, width: int, depth: int, vocabulary: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, stride=16)
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(depth)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images (batch, 3, side, side) to scores (batch, patches, vocabulary)."""
        return self.head(self.blocks(self.stem(images).flatten(2).transpose(1, 2)))


def main() -> int:
    """Train the model for a few steps on noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("steps", 5), ("batch", 8), ("width", 768), ("depth", 2), ("vocabulary", 50257), ("exit", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Model(options.width, options.depth, options.vocabulary).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.randn(options.batch, 3, 224, 224, device=device)
    targets = torch.randint(options.vocabulary, (options.batch * 14 * 14,), device=device)
    for step in range(options.steps):
        started = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(images).flatten(0, 1).float(), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step} loss {loss.item():.3f} {1000 * (time.perf_counter() - started):.1f} ms", flush=True)
    print(f"trained on {device}", file=sys.stderr)
    return int(options.exit)


if __name__ == "__main__":
    sys.exit(main())
