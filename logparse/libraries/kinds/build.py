"""The facts that tell whether two machines have the same build of a library.

The number of a kernel is only valid within one build.  So a measured time is turned into an override (an entry that
forces the library to use a kernel) only on a machine with the same build.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Build:
    """The facts that identify the build of one library.

    A library's folder defines it as ``BUILD`` in its ``__init__.py``.

    * ``library``: the library's name, as in ``Solution.library``.
    * ``facts``: the names of the facts (``model.FACTS``) that identify a build, the most specific first.  The first
      fact that both machines state decides whether their builds are equal.
    * ``by_name``: True if the library identifies its kernels by names, which mean the same in every build.
    """

    library: str
    facts: tuple[str, ...]
    by_name: bool = False
