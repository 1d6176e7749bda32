"""Who took the times of measurements, and which of these times picks are compared by.

A format declares its origins (``formats.format.Origin``), and ``tests/libraries/test_origins.py`` holds ``EVIDENCE`` to
them: importing the formats for their names takes longer than ranking findings.
"""

from __future__ import annotations

RACE, CONFIRM, ACTION, HOST = "replay", "replay-confirm", "replay-action", "replay-host"
"""Origins of a replay: a race's samples, no evidence, as selection biases its winner's time low; a confirmation's
paired samples of a pick and a winner, two rows of one source, entry by entry of one block; what is run under each
action, sampled in turn and without a search, which is of a whole job and not of one problem's better solution; and of
that what the host took to enqueue a call: samples, and no time, for it is no time of the call.
"""
CHOSEN = "miopen-chosen"
"""Origin of rows in which a MIOpen log names the solver that was taken."""
PICKED = (CHOSEN, "flashinfer", "transformer-engine-cache")
"""Origins of rows that name what is taken, without a time: those of a log, and of files that a library reads."""
TRACE = "trace"
"""Origin of kernel times in the job's own traces."""
PICK = "pick"
"""Fact of both origins of a replay: the solution that was the library's own choice on this machine."""
_FILES = {
    *("aiter", "bench", "driver", "find-db", "miopen-log", "miopen-performance-log", "table", "tunableop"),
    *("tunableop-verbose", "tuning-file"),
}
EVIDENCE = frozenset({*_FILES, CONFIRM})
"""Names of the origins whose times are measurements of named solutions."""
