"""Changes that make PyTorch compute all matrix products with another BLAS library."""

from __future__ import annotations

from analyzers.actions.action import Action, Application, Change
from analyzers.actions.job import Job, Work
from logparse.model import GemmProblem
from logparse.quoting import Python

_BACKEND = {"cublaslt": "CUDA", "rocblas": "HIP", "hipblaslt": "HIP"}
_TORCH = {"cublaslt": "cublaslt", "rocblas": "cublas", "hipblaslt": "cublaslt"}
"""The names that PyTorch uses for BLAS libraries. On ROCm it also uses the names of CUDA's libraries."""
_LINES = {
    "cublas": Python('torch.backends.cuda.preferred_blas_library("cublas")'),
    "cublaslt": Python('torch.backends.cuda.preferred_blas_library("cublaslt")'),
}

_IN_FORCE = {
    "cublas": Python('torch.backends.cuda.preferred_blas_library().name == "Cublas"'),
    "cublaslt": Python('torch.backends.cuda.preferred_blas_library().name == "Cublaslt"'),
}


def _change(work: Work, job: Job, library: str) -> Change | None:
    problem = work.problem
    if not isinstance(problem, GemmProblem) or problem.members:
        return None
    in_force = f"blas={_TORCH[library]}" in job.settings
    return Change(problem, work.solution if in_force else f"torch:blas={library}")


def _application(job: Job, library: str) -> Application | None:
    if job.backend != _BACKEND[library] or not job.gemms:
        return None
    line = _LINES[_TORCH[library]]
    in_force = {"torch.backends.cuda.preferred_blas_library": _IN_FORCE[_TORCH[library]]}
    return Application(line=line, settings=(line,), in_force=in_force)


def _action(library: str) -> Action:
    return Action(
        name=f"blas_{library}",
        kind="setting",
        about=f"compute all matrix products with {library}",
        change=lambda work, job: _change(work, job, library),
        application=lambda job: _application(job, library),
        excludes="preferred_blas_library",
    )


ALL = tuple(map(_action, _BACKEND))
