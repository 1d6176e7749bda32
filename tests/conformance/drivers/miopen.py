"""Call the real MIOpen from Python (ctypes): create handles and descriptors, run immediate mode and Find.

A convolution is ``[direction, type, [n, c, h, w, k, y, x], pad, stride, groups]``.
"""

import ctypes

TYPES = {"f16_r": 0, "f32_r": 1, "bf16_r": 5}
BYTES = {"f16_r": 2, "f32_r": 4, "bf16_r": 2}
WORDS = {"F": "Forward", "B": "BackwardData", "W": "BackwardWeights"}
MOST = 16
WORKSPACE_BYTES = 256 << 20


class Solution(ctypes.Structure):
    """The C structure miopenConvSolution_t: one solver that MIOpen proposes for a convolution."""

    _fields_ = (
        ("time", ctypes.c_float),
        ("workspace", ctypes.c_size_t),
        ("solver", ctypes.c_uint64),
        ("algorithm", ctypes.c_int),
    )


class Found(ctypes.Structure):
    """The C structure miopenConvAlgoPerf_t: one algorithm that MIOpen's Find has measured."""

    _fields_ = (("algorithm", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t))


class Convolution:
    """A convolution for MIOpen's C functions: its descriptors, and the sizes of its tensors in bytes.

    It also has the word for the direction in the names of MIOpen's functions. The descriptors are in the order of the
    functions' arguments.
    """

    def __init__(self, library, call):
        direction, kind, (n, c, h, w, k, y, x), pad, stride, groups = call
        self.word, self.groups = WORDS[direction], groups
        convolution = library.made("miopenCreateConvolutionDescriptor")
        library.ask("miopenInitConvolutionDescriptor", convolution, 0, pad, pad, stride, stride, 1, 1)
        library.ask("miopenSetConvolutionGroupCount", convolution, groups)
        sizes = {"image": (n, c, h, w), "weights": (k, c // groups, y, x)}
        sizes["out"] = (n, k, (h + 2 * pad - y) // stride + 1, (w + 2 * pad - x) // stride + 1)
        made = {name: library.tensor(kind, *size) for name, size in sizes.items()}
        self.bytes = {name: BYTES[kind] * a * b * c * d for name, (a, b, c, d) in sizes.items()}
        immediate = {"F": "weights image out", "B": "out weights image", "W": "out image weights"}[direction].split()
        find = {"F": "image weights out"}.get(direction, " ".join(immediate)).split()
        self.convolution, self.tensors, self.names, self.find_names = convolution, made, immediate, find

    def described(self, names=None):
        """Return the C descriptors of the convolution in the order in which MIOpen's functions expect them.

        These are two tensors, the convolution, and the third tensor.
        """
        first, second, last = (self.tensors[name] for name in names or self.names)
        return first, second, self.convolution, last

    def with_memory(self, memory, names):
        """Return the arguments of a function that runs the convolution: each tensor's descriptor and memory."""
        first, second, last = ((self.tensors[name], memory[name]) for name in names)
        return *first, *second, self.convolution, *last


class Library:
    """The real MIOpen. Its methods call C functions and return the results as Python values.

    Methods raise RuntimeError with the status if a call fails.
    """

    def __init__(self):
        self.miopen = ctypes.CDLL("libMIOpen.so.1")
        self.handle = self.made("miopenCreate")
        self.launched = ctypes.CDLL(None).vgpu_launched
        self.launched.restype = ctypes.c_char_p

    def ask(self, function, *arguments):
        status = self.miopen[function](*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def made(self, function):
        pointer = ctypes.c_void_p()
        self.ask(function, ctypes.byref(pointer))
        return pointer

    def version(self):
        numbers = [ctypes.c_size_t() for _ in range(3)]
        self.ask("miopenGetVersion", *map(ctypes.byref, numbers))
        return ".".join(str(x.value) for x in numbers)

    def tensor(self, kind, *sizes):
        tensor = self.made("miopenCreateTensorDescriptor")
        self.ask("miopenSet4dTensorDescriptor", tensor, TYPES[kind], *sizes)
        return tensor

    def solutions(self, one, most=MOST):
        """Return the solvers that MIOpen's immediate mode offers for a convolution, the library's own choice first."""
        found, count = (Solution * most)(), ctypes.c_size_t()
        arguments = (self.handle, *one.described(), ctypes.c_size_t(most), ctypes.byref(count), found)
        if self.miopen[f"miopenConvolution{one.word}GetSolution"](*arguments):
            return []
        return found[: count.value]

    def run(self, one, times):
        """Run a convolution ``times`` times with MIOpen's own choice of solver, as PyTorch does without ``benchmark``.

        Returns the solver's number and the kernels that were launched.
        """
        (first, *_) = self.solutions(one)
        solver = ctypes.c_uint64(first.solver)
        self.ask(f"miopenConvolution{one.word}CompileSolution", self.handle, *one.described(), solver)
        memory = self.memory(one)
        self.launched()
        for _ in range(times):
            tail = (memory["workspace"], ctypes.c_size_t(first.workspace), solver)
            self.ask(f"miopenConvolution{one.word}Immediate", self.handle, *one.with_memory(memory, one.names), *tail)
        return first.solver, self.launched().decode().splitlines()

    def find(self, one):
        """Let MIOpen measure all solvers of a convolution (Find), as PyTorch does with ``benchmark``.

        MIOpen then writes its file of solver times. Returns the algorithm and the time in ms of each result.
        """
        memory, results, count = self.memory(one), (Found * MOST)(), ctypes.c_int()
        counted = (MOST, ctypes.byref(count), results, memory["workspace"], ctypes.c_size_t(WORKSPACE_BYTES), False)
        operands = one.with_memory(memory, one.find_names)
        self.ask(f"miopenFindConvolution{one.word}Algorithm", self.handle, *operands, *counted)
        return [(x.algorithm, x.time) for x in results[: count.value]]

    def memory(self, one):
        """Return memory for the convolution's tensors and for a workspace: {name: pointer}."""
        sizes = one.bytes | {"workspace": WORKSPACE_BYTES}
        buffers = {name: (ctypes.c_uint8 * size)() for name, size in sizes.items()}
        return {name: ctypes.c_void_p(ctypes.addressof(x)) for name, x in buffers.items()} | {"held": buffers}
