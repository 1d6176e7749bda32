"""Charts: make plotly figures from small tables, one family per file.  Nothing here queries, reads or prints.

Every mark that can be clicked has ``customdata``: ``[id, …]`` for a problem, or ``["regret", low, high, …]`` for a
class of regret.
"""
