"""The errors that a user may see. Each says what is wrong, where, and what to do."""

from __future__ import annotations


class LogparseError(Exception):
    """Something that the user can mend; the program prints it without a traceback and exits with 1."""


class InputError(LogparseError):
    """A file, folder or URL that cannot be read or is refused."""


class UsageError(InputError):
    """An option or argument with a value that is not possible; the program exits with 2."""


class StoreError(LogparseError):
    """A store that is missing, of another schema version, or damaged."""


class QueryError(LogparseError):
    """SQL that is wrong, not allowed or too slow."""


class EmissionError(LogparseError):
    """An override that must not be written: a field that the library checks is unknown."""
