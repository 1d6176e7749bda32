"""Read logs and tuning files into the store.

* ``all_inputs`` finds the inputs.
* ``schedule`` states what is read next.
* A ``worker`` reads each input, which ``input_file`` opens.
* ``stream`` turns the distinct lines that ``lines`` finds into records.
* ``counting`` (Python) or ``_lines.c`` (native) counts the distinct lines.
* ``render`` makes the text that an ingest prints.
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
