"""Measure a kernel on the virtual GPU as ``logparse replay`` does, with and without holding the GPU first.

To hold the GPU, a kernel keeps it busy until all launches are queued. ``events.py KERNEL COUNT`` prints the mean time
of COUNT launches in µs after such a hold. Then it prints the result of the same launches without a hold.
"""

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
