"""Load the data for the web page. Child processes prepare them, and they are kept as long as the page runs."""
