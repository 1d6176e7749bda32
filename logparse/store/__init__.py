"""The store: a folder or URL of Parquet files that anything can read, and the SQL views over them."""

from __future__ import annotations

from logparse.store.store import FRAMES, Store, open_store

__all__ = ["FRAMES", "Store", "open_store"]
