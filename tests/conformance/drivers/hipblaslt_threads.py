"""A small job that calls the real hipBLASLt in several threads at once.

In ``hipblaslt_threads.py CALLS TIMES END``, each call has its own thread. END is ``"exit"`` or ``"kill"``.
"""

# A call is JSON, as hipblaslt_lookup.py describes it. Each thread computes its call TIMES times. END says how the
# process then ends.

import json
import os
import signal
import sys
import threading

from hipblaslt import Library


def main():
    calls, times, end = map(json.loads, sys.argv[1:])
    threads = [threading.Thread(target=lambda call=call: list(Library().run(call, times))) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


main()
