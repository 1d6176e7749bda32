"""Get an answer from a child process.

The real libraries read some files only once per process, so each answer needs a new process.
"""

import json
import os
import traceback


def forked(answer):
    """Run ``answer`` in a child process and return its result.

    If the child ends without a result, returns ``{"ended": its exit status}``. A negative status is a signal.
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
