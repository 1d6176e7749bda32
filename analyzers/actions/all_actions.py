"""The list of all actions (changes that a person can make to a job), in no particular order."""

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
"""All actions. To add one, write a file in this folder and a line here."""
