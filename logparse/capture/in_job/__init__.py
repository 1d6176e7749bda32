"""Files that run in the job's own interpreter, with nothing of ours but themselves: put first on its PYTHONPATH."""
