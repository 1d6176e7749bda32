"""Measurement: problems in, honest times of every solution out.  ``docs/measurement.md`` explains how and why."""
