"""The change that stores images with their channels next to each other (NHWC), alone or with cuDNN's benchmark mode.

It affects all convolutions and every other operator that reads or writes an image: batch norm, pooling, elementwise
operators, concatenation. It removes copies that only change the layout of an image. Such copies within a convolution
need no rule here, because a replay times them together with the convolution. Two costs are added: the inputs of the
model change their layout once per step, and some gradients that PyTorch still writes in NCHW change theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.actions import cudnn_benchmark
from analyzers.actions.action import Action, Application, Change, definitions
from analyzers.actions.job import Image, Job, Work, channels_last, fill_unknown_dtypes, map_operands
from logparse.model import ConvProblem, Operand, OperatorProblem
from logparse.quoting import Python

MODEL = (
    Python("model = model.to(memory_format=torch.channels_last)"),
    Python("model.register_forward_pre_hook(turn_images)"),
)
_ROCM = {"PYTORCH_MIOPEN_SUGGEST_NHWC": "1", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM": "1"}


def _changed(work: Work, job: Job, benchmark: bool) -> Change | None:
    problem = work.problem
    if isinstance(problem, ConvProblem):
        if problem.spatial != 2 or problem.in_layout == "NHWC":
            return None
        return Change(problem, "torch:layout=NHWC,stored" + ",benchmark" * benchmark)
    if not isinstance(problem, OperatorProblem):
        return None
    before = fill_unknown_dtypes(job, problem)
    after = map_operands(before, lambda operand: channels_last(job, operand))
    if after == before:
        return None
    return Change(None if _only_turns(before) and not _only_turns(after) else after)


def _only_turns(problem: OperatorProblem) -> bool:
    """Tell whether the operator does nothing but copy an image into another memory layout."""
    tensors = problem.tensors
    if problem.name != "aten::copy_" or len(tensors) != 2:
        return False
    to, source = tensors
    return to.dtype == source.dtype and to.sizes == source.sizes and to.strides != source.strides


def inputs(job: Job) -> tuple[Image, ...]:
    """Return the sizes (n, c, h, w) of the images that the model gets as input.

    An image is assumed to be an input if it has at most four channels and no convolution writes it.
    """
    forward = [p for p in job.convolutions if p.direction == "F" and p.spatial == 2]
    written = {(p.n, p.k, p.out_h, p.out_w) for p in forward}
    read = {(p.n, p.c, p.h, p.w) for p in forward if (p.c or 0) <= 4}
    return tuple(sorted((n, c, h, w) for n, c, h, w in read - written if n and c and h and w))


def _added(job: Job) -> tuple[Work, ...]:
    turned = [(image, job.steps) for image in inputs(job)] + list(_gradients_of_means(job))
    if job.image_type is None or job.steps is None:
        return ()
    return tuple(Work(problem=_turn(job.image_type, image), calls=calls, us=None) for image, calls in turned)


def _turn(dtype: str, image: Image) -> OperatorProblem:
    _, c, h, w = image
    to, source = (Operand(dtype, image, (c * h * w, *steps)) for steps in ((1, w * c, c), (h * w, w, 1)))
    return OperatorProblem("aten::copy_", (to, source, "False"))


def _gradients_of_means(job: Job) -> Iterator[tuple[Image, float]]:
    """Yield sizes of images whose gradient PyTorch writes in NCHW in spite of channels_last, and how many there are.

    An example is the gradient of a mean over rows and columns, as in squeeze and excitation. PyTorch divides an
    expanded tensor there. The strides of this tensor show no layout, so PyTorch writes NCHW. The sum with the image's
    other gradient then reads two layouts and takes longer. For 64×576×14×14 in BF16 on an H200, it takes 51 µs instead
    of 11 µs. The difference of 51 − 11 = 40 µs is about the time of one more copy.
    """
    operators = [(x.problem, x.calls or 0.0) for x in job.work if isinstance(x.problem, OperatorProblem)]
    sums: dict[tuple[int, ...], float] = {}
    for problem, calls in operators:
        if problem.name in ("aten::add", "aten::add_") and problem.tensors:
            sizes = problem.tensors[0].sizes
            sums[sizes] = sums.get(sizes, 0.0) + calls
    for problem, calls in operators:
        if problem.name != "aten::div" or not problem.tensors:
            continue
        sizes, strides = problem.tensors[0].sizes, problem.tensors[0].strides
        if len(sizes) == 4 and strides[2:] == (0, 0) and sizes in job.images and sums.get(sizes):
            n, c, h, w = sizes
            yield (n, c, h, w), min(calls, sums[sizes])


def _application(job: Job, benchmark: bool) -> Application | None:
    layouts = {p.in_layout for p in job.convolutions if p.spatial == 2}
    if not layouts or layouts == {"NHWC"} or (benchmark and not job.is_gpu):
        return None
    rocm = job.backend == "HIP"
    lines: list[str] = [MODEL[0], "inputs = inputs.to(memory_format=torch.channels_last)"]
    lines += cudnn_benchmark.SETTINGS if benchmark else ()
    lines += [f"{name}={value} in the environment" for name, value in _ROCM.items()] if rocm else ()
    return Application(
        line="; ".join(lines),
        settings=cudnn_benchmark.SETTINGS if benchmark else (),
        model=MODEL,
        helpers=(definitions("layout"),),
        environment=_ROCM if rocm else {},
        in_force=cudnn_benchmark.IN_FORCE if benchmark else {},
    )


def _action(name: str, about: str, benchmark: bool = False) -> Action:
    return Action(
        name=name,
        kind="program",
        about=about,
        change=lambda work, job: _changed(work, job, benchmark or "cudnn_benchmark" in job.settings),
        application=lambda job: _application(job, benchmark),
        added=_added,
        contains=("channels_last", "cudnn_benchmark") if benchmark else (),
        needs=cudnn_benchmark.ACTION.needs if benchmark else "",
    )


ACTION = _action("channels_last", "store images as channels_last (NHWC)")
WITH_BENCHMARK = _action(
    "channels_last_benchmark",
    "store images as channels_last (NHWC), and let PyTorch time every plan of each convolution",
    True,
)
