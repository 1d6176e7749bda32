"""The backends, in the order in which ``logparse replay`` lists them."""

from __future__ import annotations

from analyzers.measure.backend import BackendType
from analyzers.measure.backends.cublaslt import BACKEND as CUBLASLT
from analyzers.measure.backends.cudnn import BACKEND as CUDNN
from analyzers.measure.backends.hipblaslt import BACKEND as HIPBLASLT
from analyzers.measure.backends.miopen import BACKEND as MIOPEN
from analyzers.measure.backends.pytorch import BACKEND as PYTORCH
from analyzers.measure.backends.rocblas import BACKEND as ROCBLAS

BACKENDS: tuple[BackendType, ...] = (PYTORCH, CUBLASLT, CUDNN, HIPBLASLT, ROCBLAS, MIOPEN)
