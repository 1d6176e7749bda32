"""Actions: what a person does once, and what that does to all problems of a job (see ``action.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.actions.action import Action, ActionResult, Application, Change

if TYPE_CHECKING:
    ACTIONS: tuple[Action, ...]


def __getattr__(name: str) -> object:
    """``ACTIONS``, imported when it is first asked for: most runs have no replay that timed one."""
    if name != "ACTIONS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from analyzers.actions import (
        attention,
        blas_library,
        channels_last,
        cudnn_benchmark,
        fused_epilogue,
        padded_output,
        tf32,
    )

    # In no particular order.  A new one is a file of this folder and a line here.
    globals()[name] = (
        cudnn_benchmark.ACTION,
        tf32.ACTION,
        *blas_library.ALL,
        *attention.ALL,
        channels_last.ACTION,
        channels_last.WITH_BENCHMARK,
        padded_output.ACTION,
        *fused_epilogue.ALL,
    )
    return globals()[name]


__all__ = ["ACTIONS", "Action", "ActionResult", "Application", "Change"]
