"""Errors that a user may see.  Each message states what is wrong, where, and what to do."""

from __future__ import annotations


class LogparseError(Exception):
    """Base of all errors that the user can mend.

    The program prints the message without a traceback and exits with 1.
    """


class InputError(LogparseError):
    """Error if a file, folder or URL cannot be read, or is refused."""


class UsageError(InputError):
    """Error if an option or argument has an impossible value. The program exits with 2."""


class StoreError(LogparseError):
    """Error if a store is missing, damaged, or of another schema version."""


class QueryError(LogparseError):
    """Error if the SQL is wrong, not allowed or too slow."""


class EmissionError(LogparseError):
    """Error if an override must not be written, because a field that the library checks is unknown."""
