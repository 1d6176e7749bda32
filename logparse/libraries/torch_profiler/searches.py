"""Find the calls in which a library searched for a solver: MIOpen's Find, cuDNN's benchmark mode, TunableOp's tuning.

When an operator is first called with inputs that the library does not know, the library runs all its solvers, naive
ones among them.  Then it runs the solver that it chose.  The later calls run the chosen solver alone::

    naive_conv_ab_nonpacked_fwd…  Im3d2Col  Cijk_…  │  Im3d2Col  Cijk_…        the first call
    Im3d2Col  Cijk_…                                                          each later call

The kernels of a search are part of neither the call's time nor the step's time.  The usual call is the most frequent of
the later calls.  A call before the first usual call is taken for a search in two cases:

* It has two or more main kernels of different names beyond the kernels of the usual call.
* One of the main kernels beyond the usual call is naive.

The kernels of the usual call are taken from the end of the searching call.  If an operator has only one call, its last
kernels are compared with the kernels before them.  The longest run of kernels at its end that also occurs earlier in
the call is the call without the search.  If there is no such run, the whole call is a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from logparse.libraries.kinds.patterns import regex
from logparse.libraries.torch_profiler.gradients import is_main

SEARCH = "(search for a solver)"
"""The operator name that is given to kernels that ran in a search for a solver."""
NAIVE = regex(r"naive_conv")
_MORE = 2


def find_search_kernels(calls: Sequence[Sequence[str]], backward: bool = False) -> Mapping[int, frozenset[int]]:
    """Find the kernels that ran only because a library tried out several solvers, as MIOpen does in a first call.

    * ``calls``: the kernels' names in each call of one operator with the same inputs, in order of time.
    * ``backward``: True if a call computes two gradients.

    Returns the positions of such kernels, by call.
    """
    if len(calls) == 1:
        own = _find_actual_work(calls[0], backward)
        return {} if own is None else {0: frozenset(range(len(calls[0]))) - own}
    counts = Counter(map(tuple, calls[1:]))
    usual = max(counts, key=lambda x: (counts[x], -len(x), x))
    out = {}
    for number, call in enumerate(calls):
        if tuple(call) == usual:
            break
        own = _from_the_end(call, usual)
        rest = frozenset(range(len(call))) - own
        mains = {call[i] for i in rest if is_main(call[i])}
        needed = 0 if own else len({name for name in usual if is_main(name)})
        if len(mains) >= needed + _MORE or (own and any(NAIVE.search(x) and x not in usual for x in mains)):
            out[number] = rest
    return out


def _from_the_end(call: Sequence[str], usual: Sequence[str]) -> frozenset[int]:
    """Find the kernels of a usual call (``usual``) among the kernels of a call that searched for a solver first.

    Returns their positions, or an empty set if one of them is missing.
    """
    # The kernels have the same order at the end of the searching call, perhaps with other kernels between them.
    places, at = [], len(call)
    for name in reversed(usual):
        at = next((i for i in range(at - 1, -1, -1) if call[i] == name), -1)
        if at < 0:
            return frozenset()
        places.append(at)
    return frozenset(places)


def _find_actual_work(call: Sequence[str], backward: bool) -> frozenset[int] | None:
    """Return the positions of the kernels that did the actual work, in a call that searched for the fastest solver.

    This function is for an operator that was called only once, so there is no other call to compare.  A search tries
    several kernels, among them naive ones.  Returns None if the call did not search: it has no naive kernel, or too few
    others beside it.  If the call computes two gradients (``backward``), one of them may use a naive kernel without a
    search.
    """
    mains = {name for name in call if is_main(name)}
    if not any(NAIVE.search(name) for name in mains) or len(mains) < _MORE + backward:
        return None
    for length in range(len(call) // 2, 0, -1):
        end = [*call[len(call) - length :]]
        if not backward and any([*call[i : i + length]] == end for i in range(len(call) - 2 * length + 1)):
            return frozenset(range(len(call) - length, len(call)))
    return frozenset()
