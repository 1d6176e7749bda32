"""Readers of files that logparse writes itself, and of messages that libraries print outside of any log format."""
