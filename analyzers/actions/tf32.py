"""The change that computes float32 matrix products in TF32, a shorter format with a mantissa of 10 bits."""

from __future__ import annotations

from analyzers.actions.action import Action, Application, Change, definitions
from analyzers.actions.job import Job, Work
from logparse.model import GemmProblem, Problem
from logparse.quoting import Python

SETTINGS = (Python("torch.backends.cuda.matmul.allow_tf32 = True"),)
_IN_FORCE = {"torch.backends.cuda.matmul.allow_tf32": Python("computes_in_tf32()")}
_NO_TF32 = ("sm_5", "sm_6", "sm_70", "sm_72", "sm_75")


def _in_full(problem: Problem) -> bool:
    return isinstance(problem, GemmProblem) and problem.a_type == "f32_r" and problem.compute_type in (None, "f32_r")


def _change(work: Work, job: Job) -> Change | None:
    if _in_full(work.problem) and "tf32" in job.settings:
        return Change(work.problem, work.solution)
    if not _in_full(work.problem) or "tf32" in work.kernels.lower():
        return None
    return Change(work.problem, "torch:tf32")


def _application(job: Job) -> Application | None:
    older = job.arch is not None and job.arch.startswith(_NO_TF32)
    if job.backend != "CUDA" or older or not any(map(_in_full, job.gemms)):
        return None
    return Application(line=SETTINGS[0], settings=SETTINGS, helpers=(definitions("tf32"),), in_force=_IN_FORCE)


ACTION = Action(
    name="tf32",
    kind="setting",
    about="compute float32 matrix products in TF32",
    change=_change,
    application=_application,
    exact=False,
    needs="a model that tolerates matrix products with a mantissa of 10 bits (TF32 has the exponent of float32)",
)
