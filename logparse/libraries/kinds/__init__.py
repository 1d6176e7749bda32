"""The kinds of things that a library can have: formats, override formats, backends."""
