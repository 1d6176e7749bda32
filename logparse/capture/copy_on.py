"""Go on copying a job's output after logparse has ended, because a background process of the job still prints.

This program runs as long as the background process.
"""

# Without a reader, the background process would be killed by SIGPIPE at its next output, or wait for ever at a full
# pipe. This program is started by its path instead of being imported from the package, because it must start within
# milliseconds.

import os
import sys


def copy_on(source: int, outputs: list[int]) -> None:
    """Copy all bytes from ``source`` to the ``outputs`` until no process writes to ``source`` any more.

    ``source`` and the outputs are file descriptors. If writing to an output fails, that output gets no further bytes.
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
