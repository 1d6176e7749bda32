"""Charts: small tables to plotly figures, one family a file.  Nothing here queries, reads or prints.

Whatever can be clicked carries ``customdata``: ``[id, …]`` of a problem, or ``[facet, value]`` of a bar.
"""
