"""What every test may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from logparse.store import Store, open_store

# A shared machine is slow at moments; how long an example takes says nothing about it.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
CORPUS = ROOT.parent / "shared" / "corpus"

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real files is not here")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return open_store(tmp_path / "store", create=True)
