"""Make the models for ``actions.py``: architectures from papers, with random weights and random inputs.

Nothing is downloaded.  Each function returns the module, the inputs of a step (a dict is passed as keywords), and a
loss function of the module's output.  ``small`` chooses a size for a test on a CPU.

Models that were not written for this project are named by their library: ``torchvision.densenet121`` and
``transformers.BertForMaskedLM``.  They need the library installed.  Options follow the name: ``:float32`` (default:
bfloat16 by autocast) and ``:inference``.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[torch.Tensor, ...] | dict[str, torch.Tensor], Callable[[Any], torch.Tensor]]


@dataclass(frozen=True)
class Model:
    """A model for the benchmark.

    * ``make(device, small)`` makes the model (``Made``); ``small`` is a size for tests.
    * ``autocast`` is the type for autocast, or None for float32.
    * ``trains`` is False if the model is only used for inference.
    """

    make: Callable[[torch.device, bool], Made]
    autocast: torch.dtype | None = None
    trains: bool = True


def _classified(model: nn.Module, device: torch.device, batch: int, size: int, classes: int) -> Made:
    images = torch.randn(batch, 3, size, size, device=device)
    labels = torch.randint(0, classes, (batch,), device=device)
    return model.to(device), (images,), lambda logits: functional.cross_entropy(logits.float(), labels)


# ------------------------------------------------------------------------------------------------ convolutions


class Bottleneck(nn.Module):
    """The block of ResNet (He et al. 2016, with the stride in the 3×3 convolution) and of ResNeXt (Xie et al. 2017)."""

    def __init__(self, inputs: int, planes: int, stride: int, groups: int, width: int) -> None:
        super().__init__()
        inner, outputs = planes * width // 64 * groups, planes * 4
        self.conv1, self.bn1 = nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.short(x))


def _resnet(layers: tuple[int, ...], groups: int, width: int, classes: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    parts.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, count in enumerate(layers):
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            parts.append(Bottleneck(inputs, 64 << stage, stride, groups, width))
            inputs = 256 << stage
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet50(device: torch.device, small: bool) -> Made:
    model = _resnet((1, 1) if small else (3, 4, 6, 3), 1, 64, 1000)
    return _classified(model, device, 2 if small else 128, 64 if small else 224, 1000)


def resnext50(device: torch.device, small: bool) -> Made:
    model = _resnet((1, 1) if small else (3, 4, 6, 3), 32, 4, 1000)
    return _classified(model, device, 2 if small else 128, 64 if small else 224, 1000)


class Inverted(nn.Module):
    """The inverted residual block of MobileNetV2 (Sandler et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = inputs * expand
        parts: list[nn.Module] = []
        if expand != 1:
            parts += [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        parts += [nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner)]
        parts += [nn.ReLU6(inplace=True), nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.body, self.adds = nn.Sequential(*parts), stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet_v2(device: torch.device, small: bool) -> Made:
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    parts: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
    inputs = 32
    for expand, outputs, count, stride in rows[: 2 if small else None]:
        for block in range(count):
            parts.append(Inverted(inputs, outputs, stride if block == 0 else 1, expand))
            inputs = outputs
    parts += [nn.Conv2d(inputs, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))
    return _classified(model, device, 2 if small else 128, 64 if small else 224, 1000)


class Permute(nn.Module):
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(*self.order)


class ConvNeXtBlock(nn.Module):
    """A block of the image network ConvNeXt (Liu et al. 2022) in its usual form.

    The layer norm and both matrix products get a permuted view of the images, with the channels last.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(channels, eps=1e-6),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
            Permute(0, 3, 1, 2),
        )
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.body(x)


def _norm2d(channels: int) -> nn.Module:
    return nn.Sequential(Permute(0, 2, 3, 1), nn.LayerNorm(channels, eps=1e-6), Permute(0, 3, 1, 2))


def convnext_tiny(device: torch.device, small: bool) -> Made:
    widths, depths = (96, 192, 384, 768), (3, 3, 9, 3)
    if small:
        widths, depths = (32, 64), (1, 1)  # type: ignore[assignment]
    parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), _norm2d(widths[0])]
    for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if i:
            parts += [_norm2d(widths[i - 1]), nn.Conv2d(widths[i - 1], width, 2, 2)]
        parts += [ConvNeXtBlock(width) for _ in range(depth)]
    model = nn.Sequential(
        *parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 1000)
    )
    return _classified(model, device, 2 if small else 64, 64 if small else 224, 1000)


class UNet(nn.Module):
    """A U-Net (Ronneberger et al. 2015) with batch norm and bilinear upsampling."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Module:
            parts: list[nn.Module] = []
            for i in (inputs, outputs):
                parts += [nn.Conv2d(i, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
            return nn.Sequential(*parts)

        widths = [width << i for i in range(depth)]
        self.down = nn.ModuleList(double(i, o) for i, o in zip([3, *widths], widths, strict=False))
        pairs = zip(reversed(widths[1:]), reversed(widths[:-1]), strict=True)
        self.up = nn.ModuleList(double(i + o, o) for i, o in pairs)
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, down in enumerate(self.down):
            x = down(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, other in zip(self.up, reversed(kept[:-1]), strict=True):
            x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = up(torch.cat([other, x], 1))
        return self.head(x)


def unet(device: torch.device, small: bool) -> Made:
    batch, size = (1, 32) if small else (8, 256)
    images = torch.randn(batch, 3, size, size, device=device)
    labels = torch.randint(0, 4, (batch, size, size), device=device)
    model = UNet(8 if small else 64, 2 if small else 5).to(device)
    return model, (images,), lambda logits: functional.cross_entropy(logits.float(), labels)


# ------------------------------------------------------------------------------------------------ transformers


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (y.view(batch, length, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(width, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A transformer block with layer norm before attention, as in ViT and GPT-2."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, causal)
        self.norm2, self.inner = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.act, self.outer = nn.GELU(approximate="tanh" if causal else "none"), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.outer(self.act(self.inner(self.norm2(x))))


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021)."""

    def __init__(self, width: int, depth: int, heads: int, size: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit_b(device: torch.device, small: bool) -> Made:
    size = 64 if small else 224
    model = ViT(64, 1, 2, size) if small else ViT(768, 12, 12, size)
    return _classified(model, device, 2 if small else 32, size, 1000)


class GPT2(nn.Module):
    """GPT-2 (Radford et al. 2019). Its output layer shares the weights of the embedding."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def _language(model: nn.Module, device: torch.device, vocabulary: int, batch: int, length: int) -> Made:
    ids = torch.randint(0, vocabulary, (batch, length), device=device)
    after = torch.randint(0, vocabulary, (batch * length,), device=device)
    return model.to(device), (ids,), lambda logits: functional.cross_entropy(logits.flatten(0, 1).float(), after)


def gpt2(device: torch.device, small: bool) -> Made:
    if small:
        return _language(GPT2(1003, 64, 1, 2, 32), device, 1003, 2, 32)
    return _language(GPT2(50257, 768, 12, 12, 1024), device, 50257, 8, 1024)


class LlamaBlock(nn.Module):
    """A decoder block as in Llama (Touvron et al. 2023), with RMS norm, rotary positions and SwiGLU."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, size = heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.register_buffer("angles", 10000.0 ** -(torch.arange(0, size, 2) / size), persistent=False)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        angle = torch.arange(x.shape[2], device=x.device)[:, None] * self.angles
        cos, sin = (f(torch.cat([angle, angle], 1)).to(x.dtype) for f in (torch.cos, torch.sin))
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(batch, length, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(self._turned(q), self._turned(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        inner = 64 * math.ceil(width * 8 / 3 / 64)
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(LlamaBlock(width, heads, inner) for _ in range(depth)))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(ids))))


def llama(device: torch.device, small: bool) -> Made:
    model, *sizes = (Llama(1003, 64, 1, 2), 1003, 2, 32) if small else (Llama(32003, 2048, 8, 16), 32003, 4, 2048)
    return _language(model.to(torch.bfloat16), device, *sizes)


def _perceptron(device: torch.device, small: bool, act: Callable[[], nn.Module]) -> Made:
    """Make a stack of wide linear layers with activations in between, as in a recommender (Naumov et al. 2019)."""
    width, depth, batch = (32, 2, 8) if small else (4096, 6, 8192)
    layers = [x for _ in range(depth) for x in (nn.Linear(width, width), act())]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    inputs = torch.randn(batch, width, device=device)
    return model, (inputs,), lambda scores: scores.float().square().mean()


def mlp(device: torch.device, small: bool) -> Made:
    return _perceptron(device, small, nn.ReLU)


def mlp_inference(device: torch.device, small: bool) -> Made:
    return _perceptron(device, small, lambda: nn.GELU(approximate="tanh"))


MODELS: dict[str, Model] = {
    "resnet50": Model(resnet50, torch.bfloat16),
    "resnext50": Model(resnext50),
    "mobilenet_v2": Model(mobilenet_v2, torch.bfloat16),
    "convnext_tiny": Model(convnext_tiny, torch.bfloat16),
    "unet": Model(unet),
    "vit_b": Model(vit_b),
    "gpt2": Model(gpt2, torch.bfloat16),
    "llama": Model(llama),
    "mlp": Model(mlp, torch.bfloat16),
    "mlp_inference": Model(mlp_inference, torch.bfloat16, trains=False),
}


def model_of(name: str) -> Model:
    """Return the model with this name, from ``MODELS`` or from an installed library.

    For example ``resnet50`` or ``torchvision.densenet121:inference``. Raises KeyError if the name is unknown.
    """
    if name in MODELS:
        return MODELS[name]
    path, *options = name.split(":")
    library, _, rest = path.partition(".")
    autocast, trains = None if "float32" in options else torch.bfloat16, "inference" not in options
    make = {"torchvision": _of_torchvision, "transformers": _of_transformers}[library]
    return Model(lambda device, small: make(rest, device, small, trains), autocast, trains)


def _of_torchvision(name: str, device: torch.device, small: bool, trains: bool) -> Made:
    models = importlib.import_module("torchvision").models
    weights = {x for x in inspect.signature(models.get_model_builder(name)).parameters if x.startswith("weights")}
    classes = 21 if name in models.list_models(module=models.segmentation) else 1000
    model = models.get_model(name, **dict.fromkeys(weights), num_classes=classes).to(device)
    frames = (16,) if type(model).__name__ == "VideoResNet" else ()
    size = 112 if frames else 224
    images = torch.randn(2 if small else 16 if frames else 64, 3, *frames, *((64, 64) if small else (size, size)))
    return model, (images.to(device),), _some_loss


def _of_transformers(name: str, device: torch.device, small: bool, trains: bool) -> Made:
    """Make a model of the library transformers, with random inputs and a loss function.

    In training, the model computes its loss itself, as in the library's own training loop.
    """
    kind = getattr(importlib.import_module("transformers"), name)
    model = kind(kind.config_class(**(_SMALL if small else {}))).to(device).train()
    sizes = (2, 32) if small else (16, 512)
    ids, labels = (torch.randint(0, model.config.vocab_size, sizes, device=device) for _ in range(2))
    return model, {"input_ids": ids} | ({"labels": labels} if trains else {}), lambda output: output.loss


def _some_loss(output: Any) -> torch.Tensor:
    """Return the cross entropy of a model's output with random classes, as a loss for training.

    Segmentation models return their output in a dict, under "out".
    """
    logits = output if isinstance(output, torch.Tensor) else output["out"]
    labels = torch.randint(0, logits.shape[1], (logits.shape[0], *logits.shape[2:]), device=logits.device)
    return functional.cross_entropy(logits.float(), labels)


_SMALL = dict.fromkeys(("hidden_size", "d_model"), 96) | dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff"), 192)
_SMALL |= dict.fromkeys(("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers"), 2)
"""Small sizes, under the names that transformers' configurations use."""
