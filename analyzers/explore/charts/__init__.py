"""Charts: make plotly figures from small tables, one kind of chart per file. Nothing here queries, reads or prints.

Every mark that can be clicked has the data ``customdata``. For a GEMM or convolution they are ``[id, …]``. For a bar of
the chart of lost time they are ``["regret", low, high, …]``.
"""
