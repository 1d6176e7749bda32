"""Image models in plain torch with random weights, for machines without torchvision.

Layers, shapes and parameter counts are those in torchvision. Sources: He et al., 2015 (ResNet-50), and Radosavovic et
al., 2020 (RegNetY-3.2GF).
"""

# ResNet-50 has the stride in the 3×3, as in torchvision, and 25,557,032 parameters. RegNetY-3.2GF has grouped 3×3
# convolutions with squeeze and excitation, and 19,436,338 parameters.

from __future__ import annotations

import torch
from torch import nn

REGNET_WIDTHS, REGNET_DEPTHS, REGNET_GROUP = (72, 216, 576, 1512), (2, 5, 13, 1), 24


def convolution(
    c: int, k: int, window: int = 1, stride: int = 1, groups: int = 1, *, relu: bool = True
) -> nn.Sequential:
    """Make a convolution and a batch norm, followed by a ReLU if ``relu`` is True."""
    conv = nn.Conv2d(c, k, window, stride, window // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(k), *([nn.ReLU(inplace=True)] if relu else []))


class Residual(nn.Module):
    """A block of layers whose output is added to its input.

    If the shape changes, a 1×1 convolution of the input is added instead.
    """

    def __init__(self, body: nn.Sequential, c: int, k: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.beside = nn.Identity() if (c, stride) == (k, 1) else convolution(c, k, 1, stride, relu=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the ReLU of the sum."""
        return torch.relu_(self.body(x) + self.beside(x))


class SqueezeExcite(nn.Module):
    """A layer that weights each channel. The weights come from two 1×1 convolutions of the means of all channels."""

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, squeezed, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(squeezed, width, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the weighted channels."""
        return x * self.weigh(x)


def resnet50() -> nn.Sequential:
    """Make ResNet-50, with 3, 4, 6 and 3 bottlenecks."""
    return _bottlenecks(64, 1)


def _bottlenecks(width: int, groups: int) -> nn.Sequential:
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    c = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        inner, k = width << stage, 256 << stage
        for index in range(depth):
            stride = 2 if stage and not index else 1
            body = nn.Sequential(
                convolution(c, inner), convolution(inner, inner, 3, stride, groups), convolution(inner, k, relu=False)
            )
            layers.append(Residual(body, c, k, stride))
            c = k
    return nn.Sequential(*layers, *_head(c))


def resnext50() -> nn.Sequential:
    """Make ResNeXt-50: ResNet-50 with 3×3 convolutions of 32 groups, twice as wide (Xie et al., 2017).

    It has 25,028,904 parameters.
    """
    return _bottlenecks(128, 32)


def regnet_y_3_2gf() -> nn.Sequential:
    """Make RegNetY-3.2GF.

    Every stage begins with stride 2. In each block, squeeze and excitation has a quarter of the input channels.
    """
    layers: list[nn.Module] = [convolution(3, 32, 3, 2)]
    c = 32
    for k, depth in zip(REGNET_WIDTHS, REGNET_DEPTHS, strict=True):
        for index in range(depth):
            stride = 1 if index else 2
            body = nn.Sequential(
                convolution(c, k),
                convolution(k, k, 3, stride, k // REGNET_GROUP),
                SqueezeExcite(k, round(c / 4)),
                convolution(k, k, relu=False),
            )
            layers.append(Residual(body, c, k, stride))
            c = k
    return nn.Sequential(*layers, *_head(c))


def _head(c: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000)
