"""Make small models of the usual kinds for ``in_job.py``, in plain torch with random weights. Nothing is downloaded.

There are image networks (``models.py``) and three kinds of transformers: GPT-2, Llama and ViT.
"""

# GPT-2 has biases and GELU, Llama has grouped queries, gated SiLU and no biases, and ViT has 197 tokens and a patch
# convolution. Each has a few layers only, because more layers would repeat the same problems.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from models import regnet_y_3_2gf, resnet50, resnext50
from torch import nn


class Attention(nn.Module):
    """Multi-head attention whose keys and values may have fewer heads."""

    def __init__(self, width: int, heads: int, kv_heads: int, *, causal: bool, bias: bool) -> None:
        super().__init__()
        self._size, self._causal = width // heads, causal
        self.query = nn.Linear(width, width, bias=bias)
        self.key_value = nn.Linear(width, 2 * kv_heads * self._size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result of the attention, projected to the input's width."""
        batch, tokens, width = x.shape
        q, k, v = (
            y.view(batch, tokens, -1, self._size).transpose(1, 2)
            for y in (self.query(x), *self.key_value(x).chunk(2, dim=-1))
        )
        grouped = k.shape[1] != q.shape[1]
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self._causal, enable_gqa=grouped)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Gated(nn.Module):
    """The gated feed-forward layers of Llama."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``down(silu(gate(x)) · up(x))``, a tensor as wide as the input."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A transformer block: attention, then feed-forward layers.

    The input of each is normalized, and the output of each is added to its input.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, inner: int, *, causal: bool, gated: bool) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.RMSNorm if gated else nn.LayerNorm
        self.first, self.second = norm(width), norm(width)
        self.attention = Attention(width, heads, kv_heads, causal=causal, bias=not gated)
        plain = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.body: nn.Module = Gated(width, inner) if gated else plain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply attention, then the feed-forward layers."""
        x = x + self.attention(self.first(x))
        return x + self.body(self.second(x))


class Patches(nn.Module):
    """The first layer of ViT. It makes a token for the class, then a token from each patch of 16×16 pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images to tokens of shape (batch, tokens, width)."""
        y = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(y), -1, -1), y], dim=1)


def gpt2(small: bool) -> nn.Module:
    """Make GPT-2's small model with four of its twelve layers."""
    width, heads, words, depth = (64, 4, 256, 1) if small else (768, 12, 50304, 4)
    blocks = [Block(width, heads, heads, 4 * width, causal=True, gated=False) for _ in range(depth)]
    return nn.Sequential(nn.Embedding(words, width), *blocks, nn.LayerNorm(width), nn.Linear(width, words, bias=False))


def llama(small: bool) -> nn.Module:
    """Make a Llama of 2,048 channels (as TinyLlama 1.1B) with three layers."""
    width, heads, kv_heads, inner, words, depth = (64, 4, 2, 96, 256, 1) if small else (2048, 32, 4, 5632, 32000, 3)
    blocks = [Block(width, heads, kv_heads, inner, causal=True, gated=True) for _ in range(depth)]
    return nn.Sequential(nn.Embedding(words, width), *blocks, nn.RMSNorm(width), nn.Linear(width, words, bias=False))


def vit(small: bool) -> nn.Module:
    """Make ViT-B/16 with four of its twelve layers."""
    width, heads, depth = (48, 3, 1) if small else (768, 12, 4)
    blocks = [Block(width, heads, heads, 4 * width, causal=False, gated=False) for _ in range(depth)]
    return nn.Sequential(Patches(width), *blocks, nn.LayerNorm(width), nn.Linear(width, 1000))


def _images(size: int) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.randn(batch, 3, size, size)


def _tokens(count: int, words: int) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.randint(words, (batch, count))


@dataclass(frozen=True)
class Job:
    """A model to train: a function that makes it (small or not), and functions for its inputs."""

    build: Callable[[bool], nn.Module]
    inputs: Callable[[int], torch.Tensor]
    batch: int
    small_inputs: Callable[[int], torch.Tensor]
    kind: str
    """The kind of operator that takes most of the model's time: ``conv`` or ``gemm``."""


JOBS: Mapping[str, Job] = {
    "resnet50": Job(lambda small: resnet50(), _images(224), 64, _images(32), "conv"),
    "gpt2": Job(gpt2, _tokens(1024, 50304), 8, _tokens(16, 256), "gemm"),
    "resnext50": Job(lambda small: resnext50(), _images(224), 64, _images(32), "conv"),
    "llama": Job(llama, _tokens(1024, 32000), 4, _tokens(16, 256), "gemm"),
    "regnet": Job(lambda small: regnet_y_3_2gf(), _images(224), 64, _images(32), "conv"),
    "vit": Job(vit, _images(224), 64, _images(32), "gemm"),
}
"""The models to train, by name. Models of convolutions and of GEMMs alternate, so that the first few have both."""
