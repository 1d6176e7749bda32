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

from logparse import lazy

if TYPE_CHECKING:
    from analyzers.explore.notebook import backward_weights, regret, roofline, solutions, store_points

__all__ = ["backward_weights", "regret", "roofline", "solutions", "store_points"]

__getattr__ = lazy.members(__name__, dict.fromkeys(__all__, "analyzers.explore.notebook"))
