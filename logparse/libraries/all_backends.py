"""List of all backends, in the order in which ``logparse replay`` prints them."""

from __future__ import annotations

from logparse.libraries.cublaslt.replay import BACKEND as CUBLASLT
from logparse.libraries.cudnn.replay import BACKEND as CUDNN
from logparse.libraries.hipblaslt.replay import BACKEND as HIPBLASLT
from logparse.libraries.kinds.backend import BackendType
from logparse.libraries.miopen.replay import BACKEND as MIOPEN
from logparse.libraries.pytorch.replay import BACKEND as PYTORCH
from logparse.libraries.rocblas.replay import BACKEND as ROCBLAS

BACKENDS: tuple[BackendType, ...] = (PYTORCH, CUBLASLT, CUDNN, HIPBLASLT, ROCBLAS, MIOPEN)
