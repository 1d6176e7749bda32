"""Files that run in the job's own interpreter, with no other module of logparse. They stand first on its PYTHONPATH."""
