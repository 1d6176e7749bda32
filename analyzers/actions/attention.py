"""Changes that make PyTorch compute attention (``scaled_dot_product_attention``) with another backend.

Attention on the math backend is not changed, because a trace shows it as matrix products and a softmax.
"""

from __future__ import annotations

from analyzers.actions.action import Action, Application, Change, definitions
from analyzers.actions.job import Job, Work
from logparse.libraries.kinds.device.attention_backends import BACKENDS, ELSEWHERE, backend_of
from logparse.model import OperatorProblem, Problem
from logparse.quoting import Python, join_code, python_line, python_literal

HELPER = definitions("attention")

_KEEP_ORDER = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1", "TORCH_CUDNN_SDPA_PREFERRED": "0"}
"""Environment variables that make PyTorch keep an order of backends that was set before its first attention call.

On GPUs of compute capability 9.0 and 10.0 (H100, H200, B200), PyTorch overwrites the order in that first call, with
cuDNN as the first backend (``priority_order`` in PyTorch's ``transformers/cuda/sdp_utils.cpp``).  The first variable
prevents this from PyTorch 2.10 on, the second one in earlier versions.  Seen with PyTorch 2.11 on an H200: without
them, an order that was set at the start of the program had no effect.
"""


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
        in_force = {"torch.backends.cuda.enable_flash_sdp": Python("not torch.backends.cuda.flash_sdp_enabled()")}
        return Application(line=line, settings=(line,), in_force=in_force)
    # If a backend refuses an operand (a mask, a size), the call stays on its present backend.
    order = [BACKENDS[x] for x in dict.fromkeys((backend, *now, "flash", "efficient", "cudnn", "math"))]
    order = [x for x in order if x != "CUDNN_ATTENTION" or job.backend != "HIP"]
    names = ", ".join(f"SDPBackend.{x}" for x in order)
    environment = {} if job.backend == "HIP" or backend == "cudnn" else _KEEP_ORDER
    lines = [f"with torch.nn.attention.sdpa_kernel([{names}], set_priority=True):"]
    lines += [f"{name}={value} in the environment" for name, value in environment.items()]
    return Application(
        line="; ".join(lines),
        settings=(python_line(Python("prefer_attention({})"), join_code(Python(", "), map(python_literal, order))),),
        helpers=(HELPER,),
        environment=environment,
        in_force={"the attention backends": python_line(Python("attention_comes_first({})"), order[0])},
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
