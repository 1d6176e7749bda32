"""A step of a job as a graph of moments, from which the time of the step is computed if kernel times change.

A node is a moment: a point of a host thread, the end of a kernel, or a rendezvous. A node follows at most two nodes,
``a`` and ``b``. Its time is::

    max(time[a] + lag_a + host_factor · host, time[b] + lag_b) + us

* ``host``: time that the host worked since ``a`` under the profiler, µs.
* ``us``: time of a kernel or a transfer, µs.
* ``lag_a``, ``lag_b``: times that the machine takes whatever the host's speed, µs.

The nodes are sorted so that each node comes after the nodes that it follows. So one pass computes all times. Node 0 is
the beginning.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from logparse.libraries.torch_profiler.timeline import KernelIdentity

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HOST, KERNELS, COMMUNICATION, LOADING = range(4)
KINDS = ("host", "kernels", "communication", "data loading")
"""Kinds of work for which a step can wait."""
NEVER = float("-inf")
_PASSES = 64


class Bounds(NamedTuple):
    """The nodes of the graph at which a step of one rank begins and ends.

    * ``first``, ``last``: the step begins and ends, on host and device.
    * ``begun``, ``issued``: the host begins, and has launched all work.
    """

    rank: int
    kind: str
    first: int
    last: int
    begun: int
    issued: int


class Nodes:
    """The nodes (moments) of a graph while it is built, as columns. Node 0 is the beginning.

    * ``at``: traced time of a node, µs. In the end the nodes are sorted by it.
    * ``a``, ``b``: the nodes that the node waits for. If ``lag_b`` is NEVER, it waits only for ``a``.
    * ``kernel``: index of the node's kernel in the graph's identities, −1 for none.
    * ``launch``: time that the host spent on the kernel's launch, µs.
    * ``outside``: nodes that wait for something that no trace shows.
    """

    def __init__(self) -> None:
        self.outside: list[int] = []
        self.at, self.lag_a, self.lag_b, self.host, self.us, self.launch = (array("d") for _ in range(6))
        self.kind, self.a, self.b, self.kernel = (array("q") for _ in range(4))
        self.add(0.0, HOST)

    def add(
        self,
        at: float,
        kind: int,
        a: int = 0,
        b: int = 0,
        lag_a: float = 0.0,
        lag_b: float = NEVER,
        host: float = 0.0,
        us: float = 0.0,
        kernel: int = -1,
        launch: float = 0.0,
    ) -> int:
        """Append a node and return its index."""
        self.at.append(at)
        self.kind.append(kind)
        self.a.append(a)
        self.b.append(b)
        self.lag_a.append(lag_a)
        self.lag_b.append(lag_b)
        self.host.append(host)
        self.us.append(us)
        self.kernel.append(kernel)
        self.launch.append(launch)
        return len(self.at) - 1

    def join(self, nodes: Sequence[int], kind: int) -> int:
        """Return a node that waits for all of ``nodes``.

        If ``nodes`` has only one node, that node itself is returned.
        """
        if len(nodes) == 1:
            return nodes[0]
        first, *rest = dict.fromkeys(nodes)
        for other in rest:
            first = self.add(max(self.at[first], self.at[other]), kind, first, other, lag_b=0.0)
        return first


@dataclass(eq=False)
class Graph:
    """A step of a job as a graph of moments. Each array has one value per node (the module's docstring explains them).

    * ``bounds``: the beginning and end of each step.
    * ``identities``: the distinct kernels, each with its operator and its GEMM or convolution.
    * ``outside``: nodes that wait for something outside the traces: batches from a loader's workers, and collectives
      with ranks that left no trace.
    * ``notes``: remarks for the user, as texts with a place for a number.
    """

    a: Ints
    b: Ints
    lag_a: Floats
    lag_b: Floats
    host: Floats
    us: Floats
    launch: Floats
    kind: Ints
    kernel: Ints
    bounds: Sequence[Bounds]
    identities: Sequence[KernelIdentity]
    outside: Sequence[int] = ()
    notes: Mapping[str, float] = field(default_factory=dict)

    def scaled(self, factors: Floats) -> Floats:
        """Return the durations of all kernels and transfers after a change, one per node, µs.

        ``factors`` has one value for each distinct kernel (``identities``), by which its duration is multiplied.
        """
        by_kernel: Floats = np.r_[factors, 1.0]
        return self.us * by_kernel[self.kernel]

    def launches_us(self, of: Sequence[bool]) -> float:
        """Return how long the host takes in total to launch the selected kernels, µs.

        ``of`` selects them. It has one value for each distinct kernel of the step (``identities``), and True selects
        all launches of the kernel.
        """
        return float(self.launch[np.r_[np.array(of, dtype=bool), False][self.kernel]].sum())

    def waiting(self, factor: float) -> Graph:
        """Return a copy of the graph in which waits for things outside the traces are multiplied by ``factor``.

        Such waits are for data-loader workers, or for ranks that left no trace.
        """
        us, lag_a, nodes = self.us.copy(), self.lag_a.copy(), np.array(self.outside, dtype=np.int64)
        us[nodes] *= factor
        lag_a[nodes[self.kind[nodes] == LOADING]] *= factor
        return replace(self, us=us, lag_a=lag_a)

    def without(self, kind: int) -> Floats:
        """Return the duration of every node of the graph (µs), but 0 for one kind of work, such as communication."""
        return np.where(self.kind == kind, 0.0, self.us)


def make_graph(
    nodes: Nodes,
    bounds: Sequence[Bounds],
    identities: Sequence[KernelIdentity],
    notes: Mapping[str, float],
) -> Graph:
    """Convert the collected nodes to a graph of arrays, sorted so that each node comes after those it waits for."""
    values = {name: np.array(column) for name, column in vars(nodes).items() if name != "outside"}
    at, a, b = values.pop("at"), values["a"], values["b"]
    own = np.arange(len(at))
    # Clocks may contradict a dependency. Even then, no node is sorted before the nodes that it follows.
    for _ in range(_PASSES):
        least = np.maximum(at[a], at[b])
        wrong = (at < least) | ((at == least) & (np.maximum(*(np.where(at[x] == at, x, -1) for x in (a, b))) > own))
        wrong[0] = False
        if not wrong.any():
            break
        at[wrong] = np.nextafter(least[wrong], np.inf)
    order = np.lexsort((own, at))
    order = np.r_[0, order[order != 0]]
    place = np.empty_like(order)
    place[order] = own
    values = {name: column[order] for name, column in values.items()}
    for name in ("a", "b"):  # A dependency that the trace contradicts is left out.
        values[name] = place[values[name]]
        bad = values[name] >= own
        bad[0] = False
        values[name][bad], values[f"lag_{name}"][bad] = 0, NEVER
    alone = np.isneginf(values["lag_a"]) & np.isneginf(values["lag_b"])
    values["lag_a"][alone] = 0.0  # A node that follows nothing begins with the trace.
    moved = [Bounds(x.rank, x.kind, *(int(place[node]) for node in x[2:])) for x in bounds]
    outside = [int(place[node]) for node in nodes.outside]
    return Graph(**values, bounds=moved, identities=identities, outside=outside, notes=notes)


def times(graph: Graph, us: Floats | None = None, host_factor: float = 1.0) -> list[float]:
    """Compute when each node (moment) of the graph is reached, in µs after the beginning.

    * ``us``: durations of kernels and transfers, one per node. Default: as traced.
    * ``host_factor``: multiplies the host's times.
    """
    took = graph.us if us is None else us
    columns = (graph.a, graph.b, graph.lag_a + host_factor * graph.host + took, graph.lag_b + took)
    out = [0.0]
    for x, y, p, q in zip(*(column[1:].tolist() for column in columns), strict=True):
        first, second = out[x] + p, out[y] + q
        out.append(first if first > second else second)
    return out


def shares(graph: Graph, at: Sequence[float], us: Floats, host_factor: float) -> dict[str, float]:
    """Return how much of a step's time is due to the host, kernels, communication and data loading, µs.

    The critical path is followed backwards, from the end of each rank's steps: from each node to the node for which it
    waited.
    """
    out = np.zeros(len(KINDS))
    moments: Floats = np.array(at)
    lag_a = graph.lag_a + host_factor * graph.host
    first = moments[graph.a] + lag_a >= moments[graph.b] + graph.lag_b
    before = np.where(first, graph.a, graph.b)
    follows = before.tolist()
    for rank in dict.fromkeys(x.rank for x in graph.bounds):
        mine = [x for x in graph.bounds if x.rank == rank]
        node, begin, path = mine[-1].last, at[mine[0].first], list[int]()
        held = mine[1:]
        if held and at[held[-1].issued] - at[held[0].begun] > at[node] - at[held[0].first]:
            node, begin = held[-1].issued, at[held[0].begun]  # The device catches up with its host and waits for it.
        while node > 0 and at[node] > begin:
            path.append(node)
            node = follows[node]
        kind = graph.kind[path]
        passed = moments[path] - np.maximum(moments[before[path]], begin)
        # If a kernel waited for its launch last, it waited for the host until the launch.
        launched = ~first[path] & ((kind == KERNELS) | (kind == COMMUNICATION))
        launch = np.where(launched, np.maximum(passed - us[path], 0.0), 0.0)
        out += np.bincount(kind, passed - launch, len(KINDS))
        out[HOST] += launch.sum()
    return dict(zip(KINDS, out.tolist(), strict=True))
