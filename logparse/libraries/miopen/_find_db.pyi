"""The native reader of MIOpen's solver databases; see ``logparse.libraries.miopen.find_db_index``."""

VERSION: int

def index(
    file: bytes, whole: bool
) -> tuple[
    bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes,
    list[str], list[str], list[tuple[int, str]],
]:  # fmt: skip
    """Return the fields of the index of a find-db, in the order of ``find_db_index.Index``.

    Raises OverflowError for a file of 2 GiB - 1 byte or more.
    """

def texts(sizes: bytes, tails: bytes, pieces: tuple[tuple[bytes, bytes, bytes], ...]) -> tuple[bytes, bytes]:
    """Return the text of each line's convolution: the ends of the texts (int32, one more than lines), and all texts
    joined.

    Raises ValueError if a buffer's length, a size or a tail is out of range.  Raises TypeError if a tail does not have
    three pieces.  Raises OverflowError if the texts are longer than 2 GiB.
    """
