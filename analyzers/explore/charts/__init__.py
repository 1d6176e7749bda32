"""Charts: make plotly figures from small tables, one kind of chart per file. Nothing here queries, reads or prints.

Every mark that can be clicked has ``customdata``: ``[id, …]`` for a problem, or ``["regret", low, high, …]`` for a bar
of the chart of lost time.
"""
