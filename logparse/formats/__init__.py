"""Formats: text to nouns and back, one file each."""
