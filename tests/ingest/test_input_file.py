"""Tests of the hashes by which ``ingest`` recognises a file that it has read before."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logparse.errors import InputError
from logparse.ingest.input_file import PIECE_BYTES, Digest, InputFile

PIECE = 512


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logparse.ingest.input_file.PIECE_BYTES", PIECE)


@given(st.binary(max_size=5 * PIECE), st.lists(st.integers(0, 5 * PIECE), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_hash_does_not_depend_on_how_the_bytes_came(data: bytes, cuts: list[int]) -> None:
    whole, parts = Digest(), Digest()
    whole.update(data)
    ends = [*sorted(min(c, len(data)) for c in cuts), len(data)]
    for start, end in zip([0, *ends], ends, strict=False):
        parts.update(data[start:end])
        parts = parts.copy()
    assert parts.hexdigest() == whole.hexdigest()


def test_the_hash_of_a_file_from_those_of_its_pieces(tmp_path: Path) -> None:
    import xxhash

    data = bytes(range(250)) * 9
    (tmp_path / "a").write_bytes(data)
    file = InputFile(str(tmp_path / "a"))
    pieces = [xxhash.xxh64(data[at : at + PIECE]).digest() for at in range(0, len(data) - PIECE, PIECE)]
    for upto in (0, 100, PIECE, 3 * PIECE + 1, len(data)):
        expected = Digest()
        expected.update(data[:upto])
        assert file.digest(upto) == file.digest(upto, pieces) == expected.hexdigest()
    with pytest.raises(InputError, match="became shorter"):
        file.digest(len(data) + 1)


def test_the_size_of_hashed_pieces_never_changes() -> None:
    """Files are hashed in pieces of 4 MiB. This size must never change.

    Otherwise all large files that were read by earlier versions would look new.
    """
    assert PIECE_BYTES == 4 << 20
