"""How the tables of a run are joined and weighed, for all analyzers."""
