"""How the tables of a run are joined and weighed: what the analyzers rest on."""
