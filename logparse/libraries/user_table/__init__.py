"""Tables of times that users write themselves."""
