"""A step as a graph of moments, and its times when they are run again.

A node is a moment: a point of a host thread, the end of a kernel, a rendezvous.  It follows at most two others, and
comes at::

    max(time[a] + lag_a + host_factor · host, time[b] + lag_b) + us

``host`` (µs) is what the host did since ``a`` under the profiler, ``us`` the time of a kernel or a transfer, the lags
what the machine takes whatever the host's speed.  Nodes stand in an order in which each follows earlier ones, so one
pass gives all times.  Node 0 is the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from logparse.formats.traces.torch.records import KernelIdentity

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


@dataclass(slots=True)
class Node:
    """A node while the graph is built.  ``at`` is its traced time, by which nodes are sorted in the end; it follows the
    nodes ``a`` and ``b`` (``lag_b`` NEVER: only ``a``).  ``kernel``: an index of the graph's identities (-1: none).
    """

    at: float
    kind: int
    a: int = 0
    b: int = 0
    lag_a: float = 0.0
    lag_b: float = NEVER
    host: float = 0.0
    us: float = 0.0
    kernel: int = -1


class Nodes(list[Node]):
    """The nodes of a graph while it is built; the first one is the beginning."""

    def __init__(self) -> None:
        super().__init__([Node(0.0, HOST)])

    def add(self, node: Node) -> int:
        """Append a node; its index."""
        self.append(node)
        return len(self) - 1

    def join(self, nodes: Sequence[int], kind: int) -> int:
        """A node that follows all of these at once."""
        first, *rest = dict.fromkeys(nodes)
        for other in rest:
            first = self.add(Node(max(self[first].at, self[other].at), kind, first, other, lag_b=0.0))
        return first


@dataclass(eq=False)
class Graph:
    """See the module; arrays of the nodes' values.  ``cut`` counts dependencies that were left out because the trace
    contradicts them, ``unmatched_us`` is the time of collectives whose other ranks no trace shows: it counts as traced.
    """

    a: Ints
    b: Ints
    lag_a: Floats
    lag_b: Floats
    host: Floats
    us: Floats
    kind: Ints
    kernel: Ints
    bounds: Sequence[Bounds]
    identities: Sequence[KernelIdentity]
    cut: int = 0
    unmatched_us: float = 0.0
    notes: Sequence[str] = ()

    def scaled(self, factors: Floats) -> Floats:
        """``us`` with each kernel's time multiplied by the factor of its identity."""
        by_kernel: Floats = np.r_[factors, 1.0]
        return self.us * by_kernel[self.kernel]

    @property
    def free_communication(self) -> Floats:
        """``us`` with collectives that transfer at once."""
        return np.where(self.kind == COMMUNICATION, 0.0, self.us)


def finished(
    nodes: Nodes,
    bounds: Sequence[Bounds],
    identities: Sequence[KernelIdentity],
    unmatched_us: float,
    notes: Sequence[str],
) -> Graph:
    """The graph of these nodes, sorted such that each follows earlier ones."""
    values = {x.name: np.array([getattr(node, x.name) for node in nodes]) for x in fields(Node)}
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
    cut = 0
    for name in ("a", "b"):
        values[name] = place[values[name]]
        bad = values[name] >= own
        bad[0] = False
        values[name][bad], values[f"lag_{name}"][bad] = 0, NEVER
        cut += int(bad.sum())
    alone = np.isneginf(values["lag_a"]) & np.isneginf(values["lag_b"])
    values["lag_a"][alone] = 0.0  # what follows nothing begins with the trace
    moved = [Bounds(x.rank, x.kind, *(int(place[node]) for node in x[2:])) for x in bounds]
    return Graph(**values, bounds=moved, identities=identities, cut=cut, unmatched_us=unmatched_us, notes=notes)


def times(graph: Graph, us: Floats | None = None, host_factor: float = 1.0) -> list[float]:
    """When each node comes, µs after the beginning, with these times of kernels and transfers."""
    columns = (graph.a, graph.b, graph.lag_a + host_factor * graph.host, graph.lag_b, graph.us if us is None else us)
    out = [0.0] * len(graph.a)
    for i, (x, y, p, q, d) in enumerate(zip(*(x.tolist() for x in columns), strict=True)):
        first, second = out[x] + p, out[y] + q
        out[i] = (first if first > second else second) + d
    return out


def shares(graph: Graph, at: Sequence[float], us: Floats, host_factor: float) -> dict[str, float]:
    """What the step waits for: µs of each kind along the paths that determine the ends of each rank's units."""
    out = dict.fromkeys(KINDS, 0.0)
    a, b, lag_b, lag_a = graph.a, graph.b, graph.lag_b, graph.lag_a + host_factor * graph.host
    for rank in dict.fromkeys(x.rank for x in graph.bounds):
        mine = [x for x in graph.bounds if x.rank == rank]
        node, begin = mine[-1].last, at[mine[0].first]
        while node > 0 and at[node] > begin:
            first = at[a[node]] + lag_a[node] >= at[b[node]] + lag_b[node]
            before = a[node] if first else b[node]
            kind, own = int(graph.kind[node]), float(us[node])
            passed = min(at[node] - at[before], at[node] - begin)
            # a kernel that its launch was the last to allow waits for the host as long as that takes
            launch = min(max(passed - own, 0.0), passed) if not first and kind in (KERNELS, COMMUNICATION) else 0.0
            out[KINDS[kind]] += passed - launch
            out[KINDS[HOST]] += launch
            node = before
    return out
