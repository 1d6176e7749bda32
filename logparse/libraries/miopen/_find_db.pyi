"""The native reader of find-db records; see ``logparse.libraries.miopen.find_db_index``."""

VERSION: int

def index(
    file: bytes, whole: bool
) -> tuple[
    bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes,
    list[str], list[str], list[tuple[int, str]],
]:  # fmt: skip
    """The fields of ``find_db_index.Index``.  Raises OverflowError for a file of 2 GiB."""

def texts(sizes: bytes, tails: bytes, pieces: tuple[tuple[bytes, bytes, bytes], ...]) -> tuple[bytes, bytes]:
    """Problem of each line: ends (int32, one more) and text.  Raises ValueError, OverflowError."""
