"""The change that lets the job itself find the fastest kernel of each convolution (``torch.backends.cudnn.benchmark``).

It also sets ``benchmark_limit = 0``, so that PyTorch tries every plan of cuDNN. On ROCm this setting switches MIOpen's
find mode to NORMAL, with tuning, for each convolution (PyTorch 2.7 and later, ``ATen/native/miopen/Conv_miopen.cpp``).
``MIOPEN_FIND_MODE=1`` alone, which does not tune, is not offered. MIOpen reads this variable once per process, so a
replay cannot time it beside the default.
"""

from __future__ import annotations

from analyzers.actions.action import Action, Application, Change
from analyzers.actions.job import Job
from logparse.model import ConvProblem
from logparse.quoting import Python

SETTINGS = (Python("torch.backends.cudnn.benchmark = True"), Python("torch.backends.cudnn.benchmark_limit = 0"))
IN_FORCE = {
    "torch.backends.cudnn.benchmark": Python("torch.backends.cudnn.benchmark"),
    "torch.backends.cudnn.benchmark_limit": Python("torch.backends.cudnn.benchmark_limit == 0"),
}


def _application(job: Job) -> Application | None:
    if not job.is_gpu or not job.convolutions:
        return None
    return Application(line="; ".join(SETTINGS), settings=SETTINGS, in_force=IN_FORCE)


ACTION = Action(
    name="cudnn_benchmark",
    kind="setting",
    about="let PyTorch time every cuDNN plan (on ROCm: every MIOpen solver) of each convolution at its first call",
    change=lambda work, job: Change(work.problem, "torch:benchmark") if isinstance(work.problem, ConvProblem) else None,
    application=_application,
    needs=(
        "a job whose input sizes rarely change, because PyTorch spends seconds on a search for each new size. On ROCm, "
        "MIOpen then also ignores your override files, and writes its own choices"
    ),
)
