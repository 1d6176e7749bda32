"""The GPUs on which ``logparse replay`` measures kernels, local or in a Ray cluster.

All measurements are done in worker processes, because a library may crash:

* A local GPU starts its worker processes itself.
* A GPU of a Ray cluster is an actor, which reserves one GPU on any node and starts the worker processes there. If a
  library crashes, only the worker process ends, so the reservation is kept.

Both kinds have the same interface, so the scheduler need not know which is used.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any, TypeAlias

from analyzers.replay.drift import idle_facts, noise
from analyzers.replay.results import Method
from analyzers.replay.trial import Task
from analyzers.replay.worker import Gone, Handle, Lost, Reply, Worker
from logparse.errors import InputError
from logparse.executors import ray_address
from logparse.libraries.kinds.backend import Place

_LISTEN_SECONDS = 5.0
_STOP_SECONDS = 30.0
_THREADS = 4  # Threads of an actor: calls arrive while ``listen`` waits.


@dataclass(frozen=True)
class LocalDevice:
    """A GPU (or the CPU) of this machine that starts worker processes."""

    place: Place

    def open(self, backends: Sequence[str], method: Method) -> Handle:
        return Worker(backends, self.place, method)


@contextlib.contextmanager
def opened_devices(
    engine: str, place: Place, devices: Sequence[str]
) -> Iterator[tuple[Sequence[Device], Sequence[str]]]:
    """Open the GPUs to measure on, of this machine or of a Ray cluster, for the duration of a ``with`` block.

    Yields the opened GPUs, and remarks about them.

    * ``devices`` are names like ``cuda:0``. If it is empty, all GPUs are used, or one CPU if there is no GPU.
    * On a Ray cluster, only the number of names matters, and whether they name a CPU or a GPU.
    * Raises InputError for an unknown engine, if Ray is not installed, if no cluster answers, and in the cases of
      ``local_devices``.
    """
    if engine == "local":
        names = local_devices(devices)
        remarks = [f"{name}: {why}" for name in names for why in noise(idle_facts(name))]
        yield [LocalDevice(replace(place, device=name)) for name in names], remarks
        return
    from logparse.executors.ray import connect

    ray, ours = connect(ray_address(engine))
    gpus = int(ray.cluster_resources().get("GPU", 0))
    names = tuple(devices) or ("cuda:0",) * gpus or ("cpu",)
    found = [RayDevice(ray, replace(place, device="cpu" if name.startswith("cpu") else "cuda:0")) for name in names]
    try:
        yield found, ()
    finally:
        for device in found:
            device.close()
        if ours:
            ray.shutdown()


def local_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """Return the named devices of this machine. Without names, return all GPUs, or the CPU if there is no GPU.

    Raises InputError if torch does not see a named GPU, or if a GPU is named twice.
    """
    gpus = [name for name in devices if name.startswith("cuda")]
    seen = visible_devices() if gpus or not devices else ()
    for name in gpus:
        if name not in seen:
            there = ", ".join(x.removeprefix("cuda:") for x in seen if x.startswith("cuda")) or "none"
            raise InputError(
                f"--device: there is no GPU {name.removeprefix('cuda:')}; PyTorch sees {there} on this machine"
            )
        # The workers of a GPU that is named twice would disturb each other.
        if gpus.count(name) > 1:
            raise InputError(f"--device names GPU {name.removeprefix('cuda:')} twice")
    return tuple(devices) or seen


def visible_devices() -> tuple[str, ...]:
    """Return the names of all GPUs that torch sees (``cuda:0`` …), or the CPU if it sees no GPU.

    This process does not start a context on any GPU.
    """
    try:
        import torch
    except ImportError:
        return ("cpu",)
    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) or ("cpu",)


class RayDevice:
    """A GPU (or a CPU core) of a Ray cluster, on which worker processes are started.

    * ``place.device``: ``cuda:0``, because a Ray actor sees only its own GPU. Once a worker was opened, the text also
      has the node's address.
    """

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
        self.place = replace(self._there, device=device)

    def lost(self) -> None:
        """Forget the machine after it was lost. The next worker process starts elsewhere, with a new Ray actor."""
        self._host = None

    def close(self) -> None:
        if self._host is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(self._host)
        self._host = None


Device: TypeAlias = LocalDevice | RayDevice


class _Host:
    """A Ray actor that reserves a GPU of a cluster, and runs one worker process at a time on it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._changing = threading.Lock()  # This lock guards the worker, because calls arrive on several threads.

    def there(self) -> None:
        """Do nothing. The caller waits until this call returns, because Ray has then reserved the actor's GPU."""

    def open(self, backends: Sequence[str], place: Place, method: Method) -> str:
        """Start a worker process on this machine of the Ray cluster.

        Returns the name of its device, preceded by the node's address.
        """
        import ray

        self.stop()
        with self._changing:
            self._worker = Worker(backends, place, method)
        gpus = "".join(str(x) for x in ray.get_gpu_ids()[:1])
        node = ray.util.get_node_ip_address()
        return f"{node}/{f'cuda:{gpus}' if gpus else place.device}"

    def send(self, task: Task) -> None:
        if self._worker is not None:
            with contextlib.suppress(OSError):  # The worker has ended. ``listen`` reports that.
                self._worker.send(task)

    def listen(self, seconds: float) -> list[Reply]:
        """Return the messages that the worker sends within ``seconds``.

        If the worker's process has ended, the last message states how it ended.
        """
        worker = self._worker
        replies: list[Reply] = []
        if worker is None:
            return [Gone("was stopped")]
        try:
            while wait([worker.connection], timeout=0 if replies else seconds):
                replies.append(worker.receive())
        except (EOFError, OSError):
            replies.append(Gone(worker.death()))
        return replies

    def stop(self) -> None:
        with self._changing:
            worker, self._worker = self._worker, None
            if worker is not None:
                worker.stop()


class _Remote(Handle):
    """The connection to a worker process in a Ray cluster. A thread forwards its messages through a local pipe."""

    def __init__(self, ray: Any, device: RayDevice, host: Any, how: tuple[Sequence[str], Place, Method]) -> None:
        reading, self._writing = Pipe()
        super().__init__(reading)
        self._ray, self._device, self._host = ray, device, host
        self._stopped = threading.Event()
        self._opened = False
        threading.Thread(target=self._forward, args=how, daemon=True).start()

    def _forward(self, *how: object) -> None:
        try:
            there = self._host.there.remote()
            while not self._ray.wait([there], timeout=1)[0]:  # Time spent waiting for a free device is no timeout.
                if self._stopped.is_set():
                    return
                self.last_message_s = self.started = time.monotonic()
            self._opened = True
            self._device.named(self._ray.get(self._host.open.remote(*how)))
            while not self._stopped.is_set():
                for reply in self._ray.get(self._host.listen.remote(_LISTEN_SECONDS)):
                    self._writing.send(reply)
                    if isinstance(reply, Gone):
                        return
        except OSError:  # The worker was stopped, so the reading end is closed.
            return
        except self._ray.exceptions.RayError as error:
            with contextlib.suppress(OSError):
                self._writing.send(Lost(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"))
        finally:
            self._writing.close()

    def send(self, task: Task) -> None:
        self.last_message_s = time.monotonic()
        self._host.send.remote(task)

    def receive(self) -> Reply:
        reply = super().receive()
        if isinstance(reply, Lost):
            self._opened = False
            self._device.lost()
        return reply

    def stop(self) -> None:
        self._stopped.set()
        if self._opened:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(self._host.stop.remote(), timeout=_STOP_SECONDS)
        self.connection.close()
