"""The command ``recommend``: list what would make a job faster, the best first, and write the files for it."""
