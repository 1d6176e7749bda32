"""Settings with which PyTorch's TunableOp records the matrix products that it has not tuned yet.

A product is recorded if TunableOp's results file has no row for it.  Source: pytorch/pytorch
aten/src/ATen/cuda/tunable/Tunable.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator

from logparse.errors import InputError
from logparse.libraries.kinds.capture import Asked, Capture, Setting

_ENABLED, _TUNING, _FILE = "PYTORCH_TUNABLEOP_ENABLED", "PYTORCH_TUNABLEOP_TUNING", "PYTORCH_TUNABLEOP_FILENAME"


def _settings(asked: Asked) -> Iterator[Setting]:
    on = asked.environ.get(_ENABLED) == "1"
    if on and asked.environ.get(_TUNING) != "0":
        raise InputError(
            "PYTORCH_TUNABLEOP_ENABLED=1 tunes unless PYTORCH_TUNABLEOP_TUNING=0 is set, and a job that tunes "
            "does not record its untuned products. Set PYTORCH_TUNABLEOP_TUNING=0, or capture with --no-tunableop"
        )
    yield Setting(_ENABLED, "1", "PyTorch runs GEMMs through TunableOp")
    yield Setting(
        _TUNING, "0", "TunableOp tunes no GEMM in this job, and writes no results file while it records untuned GEMMs"
    )
    yield Setting(
        "PYTORCH_TUNABLEOP_RECORD_UNTUNED",
        "1",
        "TunableOp records the matrix products for which it has no row (from PyTorch 2.6 on)",
    )
    name = f"{asked.folder}/tunableop_untuned.csv"
    yield Setting(
        "PYTORCH_TUNABLEOP_UNTUNED_FILENAME",
        name,
        ("PyTorch writes one file for each device, and inserts the device number before .csv"),
    )
    if not on:
        why = (
            "without this setting, TunableOp would read any results file in the job's working folder, and the job "
            "would run other kernels than usual"
        )
        yield Setting(_FILE, f"{asked.folder}/tunableop_results.csv", why)


def _doubts(asked: Asked) -> Iterator[str]:
    if _FILE in asked.environ and asked.environ.get(_ENABLED) == "1":
        yield f"PyTorch 2.10 and later do not read the tuned rows of {_FILE} while they record untuned products"


CAPTURE = Capture(
    library="tunableop",
    platforms=("rocm", "cuda"),
    settings=_settings,
    cancels={
        _TUNING: (
            lambda value: value != "0",
            "a job in which TunableOp tunes does not record its untuned matrix products",
        )
    },
    doubts=_doubts,
)
