"""Functions that change a user's model or settings. Both ``apply.py`` and a trial in the job use them.

``apply.py`` contains a copy of their text (``analyzers/actions/action.py: definitions``), so a user applies exactly
what was tried. So the modules import only torch and the standard library, and nothing from each other. They define only
public names, because all definitions end up in the one module ``apply.py``. ``test_switches.py`` checks these rules.
"""
