"""The command ``recommend``: rank the findings about a run and write them to files."""
