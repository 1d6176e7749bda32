"""Run random convolutions with the real MIOpen's immediate mode, so that its log has the key and the command of each.

Standard input is a JSON list of calls. A call is ``[direction, type, layouts, gaps, transposed, groups, n, c, k, sizes,
filter, pad, stride, dilation]``:

* The last five have a number for each axis.
* ``layouts`` and ``gaps`` have an entry each for image, weights and output. A gap is the number of the inner axis at
  which a tensor is twice as wide in memory (0: no gap).

On standard error, a line ``CALL number`` precedes the log of each call. If the library refuses a call, its status
follows.
"""

import ctypes
import json
import sys

from miopen import BYTES, MOST, TYPES, WORDS, Library, Solution


def integers(values):
    return (ctypes.c_int * len(values))(*values)


class Run:
    def __init__(self):
        self.library = Library()
        self.ask = self.library.ask

    def tensor(self, kind, layout, gap, sizes):
        """Create a tensor in this layout, and return its MIOpen descriptor and its memory."""
        axes = list(range(len(sizes)))
        strides, stride = [0] * len(sizes), 1
        for inner, axis in enumerate(reversed([0, *axes[2:], 1] if layout.endswith("C") else axes), 1):
            strides[axis] = stride
            stride *= sizes[axis] * (2 if inner == gap else 1)
        made = self.library.made("miopenCreateTensorDescriptor")
        self.ask("miopenSetTensorDescriptor", made, TYPES[kind], len(sizes), integers(sizes), integers(strides))
        return made, ctypes.create_string_buffer(stride * BYTES[kind])

    def run(self, call):
        direction, kind, layouts, gaps, transposed, groups, n, c, k, sizes, filters, pad, stride, dilation = call
        convolution = self.library.made("miopenCreateConvolutionDescriptor")
        windows = map(integers, (pad, stride, dilation))
        self.ask("miopenInitConvolutionNdDescriptor", convolution, len(pad), *windows, int(transposed))
        self.ask("miopenSetConvolutionGroupCount", convolution, groups)
        first = [c, k // groups] if transposed else [k, c // groups]
        tensors = {"image": self.tensor(kind, layouts[0], gaps[0], [n, c, *sizes])}
        tensors["weights"] = self.tensor(kind, layouts[1], gaps[1], [*first, *filters])
        count, out = ctypes.c_int(), (ctypes.c_int * (len(pad) + 2))()
        shapes = (tensors["image"][0], tensors["weights"][0])
        self.ask("miopenGetConvolutionNdForwardOutputDim", convolution, *shapes, ctypes.byref(count), out)
        tensors["out"] = self.tensor(kind, layouts[2], gaps[2], list(out))
        order = {"F": "weights image out", "B": "out weights image", "W": "out image weights"}[direction].split()
        one, two, three = (tensors[name] for name in order)
        described = (one[0], two[0], convolution, three[0])
        name = f"miopenConvolution{WORDS[direction]}"
        found, found_count = (Solution * MOST)(), ctypes.c_size_t()
        most = (ctypes.c_size_t(MOST), ctypes.byref(found_count), found)
        self.ask(f"{name}GetSolution", self.library.handle, *described, *most)
        if not found_count.value:
            raise RuntimeError(f"{name}GetSolution returned no solution")
        last = found[found_count.value - 1]
        solver, space = ctypes.c_uint64(last.solver), ctypes.create_string_buffer(last.workspace + 1)
        self.ask(f"{name}CompileSolution", self.library.handle, *described, solver)
        operands = (*one, *two, convolution, *three, space, ctypes.c_size_t(last.workspace), solver)
        self.ask(f"{name}Immediate", self.library.handle, *operands)


def main():
    run = Run()
    for number, call in enumerate(json.load(sys.stdin)):
        print(f"CALL {number}", file=sys.stderr, flush=True)
        try:
            run.run(call)
        except RuntimeError as refused:
            print(refused, file=sys.stderr, flush=True)


main()
