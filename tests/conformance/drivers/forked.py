"""Answers from child processes: what a library reads once per process is read anew in each."""

import json
import os


def forked(answer):
    """What ``answer`` returns, from a child process; None where that ends without."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            with os.fdopen(write, "wb") as pipe:
                pipe.write(json.dumps(answer()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return json.loads(data) if data else None
