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
from dataclasses import dataclass, field
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
    """The nodes at which a unit of work of a rank begins and ends, and its kind."""

    rank: int
    kind: str
    first: int
    last: int


class Nodes:
    """A graph while it is built; ``at`` are the traced times, by which nodes are sorted in the end."""

    def __init__(self) -> None:
        self.at: list[float] = [0.0]
        self.a: list[int] = [0]
        self.b: list[int] = [0]
        self.lag_a: list[float] = [0.0]
        self.lag_b: list[float] = [NEVER]
        self.host: list[float] = [0.0]
        self.us: list[float] = [0.0]
        self.kind: list[int] = [HOST]
        self.kernel: list[int] = [-1]

    def add(
        self,
        at: float,
        kind: int,
        a: int = 0,
        *,
        lag: float = 0.0,
        host: float = 0.0,
        b: int = 0,
        lag_b: float = NEVER,
        us: float = 0.0,
        kernel: int = -1,
    ) -> int:
        """A node at this traced time; its index."""
        self.at.append(at)
        self.a.append(a)
        self.b.append(b)
        self.lag_a.append(lag)
        self.lag_b.append(lag_b)
        self.host.append(host)
        self.us.append(us)
        self.kind.append(kind)
        self.kernel.append(kernel)
        return len(self.at) - 1

    def join(self, nodes: Sequence[int], kind: int) -> int:
        """A node that follows all of these at once."""
        first, *rest = dict.fromkeys(nodes)
        for other in rest:
            first = self.add(max(self.at[first], self.at[other]), kind, first, b=other, lag_b=0.0)
        return first


@dataclass(eq=False)
class Graph:
    """See the module.  ``kernel`` is an index of ``identities`` (-1: none).  ``cut`` counts dependencies that were left
    out because the trace contradicts them, ``unexplained_us`` the time by which kernels began later than any
    dependency explains, ``unmatched_us`` collectives whose other ranks no trace shows: they count as traced.
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
    unexplained_us: float = 0.0
    unmatched_us: float = 0.0
    notes: Sequence[str] = ()
    _links: tuple[list[int], list[int], list[float]] | None = field(default=None, repr=False)

    @property
    def links(self) -> tuple[list[int], list[int], list[float]]:
        """What each node follows, as lists: a loop over numbers of numpy would take several times as long."""
        if self._links is None:
            self._links = (self.a.tolist(), self.b.tolist(), self.lag_b.tolist())
        return self._links

    def scaled(self, factors: Floats) -> Floats:
        """``us`` with each kernel's time multiplied by the factor of its identity."""
        by_kernel: Floats = np.r_[factors, 1.0]
        return self.us * by_kernel[self.kernel]

    @property
    def free_communication(self) -> Floats:
        """``us`` with collectives that transfer at once."""
        return np.where(self.kind == COMMUNICATION, 0.0, self.us)


def finished(
    nodes: Nodes, bounds: Sequence[Bounds], identities: Sequence[KernelIdentity], **known: float | Sequence[str]
) -> Graph:
    """The graph of these nodes, sorted such that each follows earlier ones."""
    at, a, b = np.array(nodes.at), np.array(nodes.a), np.array(nodes.b)
    own = np.arange(len(at))
    lag_a, lag_b = np.array(nodes.lag_a), np.array(nodes.lag_b)
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
    a, b = place[a[order]], place[b[order]]
    bad_a, bad_b = a >= own, b >= own
    bad_a[0] = bad_b[0] = False
    a, b = np.where(bad_a, 0, a), np.where(bad_b, 0, b)
    graph = Graph(
        a=a,
        b=b,
        lag_a=np.where(bad_a, NEVER, lag_a[order]),
        lag_b=np.where(bad_b, NEVER, lag_b[order]),
        host=np.array(nodes.host)[order],
        us=np.array(nodes.us)[order],
        kind=np.array(nodes.kind)[order],
        kernel=np.array(nodes.kernel)[order],
        bounds=[x._replace(first=int(place[x.first]), last=int(place[x.last])) for x in bounds],
        identities=identities,
        cut=int(bad_a.sum() + bad_b.sum()),
        **known,  # type: ignore[arg-type]
    )
    alone = np.isneginf(graph.lag_a) & np.isneginf(graph.lag_b)
    graph.lag_a[alone] = 0.0  # what follows nothing begins with the trace
    return graph


def times(graph: Graph, us: Floats | None = None, host_factor: float = 1.0) -> list[float]:
    """When each node comes, µs after the beginning, with these times of kernels and transfers."""
    a, b, lag_b = graph.links
    lag_a = (graph.lag_a + host_factor * graph.host).tolist()
    durations = (graph.us if us is None else us).tolist()
    out = [0.0] * len(a)
    for i, (x, y, p, q, d) in enumerate(zip(a, b, lag_a, lag_b, durations, strict=True)):
        first, second = out[x] + p, out[y] + q
        out[i] = (first if first > second else second) + d
    return out


def shares(graph: Graph, at: Sequence[float], us: Floats, host_factor: float) -> dict[str, float]:
    """What the step waits for: µs of each kind along the paths that determine the ends of each rank's units."""
    out = dict.fromkeys(KINDS, 0.0)
    a, b, lag_b = graph.links
    lag_a = graph.lag_a + host_factor * graph.host
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
