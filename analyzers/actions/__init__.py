"""Actions: what a person does once, and what that does to all problems of a job (see ``action.py``)."""

from analyzers.actions import (
    attention,
    blas_library,
    channels_last,
    cudnn_benchmark,
    fused_epilogue,
    padded_output,
    tf32,
)
from analyzers.actions.action import Action, ActionResult, Application, Change

ACTIONS: tuple[Action, ...] = (
    cudnn_benchmark.ACTION,
    tf32.ACTION,
    *blas_library.ALL,
    *attention.ALL,
    channels_last.ACTION,
    channels_last.WITH_BENCHMARK,
    padded_output.ACTION,
    *fused_epilogue.ALL,
)
"""All members, in no particular order.  A new one is a file of this folder and a line here."""

__all__ = ["ACTIONS", "Action", "ActionResult", "Application", "Change"]
