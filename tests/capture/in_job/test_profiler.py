"""Test of the profiler that logparse starts in a job."""

from __future__ import annotations

import ctypes
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("is_kept", "detaches"), [(True, True), (False, True), (False, False)])
def test_the_profiler_is_detached_unless_another_profile_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool, detaches: bool
) -> None:
    """A profile that begins while the profiler is being detached would record no kernels."""
    from logparse.capture.in_job.logparse_in_job import profiler

    asked, stopped, ended = [], torch.autograd._disable_profiler, []

    def disable() -> Any:
        asked.append(ctypes.CDLL(None).getenv(b"TEARDOWN_CUPTI") != 0)
        return stopped()

    profile = profiler.Profile()
    profile.detaches = detaches
    profile.start()
    monkeypatch.setattr(profiler, "_detaches", lambda: True)
    monkeypatch.setattr(torch.autograd, "_disable_profiler", disable)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: ended.append(1), raising=False)
    profile.stop({}, str(tmp_path / "t.json.gz") if is_kept else None)
    assert (asked, len(ended)) == ([detaches], int(detaches)), "the next CUDA call lets Kineto detach CUPTI"
    assert (tmp_path / "t.json.gz").exists() == is_kept


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
