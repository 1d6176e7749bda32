"""What an ingest prints: a row per input, the runs, and why inputs gave nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

from logparse.formats.format import Unit
from logparse.ingest.one_input import Ingested
from logparse.output import Answer, Rows

_UNITS: dict[str, Unit] = {
    "measured": "measurement",
    "messages": "message",
    "rejects": "reject",
    "foreign": "foreign",
}


def answer(results: Sequence[Ingested]) -> Answer:
    """What became of each input; exit code 1 where one failed, or nothing in any of them was ours."""
    rows = [
        {
            "file": os.path.relpath(r.path) if r.path.startswith("/") else r.path,
            "format": r.format,
            "state": r.state,
            "lines": r.lines,
            "calls": r.calls,
            "problems": r.problems,
            **{name: r.units.get(unit, 0) for name, unit in _UNITS.items()},
        }
        for r in results
        if r.state != "failed"
    ]
    errors = [f"error: {r.error}" for r in results if r.state == "failed"]
    runs = sorted({r.run for r in results if r.run})
    text: list[str | Rows] = [*([rows] if rows else []), *([f"run: {', '.join(runs)}"] if runs else [])]
    return Answer(text, errors=errors, code=int(bool(errors) or not any(r.recognised for r in results)))
