"""Where a crew sits: a seat is one device, and what opens worker processes on it.

On this machine a seat starts its workers itself.  On Ray it holds an actor with one GPU, on whatever node has one free,
and the actor starts the very same workers there: a library that crashes takes its process with it, not the actor, and
the device stays the seat's own.  Who works on a seat sees no difference.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeAlias

from analyzers.measure.backend import Place
from analyzers.measure.drift import idle_facts, noise
from analyzers.measure.results import Method
from analyzers.measure.worker import Gone, Handle, Lost, Reply, Task, Worker
from logparse.executors import ray_address

_LISTEN_SECONDS = 5.0
_STOP_SECONDS = 30.0
_THREADS = 4  # of an actor: it is spoken to while it listens


class Seat(Protocol):
    """A device."""

    @property
    def place(self) -> Place:
        """Its ``device`` is the device's name, for people: on Ray with the node's, once a worker was opened."""

    def open(self, backends: Sequence[str], method: Method) -> Handle:
        """A new worker on it.  The one before must be stopped."""


@dataclass(frozen=True)
class LocalSeat:
    """A device of this machine."""

    place: Place

    def open(self, backends: Sequence[str], method: Method) -> Handle:
        return Worker(backends, self.place, method)


Seats: TypeAlias = tuple[Sequence[Seat], Sequence[str]]
"""Seats, and remarks on their devices."""


@contextlib.contextmanager
def seats(engine: str, place: Place, devices: Sequence[str]) -> Iterator[Seats]:
    """One seat per device: of this machine, or of a Ray cluster.

    ``devices`` empty: all GPUs, else one CPU.  On Ray the names tell only how many devices and of which kind.  Raises
    InputError for an unknown engine, where Ray is not installed, and where no cluster answers.
    """
    if engine == "local":
        names = tuple(devices) or visible_devices()
        yield [LocalSeat(replace(place, device=name)) for name in names], _remarks(names)
        return
    from logparse.executors.ray import connect

    ray, ours = connect(ray_address(engine))
    gpus = int(ray.cluster_resources().get("GPU", 0))
    names = tuple(devices) or ("cuda:0",) * gpus or ("cpu",)
    found = [RaySeat(ray, replace(place, device="cpu" if name.startswith("cpu") else "cuda:0")) for name in names]
    try:
        yield found, ()
    finally:
        for seat in found:
            seat.close()
        if ours:
            ray.shutdown()


def visible_devices() -> tuple[str, ...]:
    """Every GPU that torch sees, else the CPU.  Asked without starting a context in this process."""
    try:
        import torch
    except ImportError:
        return ("cpu",)
    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) or ("cpu",)


def _remarks(devices: Sequence[str]) -> list[str]:
    return [f"{device}: {why}" for device in devices for why in noise(idle_facts(device))]


class RaySeat:
    """A GPU (or a core) of a cluster.  Ray shows an actor its own GPU only, which is therefore always ``cuda:0``."""

    def __init__(self, ray: Any, place: Place) -> None:
        self.place = place
        self._ray, self._there = ray, place
        self._host: Any = None

    def open(self, backends: Sequence[str], method: Method) -> Handle:
        if self._host is None:
            needs = {"num_cpus": 1} if self._there.device == "cpu" else {"num_gpus": 1, "num_cpus": 1}
            host = self._ray.remote(_Host).options(max_concurrency=_THREADS, **needs)
            self._host = host.remote()
        return _Remote(self._ray, self, self._host, (backends, self._there, method))

    def named(self, device: str) -> None:
        """The device that it has got."""
        self.place = replace(self._there, device=device)

    def lost(self) -> None:
        """The actor is gone; the next worker gets another one."""
        self._host = None

    def close(self) -> None:
        """Give the device back."""
        if self._host is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(self._host)
        self._host = None


class _Host:
    """The actor: has a GPU, and one worker at a time on it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._changing = threading.Lock()  # of the worker: calls come on several threads

    def there(self) -> None:
        """Answers once it has its device."""

    def open(self, backends: Sequence[str], place: Place, method: Method) -> str:
        """Start a worker; the name of the device."""
        import ray

        self.stop()
        with self._changing:
            self._worker = Worker(backends, place, method)
        gpus = "".join(str(x) for x in ray.get_gpu_ids()[:1])
        node = ray.util.get_node_ip_address()
        return f"{node}/{f'cuda:{gpus}' if gpus else place.device}"

    def send(self, task: Task) -> None:
        if self._worker is not None:
            with contextlib.suppress(OSError):  # it is dead: who listens hears that
                self._worker.send(task)

    def listen(self, seconds: float) -> list[Reply]:
        """What the worker says within some time, and at last how it died."""
        worker = self._worker
        said: list[Reply] = []
        if worker is None:
            return [Gone("was stopped")]
        try:
            while wait([worker.connection], timeout=0 if said else seconds):
                said.append(worker.receive())
        except (EOFError, OSError):
            said.append(Gone(worker.death()))
        return said

    def stop(self) -> None:
        with self._changing:
            worker, self._worker = self._worker, None
            if worker is not None:
                worker.stop()


class _Remote(Handle):
    """A worker on a seat of a cluster.  A thread hears it, and says it on through a pipe as if it were one of ours."""

    def __init__(self, ray: Any, seat: RaySeat, host: Any, how: tuple[Sequence[str], Place, Method]) -> None:
        ours, self._theirs = Pipe()
        super().__init__(ours)
        self._ray, self._seat, self._host = ray, seat, host
        self._stopped = threading.Event()
        self._opened = False
        threading.Thread(target=self._hear, args=how, daemon=True).start()

    def _hear(self, *how: object) -> None:
        try:
            there = self._host.there.remote()
            while not self._ray.wait([there], timeout=1)[0]:  # no device is free: nobody's fault, nor is it silence
                if self._stopped.is_set():
                    return
                self.heard = self.started = time.monotonic()
            self._opened = True
            self._seat.named(self._ray.get(self._host.open.remote(*how)))
            while not self._stopped.is_set():
                for reply in self._ray.get(self._host.listen.remote(_LISTEN_SECONDS)):
                    self._theirs.send(reply)
                    if isinstance(reply, Gone):
                        return
        except OSError:  # stopped: nobody listens any more
            return
        except self._ray.exceptions.RayError as error:
            with contextlib.suppress(OSError):
                self._theirs.send(Lost(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"))
        finally:
            self._theirs.close()

    def send(self, task: Task) -> None:
        self.heard = time.monotonic()
        self._host.send.remote(task)

    def receive(self) -> Reply:
        reply = super().receive()
        if isinstance(reply, Lost):
            self._opened = False
            self._seat.lost()
        return reply

    def stop(self) -> None:
        self._stopped.set()
        if self._opened:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(self._host.stop.remote(), timeout=_STOP_SECONDS)
        self._pipe.close()
