"""Errors that a user may see.  Each message states what is wrong, where, and what to do."""

from __future__ import annotations


class LogparseError(Exception):
    """Base class of all errors that the user can correct.

    The program prints the message without a traceback and exits with 1.
    """


class InputError(LogparseError):
    """Raised if a file, folder or URL cannot be read, or if logparse refuses to read it."""


class UsageError(InputError):
    """Raised if an option or argument has an impossible value.  The program exits with 2."""


class StoreError(LogparseError):
    """Raised if a store (the folder with logparse's data) is missing or damaged, or has another schema version."""


class QueryError(LogparseError):
    """Raised if the user's SQL query is wrong, not allowed or too slow."""


class EmissionError(LogparseError):
    """Raised if an override file (a library's list of kernels to use) cannot be written.

    The reason is that a value that the library compares is unknown.
    """
