"""A step as a graph of moments, and its times when they are run again.

A node is a moment: a point of a host thread, the end of a kernel, a rendezvous.  It follows at most two others, and
comes at::

    max(time[a] + lag_a + host_factor · host, time[b] + lag_b) + us

``host`` (µs) is what the host did since ``a`` under the profiler, ``us`` the time of a kernel or a transfer, the lags
what the machine takes whatever the host's speed.  Nodes stand in an order in which each follows earlier ones, so one
pass gives all times.  Node 0 is the beginning.
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
"""What the time before a node is spent on."""
NEVER = float("-inf")
_PASSES = 64


class Bounds(NamedTuple):
    """The nodes at which a unit of work of a rank begins and ends, and its kind; ``begun`` and ``issued``: the nodes of
    its host alone.
    """

    rank: int
    kind: str
    first: int
    last: int
    begun: int
    issued: int


class Nodes:
    """The nodes of a graph while it is built, in columns; the first one is the beginning.  ``at`` is a node's traced
    time, by which nodes are sorted in the end; it follows the nodes ``a`` and ``b`` (``lag_b`` NEVER: only ``a``).
    ``kernel``: an index of the graph's identities (-1: none), ``launch`` what the host spent on launching it (µs).
    ``outside``: nodes that wait for what no trace shows.
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
        """Append a node; its index."""
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
        """A node that follows all of these at once."""
        if len(nodes) == 1:
            return nodes[0]
        first, *rest = dict.fromkeys(nodes)
        for other in rest:
            first = self.add(max(self.at[first], self.at[other]), kind, first, other, lag_b=0.0)
        return first


@dataclass(eq=False)
class Graph:
    """See the module; arrays of the nodes' values.  ``outside`` are the nodes of batches that came from a loader's
    workers, and of collectives whose other ranks no trace shows.  ``notes``: what a reader must know, as texts for a
    number.
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
        """``us`` with each kernel's time multiplied by the factor of its identity."""
        by_kernel: Floats = np.r_[factors, 1.0]
        return self.us * by_kernel[self.kernel]

    def launches_us(self, of: Sequence[bool]) -> float:
        """What the host spent on launching the kernels of these identities."""
        return float(self.launch[np.r_[np.array(of, dtype=bool), False][self.kernel]].sum())

    def waiting(self, factor: float) -> Graph:
        """The graph in which what it waits for outside takes this many times as long."""
        us, lag_a, nodes = self.us.copy(), self.lag_a.copy(), np.array(self.outside, dtype=np.int64)
        us[nodes] *= factor
        lag_a[nodes[self.kind[nodes] == LOADING]] *= factor
        return replace(self, us=us, lag_a=lag_a)

    def without(self, kind: int) -> Floats:
        """``us`` with kernels, or collectives, that take no time."""
        return np.where(self.kind == kind, 0.0, self.us)


def make_graph(
    nodes: Nodes,
    bounds: Sequence[Bounds],
    identities: Sequence[KernelIdentity],
    notes: Mapping[str, float],
) -> Graph:
    """Make the graph of these nodes, sorted such that each follows earlier ones."""
    values = {name: np.array(column) for name, column in vars(nodes).items() if name != "outside"}
    at, a, b = values.pop("at"), values["a"], values["b"]
    own = np.arange(len(at))
    for _ in range(_PASSES):  # a node is never sorted before what it follows, which clocks may contradict
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
    for name in ("a", "b"):  # a dependency that the trace contradicts is left out
        values[name] = place[values[name]]
        bad = values[name] >= own
        bad[0] = False
        values[name][bad], values[f"lag_{name}"][bad] = 0, NEVER
    alone = np.isneginf(values["lag_a"]) & np.isneginf(values["lag_b"])
    values["lag_a"][alone] = 0.0  # what follows nothing begins with the trace
    moved = [Bounds(x.rank, x.kind, *(int(place[node]) for node in x[2:])) for x in bounds]
    outside = [int(place[node]) for node in nodes.outside]
    return Graph(**values, bounds=moved, identities=identities, outside=outside, notes=notes)


def times(graph: Graph, us: Floats | None = None, host_factor: float = 1.0) -> list[float]:
    """When each node comes, µs after the beginning, with these times of kernels and transfers."""
    took = graph.us if us is None else us
    columns = (graph.a, graph.b, graph.lag_a + host_factor * graph.host + took, graph.lag_b + took)
    out = [0.0]
    for x, y, p, q in zip(*(column[1:].tolist() for column in columns), strict=True):
        first, second = out[x] + p, out[y] + q
        out.append(first if first > second else second)
    return out


def shares(graph: Graph, at: Sequence[float], us: Floats, host_factor: float) -> dict[str, float]:
    """What the step waits for: µs of each kind along the paths that determine the ends of each rank's units."""
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
            node, begin = held[-1].issued, at[held[0].begun]  # the device catches up with its host, which it waits for
        while node > 0 and at[node] > begin:
            path.append(node)
            node = follows[node]
        kind = graph.kind[path]
        passed = moments[path] - np.maximum(moments[before[path]], begin)
        # a kernel that its launch was the last to allow waits for the host as long as that takes
        launched = ~first[path] & ((kind == KERNELS) | (kind == COMMUNICATION))
        launch = np.where(launched, np.maximum(passed - us[path], 0.0), 0.0)
        out += np.bincount(kind, passed - launch, len(KINDS))
        out[HOST] += launch.sum()
    return dict(zip(KINDS, out.tolist(), strict=True))
