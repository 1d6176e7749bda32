"""Load a store for the page. Child processes prepare the data, which are kept as long as the page runs."""
