"""One process per device, and the parent's side of it: what a library breaks, it breaks in there.

A worker takes tasks and answers with messages; before each step it says what it has in hand.  When it dies or falls
silent, the parent knows which solution it was, records that, and starts another worker.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from analyzers.measure.backend import BackendType, Place
from analyzers.measure.results import Confirmed, Method, Result
from analyzers.measure.sampler import SickError
from analyzers.measure.trial import Laboratory
from logparse.errors import InputError
from logparse.executors.local import end_with_parent
from logparse.model import Measurement, Problem, Solution


@dataclass(frozen=True, kw_only=True)
class RaceTask:
    """Measure a problem; ``known`` and ``lost`` as ``Laboratory.measure`` takes them."""

    problem: Problem
    known: Mapping[str, Measurement] = field(default_factory=dict)
    lost: tuple[Measurement, ...] = ()
    workspace_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class ConfirmTask:
    """Confirm a winner against the pick."""

    problem: Problem
    pick: Solution
    winner: Solution
    workspace_bytes: int | None = None


Task: TypeAlias = RaceTask | ConfirmTask


@dataclass(frozen=True)
class Ready:
    """The worker's backends are open; the facts of its environment."""

    facts: Mapping[str, str]


@dataclass(frozen=True)
class InHand:
    """The worker is about to run this solution, or to do another step."""

    what: Solution | str


@dataclass(frozen=True)
class Answer:
    """A task's outcome."""

    outcome: Result | Confirmed


@dataclass(frozen=True)
class Failure:
    """A task or the opening of a backend failed as a whole, the worker lives (``fatal``: it does not)."""

    reason: str
    fatal: bool = False


@dataclass(frozen=True)
class Gone:
    """The worker's process has ended; how.  (Here the end of its pipe says so.)"""

    how: str


@dataclass(frozen=True)
class Lost:
    """The worker is gone with the machine that it was on: no fault of what it had in hand."""

    why: str


Reply: TypeAlias = Ready | InHand | Answer | Failure | Gone | Lost


def backend_named(name: str) -> BackendType:
    """A member of ``BACKENDS``, or one of the user's own, ``package.module:NAME``.  Raises InputError."""
    from analyzers.measure.backends import BACKENDS

    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InputError(f"no backend {name!r}: {error}") from error
        if not isinstance(found, BackendType):
            raise InputError(f"{name!r} is no BackendType")
        return found
    for member in BACKENDS:
        if member.name == name:
            return member
    raise InputError(
        f"no backend {name!r}; there is {', '.join(x.name for x in BACKENDS)}, or your own package.module:NAME"
    )


class Handle:
    """The crew's side of a worker, wherever that is: a pipe, and what was last heard through it."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe
        self._death = "is gone"
        self.in_hand: Solution | str = "opening the backends"
        self.heard = self.started = time.monotonic()
        self.facts: Mapping[str, str] = {}

    def send(self, task: Task) -> None:
        """Hand over a task."""
        self.heard = time.monotonic()
        self._pipe.send(task)

    @property
    def connection(self) -> Connection[Any, Any]:
        """For ``multiprocessing.connection.wait``."""
        return self._pipe

    def receive(self) -> Reply:
        """The next message, which must be there.  Raises EOFError when the worker is gone."""
        reply: Reply = self._pipe.recv()
        self.heard = time.monotonic()
        if isinstance(reply, InHand):
            self.in_hand = reply.what
        elif isinstance(reply, Ready):
            self.facts = reply.facts
        elif isinstance(reply, Gone):
            self._death = reply.how
            raise EOFError(reply.how)
        return reply

    def death(self) -> str:
        """How the process ended, once it has."""
        return self._death

    def stop(self) -> None:
        """End the process now; a hung kernel ends with it."""
        self._pipe.close()


class Worker(Handle):
    """A worker process of this machine."""

    def __init__(self, names: Sequence[str], place: Place, method: Method) -> None:
        context = multiprocessing.get_context("spawn")  # a forked CUDA context is broken
        ours, theirs = context.Pipe()
        super().__init__(ours)
        self._process = context.Process(target=_serve, args=(theirs, tuple(names), place, method), daemon=True)
        self._process.start()
        theirs.close()

    def death(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is None:
            return "did not end"
        if code >= 0:
            return f"exited with {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        return f"killed by {name}" + (" (perhaps for lack of host memory)" if name == "SIGKILL" else "")

    def stop(self) -> None:
        self._process.kill()
        self._process.join(10)
        self._pipe.close()


def _serve(pipe: Connection[Any, Any], names: Sequence[str], place: Place, method: Method) -> None:
    """The worker's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=end_with_parent, daemon=True).start()  # a hung kernel must not keep the device for ever
    lab = _open(pipe, names, place, method)
    while lab is not None:
        try:
            task: Task | None = pipe.recv()
        except EOFError:  # the parent is gone
            return
        if task is None:
            return
        try:
            pipe.send(Answer(_do(lab, task)))
        except SickError as error:
            pipe.send(Failure(str(error), fatal=True))
            os._exit(3)  # a poisoned context may hang in its own clean-up
        except Exception as error:  # a fault of ours or a backend's listing; the next problem is another matter
            pipe.send(Failure(f"{type(error).__name__}: {error}"))


def _open(pipe: Connection[Any, Any], names: Sequence[str], place: Place, method: Method) -> Laboratory | None:
    try:
        backends = {name: backend_named(name).open(place) for name in names}
        lab = Laboratory(backends, place, method, lambda what: pipe.send(InHand(what)))
    except Exception as error:
        pipe.send(Failure(f"{type(error).__name__}: {error}", fatal=True))
        return None
    pipe.send(Ready(lab.facts))
    return lab


def _do(lab: Laboratory, task: Task) -> Result | Confirmed:
    if isinstance(task, RaceTask):
        return lab.measure(task.problem, task.known, task.lost, task.workspace_bytes)
    return lab.confirm(task.problem, task.pick, task.winner, task.workspace_bytes)
