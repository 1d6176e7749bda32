"""Load a store for the page: child processes prepare its data, which are kept as long as the page runs."""
