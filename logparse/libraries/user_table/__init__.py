"""Reader of tables of times that users write themselves."""
