"""Code that runs inside the user's job, in the job's own Python. It uses no other module of logparse."""
