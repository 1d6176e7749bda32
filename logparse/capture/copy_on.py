"""Empties an output that a process which the job left behind still has, once logparse itself has ended.

A file of its own, run by its path: it needs to start within milliseconds, and lives as long as that process.  Without a
reader the process would die of SIGPIPE at its next word, or wait for ever with a full pipe.
"""

import os
import sys


def copy_on(source: int, outputs: list[int]) -> None:
    """Copy what comes from ``source`` to the outputs until its last writer has gone; one that fails is left out."""
    while True:
        try:
            data = os.read(source, 1 << 16)
        except OSError:  # a terminal whose last writer has gone
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
