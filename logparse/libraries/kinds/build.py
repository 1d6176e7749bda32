"""The facts that tell whether two machines have the same build of a library.

A solution's index names a kernel in one build of the library.  In another build the same index names another kernel.
So a measured time is turned into an override (a forced choice of a solution) only on a machine with the same build.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Build:
    """The facts that identify the build of one library.

    A library's folder defines it as ``BUILD`` in its ``__init__.py``.

    * ``library``: the library's name, as its solutions state it (``Solution.library``).
    * ``facts``: the names of the facts (``model.FACTS``) that identify a build, the most specific first.  The first
      fact that both machines state decides whether their builds are equal.
    * ``by_name``: True if the ids of solutions are names, which mean the same in every build.
    """

    library: str
    facts: tuple[str, ...]
    by_name: bool = False
