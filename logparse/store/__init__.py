"""The store: a folder or URL of Parquet files that anything can read, and the SQL views over them.

``store`` opens, forgets and sweeps; ``schema``, ``views`` are its tables; ``collector``, ``columns``, ``parts`` write
them; ``compaction`` merges parts into those of a ``manifest``; ``announcements`` are the runs that are at work.
"""

from __future__ import annotations

from logparse.store.store import FRAMES, Store, open_store

__all__ = ["FRAMES", "Store", "open_store"]
