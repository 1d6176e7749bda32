"""The interfaces of everything that a library can have: log formats, override formats, replay backends and so on."""
