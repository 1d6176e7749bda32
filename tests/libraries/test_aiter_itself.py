"""Tests that compare how logparse reads and writes aiter's tables and log lines with aiter's own code.

``make test`` downloads aiter's wheel from PyPI, or ``AITER_WHEEL`` names one. Importing aiter needs ROCm and a GPU. So
its modules that read and write files run unchanged, and the rest is replaced: the facts about the GPU, the kernels and
their times (which are made up), the compiled code that rounds M up (it is not rounded), and the base package.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from analyzers.evidence.tables import Settings
from analyzers.recommend.verb import advise, write
from logparse.ingest import ingest
from logparse.libraries.aiter import log as aiter_log
from logparse.libraries.aiter import tables as aiter
from logparse.libraries.kinds.format import Head
from logparse.model import Call, GemmProblem, Measurement, Message, Override, Solution
from logparse.store import open_store
from tests.libraries.reading import from_file

torch = pytest.importorskip("torch")
WHEEL = next(iter(Path(__file__).parents[2].glob("build/wheels/amd_aiter-*.whl")), None)
NAMED = os.environ.get("AITER_WHEEL")
pytestmark = pytest.mark.skipif(not (NAMED or WHEEL), reason="aiter's wheel is not here (make test fetches it)")
KEYS = ("M", "N", "K", "bias", "dtype", "outdtype", "scaleAB")
TARGET = {"arch": "gfx942:sramecc+:xnack-", "cu_count": "304"}
TABLES = {
    "AITER_CONFIG_GEMM_BF16": "bf16_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8": "a8w8_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE": "a8w8_blockscale_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE": "a8w8_bpreshuffle_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE": "a8w8_blockscale_bpreshuffle_tuned_gemm.csv",
}
MODULES = {
    "aiter.utility.dtypes": "aiter/utility/dtypes.py",
    "aiter.utility.base_tuner": "aiter/utility/base_tuner.py",
    "aiter.tuned_gemm": "aiter/tuned_gemm.py",
    "aiter.ops.gemm_op_a8w8": "aiter/ops/gemm_op_a8w8.py",
    "GemmTuner": "aiter_meta/gradlib/gradlib/GemmTuner.py",
    "gemm_a8w8_common": "aiter_meta/csrc/ck_gemm_a8w8/gemm_a8w8_common.py",
    "gemm_a8w8_tune": "aiter_meta/csrc/ck_gemm_a8w8/gemm_a8w8_tune.py",
}
SHAPES = [
    (64, 256, 5120, False, "torch.bfloat16", "torch.float32"),
    (512, 4096, 4096, True, "torch.bfloat16", "torch.bfloat16"),
    (100, 4097, 4096, False, "torch.float16", "torch.float16"),
]


class Aiter:
    """Real modules of aiter that run without a GPU, and the lines that they log."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._patch, self._folder, self.lines = patch, folder, list[str]()
        log = logging.Logger("aiter")
        log.addHandler(_Kept(self.lines))
        paths = {name: str(folder / file) for name, file in TABLES.items()}
        core = {**paths, **{f"{name}_FILE": path for name, path in paths.items()}}
        self._stub("aiter", logger=log, hipb_create_extension=lambda: None, hipb_mm=None, gemm_a16w16_asm=None)
        sys.modules["aiter"].getHipblasltKernelName = "Cijk_{}".format  # type: ignore[attr-defined]
        for name in ("aiter.jit", "aiter.jit.utils", "aiter.utility", "aiter.ops"):
            self._stub(name)
        self._stub("aiter.jit.utils.chip_info", get_gfx=lambda: "gfx942", get_cu_num=lambda: 304)
        self._stub("aiter.jit.utils.torch_guard", torch_compile_guard=_as_it_is)
        self._stub("aiter.jit.core", AITER_LOG_TUNED_CONFIG=1, AITER_ROOT_DIR=str(folder), get_asm_dir=str, **core)
        sys.modules["aiter.jit.core"].compile_ops = _as_it_is  # type: ignore[attr-defined]
        self._stub("aiter.utility.mp_tuner", mp_tuner=None)
        self._stub("aiter.ops.gemm_op_common", get_padded_m=lambda m, n, k, level: m)
        with patch.context() as on_cpu:
            for name in ("ones", "tensor"):
                on_cpu.setattr(torch, name, _without_device(getattr(torch, name)))
            for name, path in MODULES.items():
                self._load(name, folder / path)
        patch.setattr(self["aiter.utility.base_tuner"].TunerCommon, "get_cu_num", lambda self: 304)

    def __getitem__(self, name: str) -> Any:
        return sys.modules[name]

    def _stub(self, name: str, **members: object) -> None:
        module = ModuleType(name)
        module.__path__ = []
        vars(module).update(members)
        self._patch.setitem(sys.modules, name, module)

    def _load(self, name: str, path: Path) -> None:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        self._patch.setitem(sys.modules, name, module)
        package, _, own = name.rpartition(".")
        if package:
            vars(sys.modules[package])[own] = module
        if name == "aiter.utility.dtypes":
            vars(sys.modules["aiter"])["dtypes"] = module
        spec.loader.exec_module(module)

    def tune(self, tuner: Any, untuned: Path, tuned: Path) -> Path:
        tuner.run(tuner.parser.parse_args(["-i", str(untuned), "-o", str(tuned), "--mp", "1"]))
        return tuned

    def table(self, variable: str) -> Path:
        return self._folder / TABLES[variable]


class _Kept(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"[aiter] {record.getMessage()}")


def _as_it_is(*_: object, **__: object) -> Callable[[object], object]:
    return lambda function: function


def _without_device(function: Any) -> Any:
    def on_the_cpu(*values: object, device: str, **more: object) -> object:
        assert device
        return function(*values, **more)

    return on_the_cpu


class Timed:
    """Stand-in for the class ``Gemm`` of aiter's package gradlib, which would run kernels on a GPU.

    It has two right kernels, and a faster one that computes wrong values.
    """

    def __init__(self, *shape: object, indtype: object, outdtype: object, scaleAB: bool, **_: object) -> None:  # noqa: N803
        self._of = (*shape[:4], str(indtype), str(outdtype), scaleAB)

    def run_solutions(self) -> list[tuple[tuple[object, ...], float, float]]:
        return [
            ((self._of, 192883, 0, "hipblaslt", ""), 12.34567, 0.0),
            ((self._of, 7, 0, "hipblaslt", ""), 9.5, 0.5),
            ((self._of, 1, 4, "asm", "_ZN5aiter3asmE"), 20.0, 0.0),
        ]

    def cleanup(self) -> None:
        """Do nothing, because this stand-in has nothing to free."""


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Aiter:
    with zipfile.ZipFile(NAMED or WHEEL or "") as wheel:
        for path in MODULES.values():
            wheel.extract(path, tmp_path)
    return Aiter(tmp_path, monkeypatch)


def _read(table: Path) -> list[object]:
    return [record for outcome in aiter.FORMAT.read(from_file(table)) for record in outcome.records]


def records(lines: list[str]) -> list[object]:
    return [record for line in lines for record in aiter_log.read(line).records]


def test_the_real_tuner_takes_what_recommend_writes_and_we_read_what_it_writes(
    real: Aiter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = real["aiter.tuned_gemm"].get_GEMM_A16W16_config
    for shape in SHAPES:
        look_up(*shape)
    log = tmp_path / "server.log"
    log.write_text("".join(f"{line}\n" for line in real.lines))
    store = open_store(str(tmp_path / "store"), create=True)
    ingest([str(log)], store, run="job")
    made, _ = write(advise(store, Settings()), Settings(), tmp_path / "out")
    (untuned,) = (x.path for x in made if "untuned" in x.path.name)
    same = [(*shape[:4], shape[4]) for shape in SHAPES]
    rows = [line.split(",") for line in untuned.read_text().splitlines()[1:]]
    assert sorted(rows) == sorted([str(m), str(n), str(k), str(bias), t, t, "False"] for m, n, k, bias, t in same)

    monkeypatch.setattr(real["GemmTuner"], "Gemm", Timed)
    tuned = real.tune(real["GemmTuner"].GemmTuner(), untuned, real.table("AITER_CONFIG_GEMM_BF16"))
    assert aiter.FORMAT.recognise(Head(tuned.name, tuned.read_bytes()))
    measured = [r for r in _read(tuned) if isinstance(r, Measurement)]
    assert {(x.solution.text, x.time_us, x.status) for x in measured} == {("hipblaslt:192883", 12.3457, "ok")}
    gemms = [x.problem for x in measured if isinstance(x.problem, GemmProblem)]
    assert {(x.n, x.m, x.k, x.bias, x.a_type) for x in gemms} == {
        (64, 256, 5120, False, "bf16_r"),
        (512, 4096, 4096, True, "bf16_r"),
        (100, 4097, 4096, False, "f16_r"),
    }


def test_the_real_look_up_finds_what_we_write(real: Aiter) -> None:
    picks = [
        (Solution("hipblaslt", "5"), None),
        (Solution("asm", "1,splitK=4"), "_ZN5aiter3asmE"),
        (Solution("skinny", "2"), None),
    ]
    overrides = []
    for shape, (solution, kernel) in zip(SHAPES, picks, strict=True):
        problem = aiter.problem_of_row(dict(zip(KEYS, map(str, (*shape, False)), strict=True)), "bf16_tuned_gemm.csv")
        overrides.append(Override(problem=problem, solution=solution, target=TARGET, time_us=10.0, parameters=kernel))
    (file,) = aiter.write(overrides, TARGET)
    real.table("AITER_CONFIG_GEMM_BF16").write_bytes(file.data)
    found = [real["aiter.tuned_gemm"].get_GEMM_A16W16_config(*shape) for shape in SHAPES]
    assert [(x["libtype"], x["solidx"], x["splitK"]) for x in found] == [
        ("hipblaslt", 5, 0),
        ("asm", 1, 4),
        ("skinny", 2, 0),
    ]
    assert found[1]["kernelName"] == "_ZN5aiter3asmE"
    assert [r.function for r in records(real.lines) if isinstance(r, Message)] == [aiter_log.TUNED] * 3
    calls = [r for r in records(real.lines) if isinstance(r, Call)]
    assert [call.problem for call in calls] == [x.problem for x in overrides]


def test_the_real_tuner_of_8_bit_products(real: Aiter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner, look_up = real["gemm_a8w8_tune"], real["aiter.ops.gemm_op_a8w8"].get_CKGEMM_config
    table = real.table("AITER_CONFIG_GEMM_A8W8")
    table.write_text("cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n80,1,2,3,0,0,1,k,0,0,0\n")
    assert look_up(60, 9216, 3584, str(table)) is None
    (file,) = aiter_log.write_untuned_shapes(x.removeprefix("[aiter] ") for x in real.lines).files
    assert (file.name, file.data) == ("a8w8_untuned_gemm.csv", b"M,N,K\n60,9216,3584\n")

    untuned, tuned = tmp_path / file.name, tmp_path / "tuned.csv"
    untuned.write_bytes(file.data)
    monkeypatch.setattr(tuner, "mp_tuner", lambda task, *_: [(x[0], 10.0 + i, 0.0) for i, x in enumerate(task)])
    real.tune(tuner.GemmA8W8Tuner("GemmA8W8Tuner", description=""), untuned, tuned)
    (measured,) = (r for r in _read(tuned) if isinstance(r, Measurement))
    assert (measured.solution.text, measured.time_us) == ("aiter:0", 10.0)
    assert isinstance(measured.problem, GemmProblem)
    assert (measured.problem.n, measured.problem.m, measured.problem.k) == (60, 9216, 3584)
    real.lines.clear()
    assert look_up(60, 9216, 3584, str(tuned))["kernelId"] == 0
    assert [r.function for r in records(real.lines) if isinstance(r, Message)] == [aiter_log.TUNED]
