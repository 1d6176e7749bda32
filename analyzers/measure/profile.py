"""One problem and solution under a vendor's profiler: the command line, and the program that it runs.

The program prepares and warms first; only the executions between the profiler's start and stop are collected where the
profiler supports that (``ncu``, ``nsys``).  ``rocprofv3`` collects all, with a roctx range around those.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence

from analyzers.measure.backend import Place, UnsupportedError
from analyzers.measure.correctness import acceptable, error_bound
from analyzers.measure.plan import Item
from analyzers.measure.replay import Options
from analyzers.measure.results import Method
from analyzers.measure.trial import WorkerContext
from analyzers.measure.worker import backend_named
from logparse.errors import InputError
from logparse.model import Problem, Solution, problem_from_text, solution_from_text

TOOLS = {
    "ncu": "ncu --profile-from-start off --set full --export logparse-profile --force-overwrite",
    "nsys": "nsys profile --trace cuda,nvtx,cublas,cudnn --capture-range cudaProfilerApi --stats true"
    " --output logparse-profile --force-overwrite true",
    "rocprofv3": "rocprofv3 --kernel-trace --marker-trace --stats --output-file logparse-profile --",
}
"""Each tool's command in front of a program; options of Nsight Compute 2024, Nsight Systems 2024 and ROCm 6.3 on."""

_EXECUTIONS = 10
_FEWER = {"ncu": 2}
"""Executions under a tool that runs each of them some 38 times: ten took over a minute on an H200."""


def profile_command(
    problem: Problem, solution: Solution, *, backend: str, device: str = "cuda:0", tool: str = "ncu"
) -> str:
    """The line to paste.  Raises KeyError on a tool that is not in ``TOOLS``."""
    words = [sys.executable, "-m", __name__, problem.text, solution.text, "--backend", backend, "--device", device]
    words += ["--count", str(_FEWER[tool])] if tool in _FEWER else []
    return f"{TOOLS[tool]} {shlex.join(words)}"


def profile_lines(plan: Sequence[Item], solution: str, options: Options) -> list[str]:
    """A line per tool for a solution of the plan's first problem.

    Raises InputError on an empty plan, and where the backend can be opened here and does not offer the solution.
    """
    if not plan:
        raise InputError("the plan is empty: no problem to profile")
    device = options.devices[0] if options.devices else "cuda:0"
    _check_offered(plan[0].problem, solution_from_text(solution), options.backends[0], device)
    how = {"backend": options.backends[0], "device": device}
    return [profile_command(plan[0].problem, solution_from_text(solution), **how, tool=tool) for tool in TOOLS]


def _check_offered(problem: Problem, solution: Solution, backend: str, device: str) -> None:
    try:
        opened = backend_named(backend).open(_place(solution, device))
    except Exception:  # the lines may be for another machine
        return
    try:
        offered = [x.text for x in opened.solutions(problem, Method().limit)]
    except UnsupportedError as error:
        raise InputError(f"{backend} does not run {problem.label}: {error}") from error
    if solution.text not in offered:
        raise InputError(f"{backend} offers no {solution.text} for {problem.label}: there is {', '.join(offered)}")


def _place(solution: Solution, device: str) -> Place:
    kernels = (solution.id,) if solution.library == "kernel" else ()
    return Place(device=device, markers=True, kernels=kernels)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one solution a few times between the profiler's start and stop.

    Returns 1 where its result is wrong, 2 where it cannot run here.
    """
    parser = argparse.ArgumentParser(description="Run one solution of one problem, for a profiler.")
    parser.add_argument("problem", help="the problem's text, as in the store")
    parser.add_argument("solution", help="Default, cudnn:eng0_k1=2 …")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--count", type=int, default=_EXECUTIONS, help="executions that the profiler sees")
    options = parser.parse_args(arguments)
    problem, solution = problem_from_text(options.problem), solution_from_text(options.solution)
    place = _place(solution, options.device)
    try:
        backend = backend_named(options.backend).open(place)
        context = WorkerContext({options.backend: backend}, place, Method(), lambda what: None)
        runnable = backend.prepare(problem, solution, context.conditions(problem))
    except Exception as why:  # a missing device or library, a plan that the library refuses, a kernel that raises
        print(f"error: {solution.text}: {why or type(why).__name__}", file=sys.stderr)
        return 2
    error = runnable.error()
    with _collected(options.device):
        time_us = runnable.sample_us(options.count)
    print(f"{time_us:.2f} µs (under the profiler), relative error {error:.1e}: {solution.text} for {problem.label}")
    return 0 if acceptable(error, error_bound(problem)) else 1


@contextlib.contextmanager
def _collected(device: str) -> Iterator[None]:
    """The profiler's start and stop, where the device has one."""
    import torch

    if torch.device(device).type != "cuda":
        yield
        return
    torch.cuda.profiler.start()
    yield
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    sys.exit(main())
