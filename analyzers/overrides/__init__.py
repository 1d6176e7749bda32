"""Work with override files (lists of solutions to use): lint, coverage, merge, convert, export, bisect, write."""
