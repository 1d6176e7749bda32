"""Charts: make plotly figures from small tables, one kind of chart per file.

Every mark that can be clicked has ``customdata``:

* a GEMM or convolution: ``[id, …]``
* a bar of the chart of lost time: ``["regret", low, high, …]``

Nothing here queries, reads or prints.
"""
