"""Traces a few steady steps of the job that runs this file, and writes them into ``LOGPARSE_TRACE_DIR``.

A step ends where the first optimizer that is used ends one; the first ``LOGPARSE_TRACE_SKIP`` are left out.  A job
without an optimizer (inference) counts calls of its outermost module without gradients instead.  Shapes and strides are
recorded, and every step is marked.  The profiler slows the host, so the steps right before it are timed as well,
between two synchronizations; the trace holds their mean as ``logparse_untraced_step_us``.  Each process writes a trace
of its own.  A job that ends too early for that is reported on standard error; its profiler is stopped, as one that runs
when the interpreter ends crashes the job.
"""

import atexit
import os
import sys
import time
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

_FOLDER = os.environ["LOGPARSE_TRACE_DIR"]
_SKIP, _STEPS = (int(os.environ[f"LOGPARSE_TRACE_{name}"]) for name in ("SKIP", "STEPS"))

_TIMED = max(1, _SKIP // 2)
"""Steps before the trace that are timed; those before them warm up."""


class _Steps:
    """Counts steps and turns the profiler on and off."""

    def __init__(self) -> None:
        self.optimizer = 0
        self.depth = self.count = 0
        self.profiler: Any = None
        self.training = self.done = False
        self.started_s = self.untraced_us = 0.0

    def optimized(self, optimizer: Any, *rest: Any) -> None:
        self.optimizer = self.optimizer or id(optimizer)
        if id(optimizer) == self.optimizer:
            if not self.training:
                self.training, self.count = True, 0
            self.stepped()

    def entered(self, module: Any, *rest: Any) -> None:
        self.depth += 1

    def left(self, module: Any, *rest: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and not self.training and not torch.is_grad_enabled():
            self.stepped()

    def stepped(self) -> None:
        if self.done:
            return
        self.count += 1
        if self.profiler is not None:
            self.profiler.add_metadata_json("logparse_untraced_step_us", f"{self.untraced_us:.3f}")  # while it records
            self.profiler.step()
        elif self.count == _SKIP - _TIMED:
            self.started_s = _synchronized_s()
        elif self.count == _SKIP:
            self.untraced_us = 1e6 * (_synchronized_s() - self.started_s) / _TIMED
            self.start()

    def start(self) -> None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        kinds += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=_STEPS, repeat=1)
        self.profiler = torch.profiler.profile(
            activities=kinds, record_shapes=True, schedule=schedule, on_trace_ready=self.finished
        )
        self.profiler.start()

    def ended(self) -> None:
        if self.done or not self.count:
            return
        if self.profiler is not None:
            self.profiler.on_trace_ready = None
            self.profiler.stop()
        needed = _SKIP + 1 + _STEPS
        print(f"logparse: no trace: the job made {self.count} steps, a trace needs {needed}", file=sys.stderr)

    def finished(self, profiler: Any) -> None:
        self.done = True
        profiler.export_chrome_trace(os.path.join(_FOLDER, f"trace_{os.getpid()}.json.gz"))


def _synchronized_s() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


_steps = _Steps()
register_optimizer_step_post_hook(_steps.optimized)
register_module_forward_pre_hook(_steps.entered)
register_module_forward_hook(_steps.left, always_call=True)
atexit.register(_steps.ended)
