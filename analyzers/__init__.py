"""Nouns to measurements, findings and proof."""
