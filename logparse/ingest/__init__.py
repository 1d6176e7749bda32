"""Logs and tuning files into the store.

``all_inputs`` has ``one_input`` read each (``input_file`` opens it, ``byte_ranges`` cuts a large one); ``stream`` has
``lines`` find the distinct lines, which ``counting`` or ``_lines.c`` count; ``render`` is what an ingest prints.
"""

from __future__ import annotations

from logparse.ingest.all_inputs import Ingested, ingest, record

__all__ = ["Ingested", "ingest", "record"]
