"""Origins of measurements that a replay gives, and its fact of the pick."""

from __future__ import annotations

RACE, CONFIRM = "replay", "replay-confirm"
"""Origins of measurements: a race's samples; a confirmation's paired samples of a pick and a winner, two rows of one
source, entry by entry of one block.
"""


PICK = "pick"
"""Fact of both: the solution that was the library's own choice on this machine."""
