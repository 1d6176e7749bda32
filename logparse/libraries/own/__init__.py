"""Readers of the files that logparse itself writes, and of messages that libraries print outside of their logs."""
