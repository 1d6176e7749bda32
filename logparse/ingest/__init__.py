"""Logs and tuning files into the store.

``all_inputs`` finds the inputs, and ``one_input`` reads each (``input_file`` opens it, ``byte_ranges`` cuts a large
one).  ``stream`` turns the distinct lines that ``lines`` finds into records; ``counting`` or ``_lines.c`` counts them.
``render`` is what an ingest prints.
"""

from __future__ import annotations

from logparse.ingest.all_inputs import Ingested, ingest, ingest_at, record

__all__ = ["Ingested", "ingest", "ingest_at", "record"]
