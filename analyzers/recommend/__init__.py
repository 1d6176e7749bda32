"""Findings, ranked, to files: what the verb ``recommend`` does."""
