"""Look at a store: charts for notebooks, a page in the browser, a report in one file.

    import logparse
    from analyzers import explore

    store = logparse.open("logparse-store")
    points = explore.store_points(store)             # one row per problem
    explore.roofline(points).show()

Every function returns a ``plotly.graph_objects.Figure`` and leaves its input as it was.  An empty table gives a figure
that names the next step.  They stand in ``notebook``, which is imported when the first of them is asked for: the page's
reader draws nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzers.explore.notebook import backward_weights, regret, roofline, solutions, store_points

__all__ = ["backward_weights", "regret", "roofline", "solutions", "store_points"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from analyzers.explore import notebook

    return getattr(notebook, name)
