"""The native reader of find-db records; see ``logparse.formats.miopen.find_db_native``."""

VERSION: int

def scan(
    block: bytes | memoryview, algorithms: tuple[bytes, ...], directions: bytes
) -> (
    tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, list[str], list[tuple[int, str]]]
    | None
):
    """Columns of whole lines, or None where one is not of the ordinary form.

    ``directions`` has the letter of each algorithm.  Of each item: line, ordinal, solver (a place in the names),
    algorithm (int32), time in µs (double; 0 where it is aside), workspace (int64).  Of each line: ends of keys (int32,
    one more), keys, tail (int32), sizes (int64, twelve columns).  Then times set aside (item, start and length of the
    text, int64), names, and tails with their counts of dimensions.
    """

def texts(sizes: bytes, tails: bytes, pieces: tuple[tuple[bytes, bytes, bytes], ...]) -> tuple[bytes, bytes]:
    """Problem of each line: ends (int32, one more) and text.  Raises ValueError, OverflowError."""

def index(
    file: bytes,
) -> tuple[
    bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, list[str], list[str], list[tuple[int, str]]
]:
    """The fields of ``find_db_index.Index``.  Raises OverflowError for a file of 2 GiB."""
