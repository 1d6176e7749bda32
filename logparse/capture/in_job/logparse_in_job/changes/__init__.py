"""Changes of a program that an action makes: one text for ``apply.py`` and for a trial in the job.

``apply.py`` holds the definitions of these modules as they stand here (``analyzers/actions/action.py: definitions``),
so it applies what was tried.  They import torch and the standard library alone, nothing of each other, and define
public names alone, because all of them share the one module ``apply.py``.  ``test_switches.py`` holds them to this.
"""
