"""Changes that a user makes once for the whole job, for example to compute in TF32. ``action.py`` defines them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.actions.action import Action, ActionResult, Application, Change
from logparse import lazy

if TYPE_CHECKING:
    from analyzers.actions.all_actions import ACTIONS

# Loaded on first use, because most runs have no replay that timed an action.
__getattr__ = lazy.members(__name__, {"ACTIONS": "analyzers.actions.all_actions"})

__all__ = ["ACTIONS", "Action", "ActionResult", "Application", "Change"]
