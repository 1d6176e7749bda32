"""The verb ``recommend``: rank the findings of a run and write them to files."""
