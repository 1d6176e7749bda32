"""Changes that make PyTorch compute attention (``scaled_dot_product_attention``) with another backend.

Attention on the math backend is not changed, because a trace shows it as matrix products and a softmax.
"""

from __future__ import annotations

from analyzers.actions.action import Action, Application, Change, definitions
from analyzers.actions.job import Job, Work
from logparse.libraries.kinds.device.attention_backends import BACKENDS, ELSEWHERE, backend_of
from logparse.model import OperatorProblem, Problem
from logparse.quoting import Python, joined, python_line, python_literal

HELPER = definitions("attention")


def _backend(problem: Problem) -> str | None:
    return backend_of(problem.name) if isinstance(problem, OperatorProblem) else None


def _change(work: Work, backend: str) -> Change | None:
    now = _backend(work.problem)
    return None if now is None or now == backend else Change(work.problem, f"torch:sdpa={backend}")


def _application(job: Job, backend: str) -> Application | None:
    now = [x for work in job.work if (x := _backend(work.problem)) is not None]
    if not set(now) - {backend} or backend in ELSEWHERE.get(job.backend or "", ()):
        return None
    if job.backend == "CPU":  # The CPU has no order of backends of its own.
        line = Python("torch.backends.cuda.enable_flash_sdp(False)")
        return Application(line=line, settings=(line,))
    # If a backend refuses an operand (a mask, a size), the call stays on its present backend.
    order = [BACKENDS[x] for x in dict.fromkeys((backend, *now, "flash", "efficient", "cudnn", "math"))]
    order = [x for x in order if x != "CUDNN_ATTENTION" or job.backend != "HIP"]
    names = ", ".join(f"SDPBackend.{x}" for x in order)
    return Application(
        line=f"with torch.nn.attention.sdpa_kernel([{names}], set_priority=True):",
        settings=(python_line(Python("prefer_attention({})"), joined(Python(", "), map(python_literal, order))),),
        helpers=(HELPER,),
    )


def _action(backend: str) -> Action:
    return Action(
        name=f"attention_{backend}",
        kind="setting",
        about=f"compute attention with the {backend} backend of scaled_dot_product_attention",
        change=lambda work, job: _change(work, backend),
        application=lambda job: _application(job, backend),
        excludes="attention",
        needs="PyTorch 2.6 or later (on a CPU, any version of PyTorch)",
    )


ALL = tuple(map(_action, BACKENDS))
