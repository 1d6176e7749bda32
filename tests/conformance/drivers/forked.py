"""Answers from child processes: what a library reads once per process is read anew in each."""

import json
import os
import traceback


def forked(answer):
    """What ``answer`` returns, from a child process; where that ends without, ``{"ended": its exit status}``, negative
    for a signal.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        status = 1
        try:
            with os.fdopen(write, "wb") as pipe:
                pipe.write(json.dumps(answer()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return {"ended": os.waitstatus_to_exitcode(status)} if status or not data else json.loads(data)
