"""Measure a short kernel on the virtual GPU in two ways: behind another kernel that keeps the GPU busy, and without it.

``events.py KERNEL COUNT`` prints the mean time of COUNT launches in µs, first behind the kernel, then without it.
"""

# The other kernel runs until all launches are queued, as in logparse replay.

import ctypes
import json
import sys

from logparse.libraries.kinds.backend import HostBoundError
from tests.conformance.virtual_device import ONE, Runtime, VirtualDevice


def main():
    kernel, count = sys.argv[1], int(sys.argv[2])
    device = VirtualDevice("cpu")
    hip, function = ctypes.CDLL(None), ctypes.create_string_buffer(1)
    hip["__hipRegisterFunction"](None, function, None, kernel.encode(), 0, None, None, None, None, None)

    def launch(_):
        hip.hipLaunchKernel(function, ONE, ONE, None, ctypes.c_size_t(0), ctypes.c_void_p(device.stream))

    print(json.dumps(device.time_us(launch, 0, count)))
    Runtime.sleep = lambda self, cycles: None
    try:
        print(json.dumps(device.time_us(launch, 0, count)))
    except HostBoundError as error:
        print(json.dumps(str(error)))


main()
