"""Find the measured times that belong to the calls of a run, and compare the libraries' choices with the best times."""
