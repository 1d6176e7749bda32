"""Load the data of the web page. Child processes prepare them in files that exist as long as the page runs."""
