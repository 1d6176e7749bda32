"""Logs and tuning files into the store."""

from __future__ import annotations

from logparse.ingest.all_inputs import Ingested, ingest, record

__all__ = ["Ingested", "ingest", "record"]
