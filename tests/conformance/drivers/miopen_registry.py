"""Report the solvers that the real MIOpen knows: number, name, primitive and algorithm of each.

The program runs in the ROCm Python (``rocm.Rocm``) on the virtual GPU. There is no C function for this, so the exported
methods of the C++ class ``miopen::solver::Id`` are called by their mangled names. The only question is the largest
number to ask for, as JSON. The answer lists ``[number, name, primitive, algorithm]``. The algorithm is -1 if the
primitive is no convolution.
"""

import ctypes
import json
import sys


class Id(ctypes.Structure):
    _fields_ = (("value", ctypes.c_uint64), ("is_valid", ctypes.c_bool), ("more", ctypes.c_byte * 16))


class Text(ctypes.Structure):
    """A ``std::string`` of libstdc++, as a C structure."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("inside", ctypes.c_char * 16))


def main():
    library = ctypes.CDLL("libMIOpen.so.1")
    pointer = ctypes.POINTER(Id)
    make = library._ZN6miopen6solver2IdC1Em
    make.argtypes, make.restype = (pointer, ctypes.c_uint64), None
    name_of = library._ZNK6miopen6solver2Id8ToStringB5cxx11Ev
    name_of.argtypes, name_of.restype = (ctypes.POINTER(Text), pointer), ctypes.c_void_p
    primitive_of, algorithm_of = (
        library._ZNK6miopen6solver2Id12GetPrimitiveEv,
        library._ZNK6miopen6solver2Id7GetAlgoEv,
    )
    for method in (primitive_of, algorithm_of):
        method.argtypes, method.restype = (pointer,), ctypes.c_int
    found = []
    for number in range(1, json.loads(sys.stdin.readline()) + 1):
        one, text = Id(), Text()
        make(ctypes.byref(one), number)
        if not one.is_valid:
            continue
        name_of(ctypes.byref(text), ctypes.byref(one))
        name = ctypes.string_at(text.data, text.size).decode()
        primitive = primitive_of(ctypes.byref(one))
        found.append([number, name, primitive, algorithm_of(ctypes.byref(one))])
    print(json.dumps(found), flush=True)


main()
