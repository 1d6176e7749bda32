"""The native counter of lines: ``counting.PlainCounter``, and reading files by itself (not on Windows)."""

VERSION: int

class Counter:
    def __new__(
        cls, record_markers: tuple[bytes, ...], block_markers: tuple[bytes, ...], starts: tuple[bytes, ...]
    ) -> Counter: ...
    @property
    def held(self) -> int: ...
    def count(self, data: bytes, offset: int) -> tuple[int, int, int, int, bytes, int]: ...
    def count_file(
        self, file: int, start: int, end: int, limit: int, hashed: int, piece: int
    ) -> tuple[int, int, int, int, bytes, int]:
        """Count lines of a file descriptor's bytes, until more than ``limit`` is held.  Raises OSError.

        Lines begin at ``start`` and at ``end``.  Pieces of ``piece`` bytes are hashed as they are read, from ``hashed``
        on, or (-1) from where the last call stopped, up to the last one that ends by ``end``.
        """

    def hashes(self) -> bytes:
        """Return the XXH64 of each piece since the last call, as ``xxhash.xxh64(…).digest()``."""

    def take(self) -> tuple[list[tuple[bytes, bytes | None, int, bool, bool]], list[tuple[bytes, bytes]], bytes]: ...
