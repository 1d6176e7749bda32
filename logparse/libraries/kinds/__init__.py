"""The kinds of what a library has: formats, override formats, backends."""
