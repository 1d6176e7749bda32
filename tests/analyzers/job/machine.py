"""Simulate a small GPU and its host, and write a trace of it: launches, events and synchronisations.

Tests compare logparse's own simulation of a step with this machine, so the two share no code. The rules of the machine:

* A host call takes its time.
* Each stream runs its queue in order.
* A kernel starts at least ``LAUNCH`` µs after its call and ``GAP`` µs after the previous kernel.
* A wait for an event delays all later work of its stream.
* A synchronisation returns ``BACK`` µs after the end of its stream.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LAUNCH, GAP, BACK = 6.0, 1.0, 5.0
STREAMS = (7, 20)


class Do(NamedTuple):
    """One instruction of a simulated program. ``what`` names its kind:

    * ``host``, ``launch``: The host works, or launches a kernel, for ``us``.
    * ``record``, ``wait``: A stream records or awaits an event.
    * ``sync``: The host awaits the stream.
    """

    # The time us of a launch is the time of the kernel. In "wait", the stream waits for the event of the other stream.
    # In "sync", the host waits until the stream is done.

    what: str
    stream: int = 7
    us: float = 0.0
    name: str = ""


def program(seed: int) -> list[Do]:
    """Return a made-up step of a few dozen kernels, for the simulated machine to run.

    ``seed`` decides what limits the step: the host, a stream or a wait.
    """
    chance = random.Random(seed)
    host, device = chance.choice([5.0, 20.0, 60.0]), chance.choice([5.0, 20.0, 60.0])
    out = []
    for i in range(chance.randint(20, 60)):
        out.append(Do("host", us=host * chance.uniform(0.5, 2.0)))
        stream = 20 if chance.random() < 0.3 else 7
        if chance.random() < 0.25:
            out.append(Do("wait", stream))
        out.append(Do("launch", stream, device * chance.uniform(0.5, 2.0), f"kernel{i % 5}"))
        if chance.random() < 0.5:
            out.append(Do("record", stream))
        if chance.random() < 0.05:
            out.append(Do("sync", stream))
    return [*out, Do("record", 20), Do("wait", 7), Do("launch", 7, device, "last"), Do("host", us=host)]


def run(
    steps: Sequence[Do], factors: Mapping[str, float], host: float, units: int = 3
) -> tuple[float, list[dict[str, Any]]]:
    """Run a step ``units`` times on the simulated machine. Returns its mean time in µs and the events of a trace.

    ``factors`` multiplies the times of kernels ({name: factor}), and ``host`` the times of the host's work.
    """
    # The mean leaves out the first step.
    now, free = 0.0, dict.fromkeys(STREAMS, float("-inf"))
    events: list[dict[str, Any]] = []
    recorded: dict[int, tuple[int, float]] = {}
    done = [0.0]

    def call(name: str, us: float) -> int:
        nonlocal now
        correlation = len(events) + 1
        place = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": now, "dur": us}
        events.append(place | {"args": {"correlation": correlation}})
        now += us
        return correlation

    for unit in range(units):
        begun = now
        for each in steps:
            other = STREAMS[each.stream == STREAMS[0]]
            if each.what == "host":
                now += each.us * host
            elif each.what == "launch":
                start = max(now + LAUNCH, free[each.stream] + GAP)
                us = each.us * factors.get(each.name, 1.0)
                args = {"device": 0, "stream": each.stream, "correlation": call("cudaLaunchKernel", 4 * host)}
                place = {"ph": "X", "cat": "kernel", "name": each.name, "pid": 0, "tid": each.stream, "ts": start}
                events.append(place | {"dur": us, "args": args})
                free[each.stream] = start + us
            elif each.what == "record":
                recorded[each.stream] = (call("cudaEventRecord", host), free[each.stream])
            elif each.what == "wait" and other in recorded:
                record, until = recorded[other]
                waits = call("cudaStreamWaitEvent", host)
                held = {"cuda_sync_kind": "Stream Wait Event", "stream": each.stream, "correlation": waits, "device": 0}
                held |= {"wait_on_stream": other, "wait_on_cuda_event_record_corr_id": record}
                place = {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": each.stream}
                events.append(place | {"ts": now, "dur": 0, "args": held})
                free[each.stream] = max(free[each.stream], until)
            elif each.what == "sync":
                call("cudaStreamSynchronize", max(2 * host, free[each.stream] + BACK - now))
        place = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{unit + 1}", "pid": 1, "tid": 1}
        events.append(place | {"ts": begun, "dur": now - begun, "args": {}})
        done.append(max(now, *free.values()))
    return (done[-1] - done[1]) / (units - 1), events
