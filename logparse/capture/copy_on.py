"""Read an output after logparse itself has ended, because a process that the job left behind still writes to it.

This file is run by its path, because it must start within milliseconds.  It runs as long as that process runs.  Without
a reader the process would die of SIGPIPE at its next output, or wait for ever because its pipe is full.
"""

import os
import sys


def copy_on(source: int, outputs: list[int]) -> None:
    """Copy all bytes from ``source`` to the outputs until no process writes to ``source`` any more.

    If writing to an output fails, that output gets no further bytes.
    """
    while True:
        try:
            data = os.read(source, 1 << 16)
        except OSError:  # no process writes to the terminal any more
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
