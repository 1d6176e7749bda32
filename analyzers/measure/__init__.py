"""Measurement: problems in, honest times of every solution out.  ``docs/measurement.md`` says how and why."""
