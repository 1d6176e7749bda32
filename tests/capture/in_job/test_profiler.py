"""Test of the profiler that logparse starts in a job."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")


def test_the_profiler_asks_for_no_missing_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a GPU, logparse's profiler does not ask for CUDA, because PyTorch would print a warning.

    The job would not print this warning by itself. It comes from CUDA builds of PyTorch.
    """
    from logparse.capture.in_job.logparse_in_job import ordinary, profiler

    profile = profiler.Profile()
    with monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("error")
        patched.setattr(torch._C, "_has_cuda", True)
        patched.setattr(torch.cuda, "is_available", lambda: False)
        patched.setattr(ordinary, "on_gpu", lambda: True)
        profile.prepare()
    profile.stop({}, None)
