"""The errors that a user may see. Each message states what is wrong, where, and what to do."""

from __future__ import annotations


class LogparseError(Exception):
    """Something that the user can mend; the program prints it without a traceback and exits with 1."""


class InputError(LogparseError):
    """A file, folder or URL cannot be read, or is refused."""


class UsageError(InputError):
    """An option or argument has an impossible value; the program exits with 2."""


class StoreError(LogparseError):
    """A store is missing, damaged, or of another schema version."""


class QueryError(LogparseError):
    """The SQL is wrong, not allowed or too slow."""


class EmissionError(LogparseError):
    """An override must not be written, because a field that the library checks is unknown."""
