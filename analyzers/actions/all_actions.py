"""The list of all changes to a job that logparse knows, in no particular order."""

from __future__ import annotations

from analyzers.actions import (
    attention,
    blas_library,
    channels_last,
    cudnn_benchmark,
    fused_epilogue,
    padded_output,
    tf32,
)
from analyzers.actions.action import Action

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
"""All changes to a job that logparse can propose. To add one, write a file in this folder and a line here."""
