"""The facts by which two builds of a library differ.

The index of a solution names a kernel in one build of the library.  In another build the same index names another
kernel.  So a measured time becomes an override only on a machine with the same build.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Build:
    """Facts about the builds of one library.  A room offers it as ``BUILD`` in its ``__init__.py``.

    * ``library``: the library's name in its solutions (``Solution.library``).
    * ``facts``: the facts (``model.FACTS``) that identify a build, the most specific first.  The first fact that both
      machines have decides whether their builds are equal.
    * ``by_name``: ids of solutions are names, which mean the same in every build.
    """

    library: str
    facts: tuple[str, ...]
    by_name: bool = False
