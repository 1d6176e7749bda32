"""Call the real rocBLAS through ctypes: its handle, solutions and products.

A call is ``[trans_a, trans_b, m, n, k, batch, [lda, ldb, ldc], [stride_a, stride_b, stride_c], beta, a_type, d_type,
compute_type]``.
"""

import ctypes

OPERATIONS = {"N": 111, "T": 112, "C": 113}
TYPES = {"f16_r": 150, "f32_r": 151, "f64_r": 152, "bf16_r": 168, "i8_r": 160, "i32_r": 162}
SCALARS = {"f16_r": ctypes.c_uint16, "f32_r": ctypes.c_float, "f64_r": ctypes.c_double, "i32_r": ctypes.c_int32}
HALVES = {0: 0, 1: 0x3C00, 2: 0x4000}
STANDARD, BY_INDEX = 0, 1


class Library:
    def __init__(self) -> None:
        self.rocblas = ctypes.CDLL("librocblas.so.5")
        self.launched = ctypes.CDLL(None).vgpu_launched
        self.launched.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        status = self.rocblas.rocblas_create_handle(ctypes.byref(self.handle))
        if status:
            raise RuntimeError(f"rocblas_create_handle returned {status}")
        self.memory = (ctypes.c_uint8 * (64 << 20))()

    def version(self):
        text = ctypes.create_string_buffer(64)
        self.rocblas.rocblas_get_version_string(text, len(text))
        return text.value.decode()

    def arguments(self, call):
        trans_a, trans_b, m, n, k, batch, (lda, ldb, ldc), strides, beta, a_type, d_type, compute = call
        number = SCALARS[compute]
        alpha, beta = (number(HALVES[x] if compute == "f16_r" else x) for x in (1, beta))
        at = ctypes.c_void_p(ctypes.addressof(self.memory))
        operands = []
        for kind, ld, stride in zip(
            (a_type, a_type, d_type, d_type), (lda, ldb, ldc, ldc), (*strides, strides[2]), strict=True
        ):
            operands.append([at, TYPES[kind], ld] + ([ctypes.c_int64(stride)] if batch > 1 else []))
        a, b, c, d = operands
        sizes = [OPERATIONS[trans_a], OPERATIONS[trans_b], m, n, k, ctypes.byref(alpha)]
        tail = ([batch] if batch > 1 else []) + [TYPES[compute]]
        return [self.handle, *sizes, *a, *b, ctypes.byref(beta), *c, *d, *tail]

    def function(self, call, suffix=""):
        batched = "_strided_batched" if call[5] > 1 else ""
        return self.rocblas[f"rocblas_gemm{batched}_ex{suffix}"]

    def solutions(self, call):
        ask, count = self.function(call, "_get_solutions"), ctypes.c_int()
        if ask(*self.arguments(call), BY_INDEX, 0, None, ctypes.byref(count)):
            return []
        found = (ctypes.c_int * count.value)()
        ask(*self.arguments(call), BY_INDEX, 0, found, ctypes.byref(count))
        return sorted(found)  # sorted, because the library lists them in no order

    def run_plain(self, call):
        """Compute one product through ``rocblas_hgemm``, ``_sgemm`` or ``_dgemm``, and return what was launched."""
        _, *sizes, a, a_type, lda, b, _, ldb, beta, c, c_type, ldc, _, _, _, _ = self.arguments(call)
        del a_type, c_type
        letter = {"f16_r": "h", "f32_r": "s", "f64_r": "d"}[call[9]]
        self.launched()
        if self.rocblas[f"rocblas_{letter}gemm"](self.handle, *sizes, a, lda, b, ldb, beta, c, ldc):
            return None
        return self.launched().decode(errors="replace")  # another thread may be writing it

    def run(self, call, index):
        self.launched()
        algorithm = BY_INDEX if index else STANDARD
        if self.function(call)(*self.arguments(call), algorithm, ctypes.c_int32(index), ctypes.c_uint32(0)):
            return None
        return self.launched().decode(errors="replace")  # another thread may be writing it
