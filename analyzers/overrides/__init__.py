"""Questions to files that a library reads: lint, coverage, merge, convert, export, write."""
