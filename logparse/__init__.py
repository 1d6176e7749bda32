"""Files and nouns: read, store, query."""
