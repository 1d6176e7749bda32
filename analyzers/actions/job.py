"""Describe a job by the calls of each operator and their GPU time, to predict what a change would save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from analyzers.evidence.joins import agreed_facts, calls_by_problem
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import units, word_of
from analyzers.job.epilogues import Epilogue, epilogues, gradients, trains
from analyzers.job.gpu_time import kernels_of_run, steps, traced_us
from logparse.libraries.kinds.dtypes import TORCH_TYPES
from logparse.model import DEFAULT, ConvProblem, GemmProblem, Operand, OperatorProblem, Problem, problem_from_text

OPERAND_TYPES: Mapping[str, str] = {x.blas: x.operand for x in TORCH_TYPES}
"""Maps the name of a matrix's element type in logparse to its name in PyTorch."""
Image = tuple[int, int, int, int]
"""The sizes n, c, h, w of a tensor that a convolution reads or writes."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """All calls of one operator with one set of sizes in a job.

    * ``us``: GPU time of the calls in the run's traces, µs. None if no trace contains them. If the time is known,
      ``calls`` is also the number in the traces.
    * ``solution``: the kernel that computes the calls now, as a replay names it.
    * ``tail``: the kernels after a matrix product, if ``problem`` is a product together with these kernels. Their time
      is in ``us``. Other entries contain it, too: the entry of the product alone, and the entries of the kernels'
      operators.
    * ``of``: the text of the operator in the run's files, if ``problem`` is another description of the same calls.
    * ``replaced``: True if the kernels that run now are not the kernels of ``problem``. A replay cannot run them, so
      only the trace has their time.
    """

    problem: Problem
    calls: float | None
    us: float | None
    kernels: str = ""
    solution: str = DEFAULT.text
    tail: Epilogue | None = None
    of: str = ""
    replaced: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A job as far as changes to it are concerned: its calls and facts about it.

    * ``total_us``: GPU time of the run's traces, µs. None without a trace.
    * ``backend``: CUDA, HIP, CPU or unknown.
    * ``pairs``: matrix products together with the kernels after them.
    * ``gelus``: GELUs (and their gradients) that the model writes out as a formula, each as the operator that would
      compute it. ``work`` also contains the calls of ``pairs`` and ``gelus``, each kernel by itself.
    * ``trains``: True if gradients are computed.
    * ``word``: the user's word for a step.
    * ``settings``: settings of PyTorch that the job already uses: ``cudnn_benchmark``, ``tf32``, and ``blas=`` with
      PyTorch's name of the preferred library. A change that sets one of them again has no effect.
    """

    work: tuple[Work, ...]
    total_us: float | None
    steps: float | None
    backend: str | None
    arch: str | None = None
    pairs: tuple[Work, ...] = ()
    gelus: tuple[Work, ...] = ()
    trains: bool = False
    word: str = "step"
    settings: frozenset[str] = frozenset()

    @cached_property
    def convolutions(self) -> tuple[ConvProblem, ...]:
        return tuple(x.problem for x in self.work if isinstance(x.problem, ConvProblem))

    @cached_property
    def gemms(self) -> tuple[GemmProblem, ...]:
        return tuple(x.problem for x in self.work if isinstance(x.problem, GemmProblem))

    @cached_property
    def images(self) -> frozenset[Image]:
        """The sizes (n, c, h, w) of all images that two-dimensional convolutions read or write."""
        return frozenset(x for p in self.convolutions if p.spatial == 2 for x in _images(p))

    @cached_property
    def image_type(self) -> str | None:
        """The data type of most convolutions' inputs in the job, by PyTorch's name, for example ``bfloat16``."""
        types = pd.Series([p.in_type for p in self.convolutions if p.in_type], dtype="object")
        return _TORCH.get(str(types.mode().iloc[0])) if len(types) else None

    @property
    def is_gpu(self) -> bool:
        return self.backend in ("CUDA", "HIP")


_TORCH: Mapping[str, str] = {"FP16": "float16", "BF16": "bfloat16", "FP32": "float32", "FP64": "float64"}


def _images(p: ConvProblem) -> Iterator[Image]:
    for sizes in ((p.n, p.c, p.h, p.w), (p.n, p.k, p.out_h, p.out_w)):
        n, c, h, w = sizes
        if n is not None and c is not None and h is not None and w is not None:
            yield n, c, h, w


def job_of(tables: Tables, settings: Settings) -> Job:
    """Describe a job by its traces: the calls of each operator with their GPU times.

    Without a trace, the numbers of calls come from the job's logs, and no times are known.
    """
    kernels = kernels_of_run(tables)
    facts = agreed_facts(tables.facts[tables.facts["run"] == tables.run])
    total = traced_us(tables)
    counted = tables.calls[tables.calls["category"] == "profiler"].groupby("problem")["count"].sum()
    calls = {str(x): float(n) for x, n in (counted if total else calls_by_problem(tables.workload)).dropna().items()}
    traced = kernels[kernels["problem"].notna()].groupby("problem")
    us, names = traced["total_us"].sum(), traced["kernel"].agg(" ".join)
    work = [
        Work(
            problem=problem_from_text(text),
            calls=calls.get(text),
            us=float(us[text]) if total else None,
            kernels=str(names.get(text, "")),
        )
        for text in (map(str, us.index) if total else calls)
    ]
    if "operator" in kernels and total:
        operators = kernels[kernels["operator"].notna() & kernels["problem"].isna()].groupby("operator")
        # An operator's kernels are counted, not its calls. Its most launched kernel runs about once per call.
        times, launches = operators["total_us"].sum(), operators["calls"].max()
        work += [
            Work(problem=problem_from_text(str(text)), calls=float(count), us=float(time))
            for text, time, count in zip(times.index, times, launches, strict=True)
        ]
    found = units(tables)
    in_force = found.settings if found else frozenset()
    if "cudnn_benchmark" in in_force:
        work = [replace(x, solution="torch:benchmark") if isinstance(x.problem, ConvProblem) else x for x in work]
    return Job(
        work=tuple(work),
        total_us=total,
        steps=steps(tables, settings)[0] if total else settings.steps,  # A log counts the calls of the whole job.
        backend={"sm_": "CUDA", "gfx": "HIP"}.get(facts.get("arch", "")[:3]) or facts.get("backend"),
        arch=facts.get("arch"),
        pairs=_pairs(tables, work),
        gelus=_gelus(tables),
        trains=trains(tables),
        word=word_of(tables),
        settings=in_force,
    )


def _pairs(tables: Tables, work: Sequence[Work]) -> tuple[Work, ...]:
    """Return the matrix products that are followed by kernels for a bias or an activation, with these kernels.

    Times are in µs.
    """
    found = epilogues(tables)
    traced = tables.calls[tables.calls["category"] == "profiler"].groupby("problem")["count"].sum()
    us = {x.problem.text: x.us for x in work if x.us is not None}
    out = []
    for tail in found:
        text = tail.problem.text
        if text in us and text in traced and tail.problem.batch_count == 1:
            # The time of an entry is the product's time in the calls that such kernels follow, plus the time of the
            # kernels.
            product = us[text] * min(1.0, tail.calls / float(traced[text]))
            one = Work(problem=tail.fused, calls=float(tail.calls), us=product + tail.us, solution=tail.as_run)
            out.append(replace(one, tail=tail, of=text))
    return tuple(out)


def _gelus(tables: Tables) -> tuple[Work, ...]:
    forward = [("gelu", 1, x.problem, x.calls, x.us - x.bias_us) for x in epilogues(tables) if x.form == "written"]
    backward = [("gelu_backward", 2, x.problem, x.calls, x.us) for x in gradients(tables)]
    out = []
    for name, tensors, p, calls, us in (*forward, *backward):
        dtype = OPERAND_TYPES.get(p.d_type or "")
        if dtype is not None and p.m is not None and p.n is not None and p.batch_count == 1:
            tensor = Operand(dtype, (p.n, p.m), (p.m, 1))
            one = OperatorProblem(f"aten::{name}", (*[tensor] * tensors, ""))  # Both forms of GELU take the same time.
            out.append(Work(problem=one, calls=float(calls), us=us, replaced=True))
    return tuple(out)


def channels_last(job: Job, operand: Operand) -> Operand:
    """Return the tensor in the layout NHWC (channels next to each other) if it is an image in another layout."""
    sizes, strides = operand.sizes, operand.strides
    if len(sizes) != 4 or 0 in sizes or 0 in strides:
        return operand
    # A slice of an image's channels is also converted, for example the gradient of one input of a concatenation.
    n, c, h, w = sizes
    whole = strides[0] // (h * w)
    if (n, whole, h, w) in job.images and strides == (whole * h * w, h * w, w, 1) and c > 1 and h * w > 1:
        return Operand(operand.dtype, sizes, (whole * h * w, 1, w * whole, whole))
    # A view of an image with permuted dimensions (n, h, w, c) is also converted.
    n, h, w, c = sizes
    if (n, c, h, w) in job.images and strides == (c * h * w, w, 1, h * w) and c > 1 and h * w > 1:
        return Operand(operand.dtype, sizes, (c * h * w, w * c, c, 1))
    return operand


def fill_unknown_dtypes(job: Job, problem: OperatorProblem) -> OperatorProblem:
    """Fill in the tensor types that a trace did not record, by assuming the type of the job's images.

    If the type of the images is unknown, the operator is returned as it is.
    """
    if job.image_type is None or all(x.dtype != "?" for x in problem.tensors):
        return problem

    # A trace does not record the types of tensors in a list, for example the inputs of a concatenation.
    def known(operand: Operand) -> Operand:
        dtype = str(job.image_type) if operand.dtype == "?" else operand.dtype
        return Operand(dtype, operand.sizes, operand.strides)

    return map_operands(problem, known)


def map_operands(problem: OperatorProblem, change: Callable[[Operand], Operand]) -> OperatorProblem:
    inputs = (
        change(x) if isinstance(x, Operand) else tuple(map(change, x)) if isinstance(x, tuple) else x
        for x in problem.inputs
    )
    return OperatorProblem(problem.name, tuple(inputs))
