"""Read the inputs of the GPU benchmarks: GEMMs of a log, and convolutions of a find-db or of models.

No store and no DuckDB is needed.
"""

from __future__ import annotations

import bz2
import gzip
import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from analyzers.evidence.passes import backward_weights, passes_of
from analyzers.evidence.tables import Settings
from logparse.libraries.hipblaslt import bench, log, profile
from logparse.libraries.kinds.backend import UnsupportedError
from logparse.libraries.kinds.device.operands import conv_shapes
from logparse.libraries.kinds.format import LineFormat, Outcome
from logparse.libraries.miopen import find_db
from logparse.libraries.miopen.problem_key import problem_from_key
from logparse.model import Call, ConvProblem, GemmProblem, Problem

LEAST_FLOPS = 2e9
_LOGS: tuple[LineFormat, ...] = (profile.FORMAT, bench.FORMAT, log.FORMAT)


def _opened(path: str | None, what: str) -> BinaryIO:
    if path is None:
        sys.exit(f"this record needs its input: {what}")
    opener: Callable[..., Any] = {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix, open)
    stream: BinaryIO = opener(path, "rb")
    return stream


def _lines(stream: BinaryIO) -> Iterator[str]:
    with stream:
        for line in stream:
            yield line.decode("utf-8", "replace").rstrip("\n")


# ------------------------------------------------------------------------------------------------ GEMMs of a log


@dataclass
class Gemms:
    """The different GEMMs in a log, each with its number of calls.

    ``workspaces`` and ``picks`` (the kernels that the library chose) are dictionaries by the text of the GEMM.
    """

    calls: Counter[Problem] = field(default_factory=Counter)
    workspaces: dict[str, int] = field(default_factory=dict)
    picks: dict[str, set[str]] = field(default_factory=dict)
    categories: Counter[str] = field(default_factory=Counter)

    @property
    def problems(self) -> list[Problem]:
        """The GEMMs, the most called first."""
        return [problem for problem, _ in self.calls.most_common()]

    @property
    def about(self) -> Mapping[str, Mapping[str, Any]]:
        """For each GEMM, how often the log has it and which kernels the library chose.

        The benchmark's result file has these facts beside the measured times.
        """
        return {
            problem.text: {"calls": count, "logged_picks": sorted(self.picks.get(problem.text, ()))}
            for problem, count in self.calls.items()
        }


def gemms_of(path: str | None) -> Gemms:
    """Read the GEMMs from a log with Trace, bench or profile lines. Grouped GEMMs are left out.

    The log may be packed (.gz).
    """
    found = Gemms()
    for line in _lines(_opened(path, "--log")):
        for call in _read(line).records:
            if not isinstance(call, Call) or not isinstance(call.problem, GemmProblem) or call.problem.members:
                continue
            text = call.problem.text
            found.calls[call.problem] += call.count or 1
            found.categories[call.category] += 1
            if call.workspace_bytes is not None:
                found.workspaces[text] = max(found.workspaces.get(text, 0), call.workspace_bytes)
            if call.solution is not None:
                found.picks.setdefault(text, set()).add(call.solution.text)
    return found


def _read(line: str) -> Outcome:
    data = line.encode()
    for format in _LOGS:
        if any(marker in data for marker in format.markers):
            return format.read(line)
    return Outcome("foreign")


# ------------------------------------------------------------------------------------------------ W of a find-db


def sampled_wgrads(path: str | None, count: int, seed: int, direction: str = "W") -> list[Problem]:
    """Choose random convolutions above 2 GFLOP of one direction from a MIOpen find-db.

    The direction is F (forward), B (backward data) or W (weight gradient). The same ``seed`` gives the same sample.
    """
    # Convolutions that torch cannot run are left out.
    found = set()
    for line in _lines(_opened(path, "--find-db")):
        try:
            problem = problem_from_key(line.partition("=")[0])
        except ValueError:
            continue
        if _is_wanted(problem, direction):
            found.add(problem)
    ordered = sorted(found, key=lambda problem: problem.text)
    return random.Random(seed).sample(ordered, min(count, len(ordered)))


def slow_wgrads(path: str | None) -> list[Problem]:
    """Return the convolutions above 2 GFLOP in a find-db whose weight gradient is slow, the largest loss of time first.

    The rule is the one of ``logparse recommend``.
    """
    # A weight gradient is slow if it takes much longer than the forward and backward-data passes of the same layer.
    found = [
        outcome.tables["measurements"] for outcome in find_db.read(_FindDb(path)) if "measurements" in outcome.tables
    ]
    measured = _frame(found, "origin", "kind", "problem", "solution", "status", "time_us")
    w = backward_weights(passes_of(measured.assign(source_id="find-db")), Settings())
    w = w[w["slow"]].assign(loss=w["best_us"] - w["sibling_us"]).sort_values(["loss", "problem"], ascending=False)
    by_text = {problem.text: problem for problem in sampled_wgrads(path, sys.maxsize, 0)}
    return [by_text[text] for text in w["problem"] if text in by_text]


# ------------------------------------------------------------------------------------------------ models' convolutions


MODELS = (
    *("alexnet", "convnext_tiny", "deeplabv3_mobilenet_v3_large", "densenet121", "efficientnet_b0"),
    *("efficientnet_v2_s", "fcn_resnet50", "googlenet", "inception_v3", "mnasnet1_0", "mobilenet_v2"),
    *("mobilenet_v3_large", "regnet_x_1_6gf", "regnet_y_3_2gf", "resnet18", "resnet50", "resnext50_32x4d"),
    *("shufflenet_v2_x1_0", "squeezenet1_1", "vgg16", "wide_resnet50_2"),
)
"""Names of the torchvision models whose convolutions are measured."""
_BATCH, _IMAGE = 32, 224


def model_convolutions(direction: str, per_model: int, seed: int) -> dict[Problem, tuple[str, ...]]:
    """Return a random sample of at most ``per_model`` different BF16 convolutions of each model.

    Each convolution comes with the names of all models that contain it. The models run without memory (torch's ``meta``
    device). Raises ImportError without torchvision.
    """
    found: dict[Problem, set[str]] = {}
    sampled: dict[Problem, None] = {}
    for name in MODELS:
        problems = list(dict.fromkeys(_convolutions(name, direction)))
        for problem in problems:
            found.setdefault(problem, set()).add(name)
        drawn = random.Random(f"{seed} {name} {direction}").sample(problems, min(per_model, len(problems)))
        sampled |= dict.fromkeys(drawn)
    return {x: tuple(sorted(found[x])) for x in sampled}


def _convolutions(name: str, direction: str) -> list[Problem]:
    """Return the 2D convolutions of a model, for one direction.

    For direction B (backward data), the convolutions of the input images (3 channels) are left out, because images need
    no gradient.
    """
    import torch
    import torchvision

    out: list[Problem] = []

    def seen(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if direction != "B" or inputs[0].shape[1] != 3:
            out.append(_convolution(module, inputs[0].shape, output.shape, direction))

    builder = torchvision.models.get_model_builder(name)
    weights = {x for x in inspect.signature(builder).parameters if x.startswith("weights")}
    model = builder(**dict.fromkeys(weights)).eval().to("meta")
    with torch.device("meta"), torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.register_forward_hook(seen)
        model(torch.empty(_BATCH, 3, _IMAGE, _IMAGE))
    return out


def _convolution(module: Any, x: tuple[int, ...], y: tuple[int, ...], direction: str) -> ConvProblem:
    return ConvProblem(
        direction=direction,  # type: ignore[arg-type]
        n=x[0], c=x[1], h=x[2], w=x[3], k=y[1], out_h=y[2], out_w=y[3],
        filter_h=module.kernel_size[0], filter_w=module.kernel_size[1],
        pad_h=module.padding[0], pad_w=module.padding[1],
        stride_h=module.stride[0], stride_w=module.stride[1],
        dilation_h=module.dilation[0], dilation_w=module.dilation[1],
        groups=module.groups, bias=0, mode="convolution",
        in_type="BF16", weights_type="BF16", out_type="BF16",
        in_layout="NCHW", weights_layout="NCHW", out_layout="NCHW",
    )  # fmt: skip


@dataclass(frozen=True)
class _FindDb:
    """Opens a find-db file for logparse's readers, which expect an object with these methods."""

    path: str | None

    @property
    def name(self) -> str:
        return Path(self.path or "").name.removesuffix(".bz2").removesuffix(".gz")

    def open(self) -> BinaryIO:
        return _opened(self.path, "--find-db")

    def lines(self) -> Iterator[Any]:
        raise NotImplementedError

    def local_path(self) -> str:
        raise NotImplementedError


def _frame(tables: list[pa.Table], *columns: str) -> Any:
    """Join the columns of several tables into one DataFrame of plain strings and numbers."""
    plain = []
    for table in tables:
        chosen = table.select(list(columns))
        types = [pa.string() if pa.types.is_dictionary(x.type) else x.type for x in chosen.schema]
        plain.append(chosen.cast(pa.schema(list(zip(columns, types, strict=True)))))
    return pa.concat_tables(plain).to_pandas()


def _is_wanted(problem: Problem, direction: str) -> bool:
    if not isinstance(problem, ConvProblem) or problem.direction != direction or (problem.flops or 0) <= LEAST_FLOPS:
        return False
    try:
        conv_shapes(problem)
    except UnsupportedError:
        return False
    return problem.in_layout == "NCHW"
