"""Changes of a program that an action makes.  ``apply.py`` and a trial in the job use the same text of the definitions.

``apply.py`` contains a copy of the definitions here (``analyzers/actions/action.py: definitions``), so a user applies
exactly what was tried.  The modules import only torch and the standard library, and nothing from each other.  They
define only public names, because all definitions end up in the one module ``apply.py``.  ``test_switches.py`` checks
these rules.
"""
