"""``logparse tune -- COMMAND…``: all verbs in a row, from a job as it is to what the changes gained."""
