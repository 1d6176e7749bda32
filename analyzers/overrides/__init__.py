"""Work on override files: lint, coverage, merge, convert, export, bisect, write."""
