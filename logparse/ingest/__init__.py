"""Logs and tuning files into the store.

``all_inputs`` finds the inputs, ``schedule`` states what is read next, a ``worker`` reads each (``input_file`` opens
it).  ``stream`` turns the distinct lines that ``lines`` finds into records; ``counting`` or ``_lines.c`` counts them.
``render`` is what an ingest prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logparse import lazy

if TYPE_CHECKING:
    from logparse.ingest.all_inputs import ingest, ingest_at, record
    from logparse.ingest.schedule import Ingested

__all__ = ["Ingested", "ingest", "ingest_at", "record"]

# A pasted line is read with `lines` alone.
__getattr__ = lazy.members(__name__, dict.fromkeys(__all__, "logparse.ingest.all_inputs"))
