"""``torch.backends.cudnn.benchmark`` with every plan tried: the fastest plan of each convolution, found in the job."""

from __future__ import annotations

from analyzers.actions.action import Action, Application, Change
from analyzers.actions.job import Job, Work
from logparse.model import ConvProblem

SETTINGS = ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark_limit = 0")


def _change(work: Work, job: Job) -> Change | None:
    return Change(work.problem, "torch:benchmark") if isinstance(work.problem, ConvProblem) else None


def _application(job: Job) -> Application | None:
    if not job.is_gpu or not job.convolutions:
        return None
    return Application(line="; ".join(SETTINGS), settings=SETTINGS)


ACTION = Action(
    name="cudnn_benchmark",
    kind="setting",
    about="let PyTorch time every plan of cuDNN (MIOpen: find) for each convolution at its first call",
    change=_change,
    application=_application,
    needs="sizes that do not vary: each new size is searched again, for seconds",
)
