"""How measured times join the problems of a run: origins, picks, neighbours, confirmations."""
