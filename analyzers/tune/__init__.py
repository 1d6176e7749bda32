"""``logparse tune -- COMMAND…``: find out what can be changed in a job, apply it, and measure what the job gains."""
