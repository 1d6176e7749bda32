"""Logs and tuning files into the store.

``all_inputs`` finds the inputs, ``schedule`` states what is read next, a ``worker`` reads each (``input_file`` opens
it).  ``stream`` turns the distinct lines that ``lines`` finds into records; ``counting`` or ``_lines.c`` counts them.
``render`` is what an ingest prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logparse.ingest.all_inputs import ingest, ingest_at, record
    from logparse.ingest.schedule import Ingested


def __getattr__(name: str) -> object:
    """Imported when it is first asked for: a pasted line is read with ``lines`` alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from logparse.ingest import all_inputs

    return getattr(all_inputs, name)


__all__ = ["Ingested", "ingest", "ingest_at", "record"]
