"""Functions that change a user's model or settings, for example to another memory layout.

They are used in two places: ``logparse try`` calls them in the running job, and ``apply.py`` contains a copy of their
text (``analyzers/actions/action.py: definitions``). So a user applies exactly what was tried. For this reason:

* The modules here import only torch and the standard library, and nothing from each other.
* All names in them are public and different, because all definitions end up in the one module ``apply.py``.

``test_switches.py`` checks these rules.
"""
