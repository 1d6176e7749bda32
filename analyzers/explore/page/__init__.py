"""The web page that ``logparse explore`` shows in the browser."""
