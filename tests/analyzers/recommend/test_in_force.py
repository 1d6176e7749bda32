"""Tests of the generated ``apply.py``: at the end of a job, it reports which settings are still in force.

The jobs run on a CPU. PyTorch has its settings for GPUs there, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analyzers import actions
from analyzers.actions import ActionResult
from analyzers.actions.action import Application
from analyzers.actions.job import Job, Work
from analyzers.recommend.apply_module import module
from logparse.capture.applied import Applied, read_marks
from logparse.capture.in_job.logparse_in_job.switches import settings
from logparse.capture.in_job.logparse_in_job.switches.base import Job as RunningJob
from logparse.model import ConvProblem, GemmProblem, Operand, OperatorProblem

torch = pytest.importorskip("torch")

ACTIONS = {x.name: x for x in actions.ACTIONS}

JOBS = """
import os, sys, torch

for number, program in enumerate(sys.argv[1:]):
    if not os.fork():  # each job is a process of its own that has imported torch already
        import apply
        os.environ["LOGPARSE_APPLIED"] += str(number)
        exec(program)
        sys.exit()
    os.wait()
"""


def application(name: str) -> Application:
    """Return how an action is applied to a job that has a convolution, a matrix product and attention."""
    half = Operand("float16", (2, 4, 24, 16), (1536, 384, 16, 1))
    attention = "_flash_attention_forward" if name != "attention_flash" else "_efficient_attention_forward"
    problems = [
        GemmProblem(m=64, n=64, k=64, a_type="f32_r"),
        ConvProblem(direction="F", n=2, c=3, h=8, w=8, k=4, in_layout="NCHW"),
        OperatorProblem(f"aten::{attention}", (half,)),
    ]
    work = tuple(Work(problem=problem, calls=2.0, us=10.0) for problem in problems)
    backend = "HIP" if name in ("blas_rocblas", "blas_hipblaslt") else "CUDA"
    found = ACTIONS[name].application(Job(work=work, total_us=100.0, steps=1.0, backend=backend))
    assert found is not None
    return found


def on_a_cpu() -> Application:
    attention = OperatorProblem("aten::_scaled_dot_product_flash_attention_for_cpu", ())
    job = Job(work=(Work(problem=attention, calls=2.0, us=10.0),), total_us=100.0, steps=1.0, backend="CPU")
    found = ACTIONS["attention_math"].application(job)
    assert found is not None
    return found


def written(folder: Path, *names: str) -> None:
    results = [
        ActionResult(
            action=ACTIONS[name], application=application(name), now_us=2.0, then_us=1.0, low_us=1.0, high_us=1.0,
            parts=(),
        )
        for name in names
    ]  # fmt: skip
    found = module(results)
    assert found is not None
    (folder / "apply.py").write_bytes(found.data)


def ended(folder: Path, *programs: str) -> list[Applied]:
    """Run each program as a job that has imported ``apply`` and torch, and return what each job reported."""
    for number in range(len(programs)):
        (folder / f"marks{number}").mkdir()
    environ = os.environ | {"LOGPARSE_APPLIED": str(folder / "marks"), "PYTHONPATH": str(folder)}
    words = [sys.executable, "-c", JOBS, *programs]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr == "", "the check prints nothing"
    return [read_marks(folder / f"marks{number}") for number in range(len(programs))]


ALL = ("tf32", "cudnn_benchmark", "attention_math")
SETS = f"apply.settings(*{ALL}); "
TF32 = {"tf32": {"torch.backends.cuda.matmul.allow_tf32"}}
ORDER = {"attention_math": {"the attention backends"}}


def test_a_job_reports_what_is_in_force_at_its_end(tmp_path: Path) -> None:
    """``apply.py`` reports a setting as applied only if neither the job nor PyTorch has set it to another value.

    In an earlier version, PyTorch's first attention call on an H200 set another order of backends, and ``apply.py``
    still reported that the chosen backend came first.
    """
    written(tmp_path, *ALL)
    cases: list[tuple[str, dict[str, set[str]]]] = [
        ("pass", {}),
        ("torch.backends.cuda.matmul.allow_tf32 = False", TF32),
        ("torch.set_float32_matmul_precision('highest')", TF32),
        ("torch.backends.cuda.matmul.allow_tf32 = False; torch.backends.cuda.matmul.allow_tf32 = True", {}),
        # The first attention call on an H100 does this.
        ("torch._C._set_sdp_priority_order([3, 1, 2, 0, 4])", ORDER),
        ("torch.backends.cuda.enable_math_sdp(False)", ORDER),
        ("from torch.nn.attention import *\nwith sdpa_kernel([SDPBackend.FLASH_ATTENTION]): pass", {}),
        ("torch.backends.cudnn.benchmark = False", {"cudnn_benchmark": {"torch.backends.cudnn.benchmark"}}),
        ("torch.backends.cudnn.benchmark_limit = 9", {"cudnn_benchmark": {"torch.backends.cudnn.benchmark_limit"}}),
        ("torch._C._set_sdp_priority_order([3, 1, 2, 0, 4]); apply.settings('attention_math')", {}),
    ]
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        cases.append(("torch.backends.cuda.matmul.fp32_precision = 'ieee'", TF32))
    found = ended(tmp_path, *(SETS + program for program, _ in cases))
    for (program, lost), marks in zip(cases, found, strict=True):
        assert marks.undone == lost, program
        assert marks.lost == dict.fromkeys(lost, 1), program
        assert marks.settings == dict.fromkeys(set(ALL) - set(lost), 1), program
        assert not marks.unknown, program


def test_a_killed_job_says_nothing(tmp_path: Path) -> None:
    written(tmp_path, *ALL)
    killed, left = ended(tmp_path, f"{SETS}os.kill(os.getpid(), 9)", f"{SETS}os._exit(0)")
    assert killed.unknown == left.unknown == dict.fromkeys(ALL, 1)
    assert [x for found in (killed, left) for x in (*found.settings, *found.lost)] == []
    assert len(killed.notes) == len(ALL)


def test_what_pytorch_does_not_tell_is_unknown(tmp_path: Path) -> None:
    """A setting counts as unknown if PyTorch lacks the function that states it. The job does not fail."""
    written(tmp_path, *ALL)
    (found,) = ended(tmp_path, f"{SETS}del torch.backends.cuda.math_sdp_enabled")
    assert (found.unknown, found.lost) == ({"attention_math": 1}, {})


def test_nothing_is_registered_unless_marks_are_wanted(tmp_path: Path) -> None:
    written(tmp_path, "tf32")
    program = "import atexit, apply; count = atexit._ncallbacks(); apply.settings('tf32'); "
    program += "print(atexit._ncallbacks() - count)"
    for marks, added in (("", "0"), (str(tmp_path), "1")):
        environ = os.environ | {"LOGPARSE_APPLIED": marks, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert (done.stdout.strip(), done.stderr) == (added, "")
    (mark,) = tmp_path.glob("applied_*.json")
    assert json.loads(mark.read_text())["settings"] == ["tf32"]


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process seem to use a GPU, and restore the settings of PyTorch after the test."""
    library = torch.backends.cuda.preferred_blas_library()

    def preferred_blas_library(name: str | None = None) -> Any:
        """Do the same as PyTorch's function, which refuses cuBLASLt in a PyTorch without CUDA."""
        nonlocal library
        library = torch.backends.cuda._BlasBackends[name] if name else library
        return library

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", preferred_blas_library)
    flags = [settings.Flag(f"backends.{x}") for x in ("cudnn.benchmark", "cudnn.benchmark_limit")]
    flags.append(settings.Tf32())
    before, (order, allowed) = [x.read() for x in flags], settings._order()
    yield
    for flag, value in zip(flags, before, strict=True):
        flag.write(value)
    torch._C._set_sdp_priority_order(order)
    for name, value in zip(("flash", "mem_efficient", "cudnn", "math"), allowed, strict=True):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(value)


UNDO = {
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = False",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark_limit = 9",
    "channels_last_benchmark": "torch.backends.cudnn.benchmark = False",
    "blas_cublaslt": "torch.backends.cuda.preferred_blas_library('cublas')",
    "blas_rocblas": "torch.backends.cuda.preferred_blas_library('cublaslt')",
    "blas_hipblaslt": "torch.backends.cuda.preferred_blas_library('cublas')",
    "attention_flash": "torch._C._set_sdp_priority_order([3, 2, 1, 0, 4])",
    "attention_efficient": "torch.backends.cuda.enable_mem_efficient_sdp(False)",
    "attention_cudnn": "torch.backends.cuda.enable_cudnn_sdp(False)",
    "attention_math": "torch.backends.cuda.enable_math_sdp(False)",
}


def unfulfilled(application: Application) -> list[str]:
    """Return which settings of an action are not in force in this process."""
    code = "\n".join(("from __future__ import annotations", *application.helpers))
    names: dict[str, Any] = {"torch": torch}
    exec(code, names)
    return [name for name, test in application.in_force.items() if not eval(test, names)]


@pytest.mark.parametrize("name", UNDO)
def test_the_trial_and_apply_name_a_lost_setting_alike(
    name: str, restored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_apply = application(name)
    if name in ("blas_rocblas", "blas_hipblaslt"):
        monkeypatch.setattr(torch.version, "hip", "7.2")
    torch.backends.cuda.preferred_blas_library("cublaslt" if name == "blas_rocblas" else "cublas")
    torch._C._set_sdp_priority_order([0, 3, 1, 2, 4] if name != "attention_math" else [1, 2, 0, 3, 4])
    switch = settings.made("cudnn_benchmark" if name == "channels_last_benchmark" else name, [])
    switch.on(RunningJob([], []))
    assert (switch.disturbed(), unfulfilled(of_apply)) == ("", [])
    exec(UNDO[name], {"torch": torch})
    (lost,) = unfulfilled(of_apply)
    assert switch.disturbed() == f"the job itself sets {lost}"


def test_each_setting_has_a_condition() -> None:
    assert {name for name, action in ACTIONS.items() if action.kind == "setting"} <= {*UNDO}
    assert all(application(name).in_force for name in UNDO)


def test_the_kernel_of_a_cpu() -> None:
    of_apply, switch = on_a_cpu(), settings.OneFlashKernel()
    assert unfulfilled(of_apply) == ["torch.backends.cuda.enable_flash_sdp"]
    switch.on(RunningJob([], []))
    assert (switch.disturbed(), unfulfilled(of_apply)) == ("", [])
    torch.backends.cuda.enable_flash_sdp(True)
    assert unfulfilled(of_apply) == ["torch.backends.cuda.enable_flash_sdp"]
    assert switch.disturbed() == "the job itself sets torch.backends.cuda.enable_flash_sdp"
