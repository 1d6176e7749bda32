"""Files that run in the job's own interpreter, with no other module of logparse: put first on its PYTHONPATH."""
