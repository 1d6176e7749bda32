"""Read an output after logparse itself has ended, for a process that the job left behind and that keeps it open.

This file is run by its path, because it must start within milliseconds.  It lives as long as that process.  Without a
reader the process would die of SIGPIPE at its next output, or wait for ever with a full pipe.
"""

import os
import sys


def copy_on(source: int, outputs: list[int]) -> None:
    """Copy all bytes from ``source`` to the outputs until its last writer has gone.

    An output that fails is left out.
    """
    while True:
        try:
            data = os.read(source, 1 << 16)
        except OSError:  # it is a terminal whose last writer has gone
            return
        if not data:
            return
        for output in list(outputs):
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(output, left) :]
            except OSError:
                outputs.remove(output)


if __name__ == "__main__":
    copy_on(int(sys.argv[1]), [int(word) for word in sys.argv[2:]])
