"""The worker process that measures on a GPU, and the parent's connection to it. A library's crash ends only the worker.

If the worker ends or is silent for too long, the parent records the present kernel as failed and starts another worker.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from analyzers.replay.results import Confirmed, Method, Result
from analyzers.replay.sampler import UnhealthyDeviceError
from analyzers.replay.trial import Task, WorkerContext
from logparse.errors import InputError
from logparse.executors.processes import death, end_with_parent, pipe, started
from logparse.libraries.kinds.backend import BackendType, Place
from logparse.model import Solution


@dataclass(frozen=True)
class Ready:
    """A worker's message that its backends are open. ``facts`` describe its machine and libraries."""

    facts: Mapping[str, str]


@dataclass(frozen=True)
class Current:
    """A message from a worker process: it is about to run this kernel (or to do another step)."""

    what: Solution | str


@dataclass(frozen=True)
class Failure:
    """A worker's message that a task failed, or that a library could not be opened.

    ``fatal`` is True if the worker process has ended.
    """

    reason: str
    fatal: bool = False


@dataclass(frozen=True)
class Gone:
    """A message about a worker process on another machine: how it ended. (A local worker closes its pipe instead.)"""

    how: str


@dataclass(frozen=True)
class Lost:
    """A message that the machine of a worker process is gone. The kernel that ran is not the cause."""

    why: str


Reply: TypeAlias = Ready | Current | Result | Confirmed | Failure | Gone | Lost


def backend_named(name: str) -> BackendType:
    """Return the backend (the interface to a library) with this name, or the user's own one.

    The name of the user's own backend has the form ``package.module:NAME``. Raises InputError if there is no such
    backend.
    """
    from logparse.libraries.all_backends import BACKENDS

    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InputError(f"--backend {name!r}: cannot be imported: {error}") from error
        if not isinstance(found, BackendType):
            raise InputError(f"--backend {name!r}: is not an instance of BackendType")
        return found
    for member in BACKENDS:
        if member.name == name:
            return member
    known = ", ".join(x.name for x in BACKENDS)
    raise InputError(f"--backend {name!r}: unknown; name one of {known}, or your own package.module:NAME")


class Handle:
    """The parent's end of the connection to a worker process, local or remote.

    It has a pipe, and the time of the worker's last message (s).
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection
        self._death = "has ended"
        self.current: Solution | str = "opening the backends"
        self.last_message_s = self.started = time.monotonic()
        self.facts: Mapping[str, str] = {}

    def send(self, task: Task) -> None:
        self.last_message_s = time.monotonic()
        self.connection.send(task)

    def receive(self) -> Reply:
        """Wait for the worker's next message and return it. Raises EOFError if the worker has ended."""
        reply: Reply = self.connection.recv()
        self.last_message_s = time.monotonic()
        if isinstance(reply, Current):
            self.current = reply.what
        elif isinstance(reply, Ready):
            self.facts = reply.facts
        elif isinstance(reply, Gone):
            self._death = reply.how
            raise EOFError(reply.how)
        return reply

    def death(self) -> str:
        """Return a text that describes how the worker's process ended, for example "has ended"."""
        return self._death

    def stop(self) -> None:
        """Stop the worker at once, even if it hangs in a kernel."""
        self.connection.close()


_BACKENDS = "logparse.libraries.all_backends"
"""A module that all worker processes need, so it is imported only once, before they start.

The module of a backend imports pandas in addition to its own library. That takes a third of a second of CPU.
"""


class Worker(Handle):
    """A worker process on this machine."""

    def __init__(self, names: Sequence[str], place: Place, method: Method) -> None:
        parent_end, worker_end = pipe()
        super().__init__(parent_end)
        libraries = dict.fromkeys(module for name in names for module in backend_named(name).imports)
        self._process = started(_serve, worker_end, tuple(names), place, method, imports=(_BACKENDS, *libraries))
        worker_end.close()

    def death(self) -> str:
        return death(self._process)

    def stop(self) -> None:
        self._process.kill()
        self._process.join(10)
        self.connection.close()


def _serve(parent: Connection[Any, Any], names: Sequence[str], place: Place, method: Method) -> None:
    # A worker receives tasks and sends messages. Before each step, the worker names the kernel that it is about to run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    # If the parent ends, this thread ends the worker too, even in a hung kernel.
    threading.Thread(target=end_with_parent, daemon=True).start()
    context = _open(parent, names, place, method)
    while context is not None:
        try:
            task: Task = parent.recv()
        except EOFError:  # The parent has ended.
            return
        try:
            parent.send(context.run(task))
        except UnhealthyDeviceError as error:
            parent.send(Failure(str(error), fatal=True))
            os._exit(3)  # A faulted device context may hang while it is released.
        except Exception as error:  # This is a fault here or in a backend's listing. The next problem may work.
            parent.send(Failure(f"{type(error).__name__}: {error}"))


def _open(parent: Connection[Any, Any], names: Sequence[str], place: Place, method: Method) -> WorkerContext | None:
    try:
        backends = {name: backend_named(name).open(place) for name in names}
        context = WorkerContext(backends, place, method, lambda what: parent.send(Current(what)))
    except Exception as error:
        parent.send(Failure(f"{type(error).__name__}: {error}", fatal=True))
        return None
    parent.send(Ready(context.facts))
    return context
