"""The store: a folder or URL of Parquet files that hold everything that was read, and the SQL views over them.

Any program can read the files.

| word | meaning |
|---|---|
| source | a file that was read (path and content hash), or the records of a replay |
| attempt | one reading of a source, or of the bytes appended to it; its rows are invisible before its commit |
| part | a Parquet file with rows of one table, written by one attempt |
| joint part | a part with rows of several attempts: small sources share parts |
| row file | the commit of an attempt: one row in a file of its own, written last, by put-if-absent |
| pending | records in memory that no part holds yet |
| place | the folder or URL that an attempt writes to |
| manifest | the commits and parts that a compaction has merged; the latest manifest counts |
| inventory | a list of the small files that must exist, so that a deletion is found |
| sweep | the removal of files that no reader can still use: files of killed attempts, and merged files |

Each module imports only modules that come after it in this list: ``compaction``; ``store`` (opens, reads,
forgets); ``sweep`` and ``damage`` (checks the files); ``findings``; ``store_files`` (which files and commits exist);
``joint``; ``inventory`` and ``recorded``; ``manifest``; ``collector`` (records of a source); ``parts`` (attempts write
them); ``pending`` (the rows of parts); ``views``; ``digests``, ``columns``, ``schema``.
"""

from __future__ import annotations

from logparse.store.store import FRAMES, Store, command_line, new_label, open_store

__all__ = ["FRAMES", "Store", "command_line", "new_label", "open_store"]
