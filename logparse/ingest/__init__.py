"""Read logs and tuning files into the store (the Parquet folder with everything that was read).

* ``all_inputs`` finds the input files and combines the results.
* ``schedule`` decides what is read next.
* ``worker`` reads one input file, which ``input_file`` opens.
* ``lines`` finds the distinct lines, and ``stream`` reads their content.
* ``counting`` (Python) or ``_lines.c`` (native) counts the distinct lines.
* ``render`` makes the text that is printed at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from logparse.ingest.all_inputs import ingest, ingest_at, record
    from logparse.ingest.schedule import Ingested

__all__ = ["Ingested", "ingest", "ingest_at", "record"]

# A pasted line is read with `lines` alone, so nothing else is imported until it is used.
__getattr__ = lazy.members(__name__, dict.fromkeys(__all__, "logparse.ingest.all_inputs"))
