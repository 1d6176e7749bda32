"""Write log lines as hipBLASLt does, without any code of logparse.

Tests read the lines and compare the result with the call from which they were written.
"""

from __future__ import annotations

from typing import NamedTuple

from tests import conftest

SAMPLES = conftest.SAMPLES / "hipblaslt"


class Launch(NamedTuple):
    """A matrix product as arguments of hipBLASLt: transpositions, sizes, types and the name of the epilogue."""

    ta: str = "T"
    tb: str = "N"
    m: int = 96
    n: int = 80
    k: int = 64
    batch: int = 1
    a: str = "bf16_r"
    d: str = "bf16_r"
    compute: str = "f32_r"
    epilogue: str = "DEFAULT"
    beta: float = 0.0
    bias_type: str | None = None
    alpha_vector: bool = False


# epilogue → activation, bias source, use_e, gradient: the library's source derives the bench flags in this way
FLAGS: dict[str, tuple[str, str, bool, bool]] = {
    "DEFAULT": ("none", "", False, False),
    "RELU": ("relu", "", False, False),
    "BIAS": ("none", "d", False, False),
    "RELU_BIAS": ("relu", "d", False, False),
    "GELU": ("gelu", "", False, False),
    "GELU_BIAS": ("gelu", "d", False, False),
    "GELU_AUX": ("gelu", "", True, False),
    "GELU_AUX_BIAS": ("gelu", "d", True, False),
    "RELU_AUX": ("relu", "", True, False),
    "RELU_AUX_BIAS": ("relu", "d", True, False),
    "DGELU": ("gelu", "", True, True),
    "DGELU_BGRAD": ("gelu", "d", True, True),
    "DRELU": ("relu", "", False, True),
    "DRELU_BGRAD": ("relu", "d", False, True),
    "BGRADA": ("none", "a", False, True),
    "BGRADB": ("none", "b", False, True),
    "SWISH_EXT": ("swish", "", False, False),
    "SWISH_BIAS_EXT": ("swish", "d", False, False),
    "CLAMP_EXT": ("clamp", "", False, False),
    "CLAMP_BIAS_EXT": ("clamp", "d", False, False),
    "CLAMP_AUX_EXT": ("clamp", "", True, False),
    "CLAMP_AUX_BIAS_EXT": ("clamp", "d", True, False),
}
TYPES = {"f16_r": "R_16F", "bf16_r": "R_16BF", "f32_r": "R_32F", "f64_r": "R_64F", "f8_r": "R_8F_E4M3"}
COMPUTES = {"f32_r": "COMPUTE_32F", "xf32_r": "COMPUTE_32XF", "f64_r": "COMPUTE_64F", "f32_f16_r": "COMPUTE_32F_16F"}


def _layouts(x: Launch) -> list[tuple[int, int, int]]:
    """Return (rows, columns, leading dimension) for each of the matrices A, B, C and D."""
    a = (x.m, x.k) if x.ta == "N" else (x.k, x.m)
    b = (x.k, x.n) if x.tb == "N" else (x.n, x.k)
    return [(*a, a[0]), (*b, b[0]), (x.m, x.n, x.m), (x.m, x.n, x.m)]


def trace(x: Launch) -> str:
    """Return the Trace line that hipBLASLt logs for a matrix product, in the form that logparse's reader gets.

    The time and the process id at the beginning of the line are cut off, and addresses are replaced by ``0x@``.
    """
    types = (x.a, x.a, x.d, x.d)
    words = []
    for name, type_, (rows, cols, ld) in zip("ABCD", types, _layouts(x), strict=True):
        batch = f" batch_count={x.batch} batch_stride={ld * cols}" if x.batch > 1 else ""
        words.append(f"{name}=0x@ {name}desc=[type={TYPES[type_]} rows={rows} cols={cols} ld={ld}{batch}]")
    bias = "0x@" if FLAGS[x.epilogue][1] else "0x0"
    desc = f"computeType={COMPUTES[x.compute]} scaleType=R_32F transA=OP_{x.ta} transB=OP_{x.tb}"
    desc += f" epilogue=EPILOGUE_{x.epilogue} biasPointer={bias}"
    desc += f" biasType={TYPES[x.bias_type]}" if x.bias_type else ""
    alpha = "alphaVector=0x@" if x.alpha_vector else "alpha=1"
    tail = f"computeDesc=[{desc}] workSpace=0x@ workSpaceSizeInBytes=1048576 {alpha} beta={x.beta:g} stream=0"
    return f"[HIPBLASLT][Trace][rocblaslt_matmul] {' '.join(words)} {tail} "


def bench(x: Launch) -> str:
    """Return the line that hipBLASLt of ROCm 7.0 logs for a matrix product. It contains a hipblaslt-bench command."""
    activation, source, use_e, gradient = FLAGS[x.epilogue]
    words = [f"hipblaslt-bench --api_method c -m {x.m} -n {x.n} -k {x.k}"]
    words += [f"--ld{name} {ld}" for name, (_, _, ld) in zip("abcd", _layouts(x), strict=True)]
    strides = [0 if x.batch == 1 else ld * cols for _, cols, ld in _layouts(x)]
    words += [""] + [f"--stride_{name} {stride}" for name, stride in zip("abcd", strides, strict=True)] + [""]
    words += [f"--alpha 1.000000 --beta {x.beta:.6f} --transA {x.ta} --transB {x.tb} --batch_count {x.batch}"]
    words += ["--scaleA 0 --scaleB 0 "]
    words += ["--scaleAlpha_vector"] * x.alpha_vector + ["--gradient"] * gradient + ["--use_e"] * use_e
    words += [f"--bias_vector --bias_source {source}"] if source else []
    words += [f"--a_type {x.a} --b_type {x.a} --c_type {x.d} --d_type {x.d} --scale_type f32_r"]
    words += [f"--bias_type {x.bias_type or (x.d if source else 'f32_r')}"]
    words += [f"--aux_type {x.d}"] if use_e else []
    words += [f" --compute_type {x.compute} --algo_method index --solution_index 4711 --activation_type {activation}"]
    return " ".join([*words, "--any_stride --rotating 0 --cold_iters 0 --iters 0 "])
