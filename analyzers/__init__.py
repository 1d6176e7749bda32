"""Answers questions about ingested runs: measurements, findings, override files and proof."""
