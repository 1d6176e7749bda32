"""PyTorch's data types, with the names that files of PyTorch and of other libraries use for them.

Source: pytorch/pytorch c10/core/ScalarType.h (numbers and names), torch/csrc/utils/tensor_dtypes.cpp (Python's names).
"""

from __future__ import annotations

from typing import NamedTuple


class TorchType(NamedTuple):
    """One data type of PyTorch with all its names.  ``conv`` is missing (None) if no convolution has the type."""

    blas: str
    """The name of the type in a ``GemmProblem``, for example ``bf16_r``."""
    cpp: str
    """The C++ name, as a profiler's trace prints it in the field ``Input type``.

    The operator signatures of TunableOp (PyTorch's GEMM tuner) leave out the ``c10::``.
    """
    scalar: str
    """The name in ``c10::ScalarType``.  The files of TunableOp (PyTorch's GEMM tuner) use it for the type of a bias."""
    number: int
    """The number in ``c10::ScalarType``.

    A profiler's trace prints an output type as this number, in the field ``Concrete Inputs``.
    """
    python: str
    """The Python name, for example ``torch.bfloat16``.  The tables of aiter (AMD's kernels for inference) use it."""
    conv: str | None = None
    """The name of the type in a ``ConvProblem``, which is MIOpen's name."""

    @property
    def operand(self) -> str:
        """The type's name in an ``Operand`` (an input tensor in a trace): Python's name without ``torch.``."""
        return self.python.removeprefix("torch.")


TORCH_TYPES: tuple[TorchType, ...] = (
    TorchType("i8_r", "signed char", "Char", 1, "torch.int8", "INT8"),
    TorchType("i32_r", "int", "Int", 3, "torch.int32"),
    TorchType("f16_r", "c10::Half", "Half", 5, "torch.float16", "FP16"),
    TorchType("f32_r", "float", "Float", 6, "torch.float32", "FP32"),
    TorchType("f64_r", "double", "Double", 7, "torch.float64", "FP64"),
    TorchType("f32_c", "c10::complex<float>", "ComplexFloat", 9, "torch.complex64"),
    TorchType("f64_c", "c10::complex<double>", "ComplexDouble", 10, "torch.complex128"),
    TorchType("bf16_r", "c10::BFloat16", "BFloat16", 15, "torch.bfloat16", "BF16"),
    TorchType("bf8_r", "c10::Float8_e5m2", "Float8_e5m2", 23, "torch.float8_e5m2"),
    TorchType("f8_r", "c10::Float8_e4m3fn", "Float8_e4m3fn", 24, "torch.float8_e4m3fn"),
    TorchType("bf8_fnuz_r", "c10::Float8_e5m2fnuz", "Float8_e5m2fnuz", 25, "torch.float8_e5m2fnuz"),
    TorchType("f8_fnuz_r", "c10::Float8_e4m3fnuz", "Float8_e4m3fnuz", 26, "torch.float8_e4m3fnuz"),
    TorchType("f4_r", "c10::Float4_e2m1fn_x2", "Float4_e2m1fn_x2", 45, "torch.float4_e2m1fn_x2"),
)
