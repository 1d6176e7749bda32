"""The store: a folder or URL of Parquet files that anything can read, and the SQL views over them.

``store`` opens, forgets and sweeps; ``schema`` and ``views`` define its tables; ``collector``, ``held``, ``columns``,
``parts`` and ``joint`` write them; ``compaction`` merges parts into those of a ``manifest``.
"""

from __future__ import annotations

from logparse.store.store import FRAMES, Store, command_line, open_store

__all__ = ["FRAMES", "Store", "command_line", "open_store"]
