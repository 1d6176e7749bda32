"""Who took the times of measurements, and which of these times picks are compared by.

A format declares its origins (``formats.format.Origin``); those of a replay are declared here.
"""

from __future__ import annotations

from logparse.formats import FORMATS
from logparse.formats.format import Origin

RACE, CONFIRM, ACTION = "replay", "replay-confirm", "replay-action"
"""Origins of a replay: a race's samples; a confirmation's paired samples of a pick and a winner, two rows of one
source, entry by entry of one block; what is run under each action, sampled in turn and without a search.
"""
CHOSEN = "miopen-chosen"
"""Origin of rows in which a MIOpen log names the solver that was taken."""
TRACE = "trace"
"""Origin of kernel times in the job's own traces."""
PICK = "pick"
"""Fact of both origins of a replay: the solution that was the library's own choice on this machine."""
ORIGINS: tuple[Origin, ...] = (
    *dict.fromkeys(origin for format in FORMATS for origin in format.origins),
    Origin(RACE, evidence=False),  # selection biases the winner of a race: only a fresh process counts
    Origin(CONFIRM, evidence=True),
    Origin(ACTION, evidence=False),  # of a whole job together, not one problem's better solution
)
"""Every origin of measurements."""
EVIDENCE = frozenset(origin.name for origin in ORIGINS if origin.evidence)
"""Names of the origins whose times are measurements of named solutions."""
