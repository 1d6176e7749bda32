"""Look at measurements of a job: charts for notebooks, a web page in the browser, a report in one file.

    import logparse
    from analyzers import explore

    store = logparse.open("logparse-store")
    points = explore.store_points(store)             # one row per problem
    explore.roofline(points).show()

A problem is a GEMM or a convolution with all its sizes and types. Every chart function returns a
``plotly.graph_objects.Figure`` and leaves its input unchanged. If there is nothing to draw, the figure tells the user
what to do next. The functions are in ``notebook``, which is imported when the first of them is used, because the
process that reads the data for the web page draws nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from analyzers.explore.notebook import backward_weights, regret, roofline, solutions, store_points

__all__ = ["backward_weights", "regret", "roofline", "solutions", "store_points"]

__getattr__ = lazy.members(__name__, dict.fromkeys(__all__, "analyzers.explore.notebook"))
