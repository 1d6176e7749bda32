"""Changes of a program that an action makes.  The same text serves ``apply.py`` and a trial in the job.

``apply.py`` holds the definitions of the modules here as they stand here (``analyzers/actions/action.py:
definitions``), so it applies what was tried.  They import only torch and the standard library, and nothing from each
other.  They define only public names, because all of them share the one module ``apply.py``.  ``test_switches.py``
checks this.
"""
