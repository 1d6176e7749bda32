"""The workspaces that solutions were measured with, by the library's own key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, eq=False)
class Workspaces:
    """Workspaces above 0 in ``bytes`` of find-db keys and solutions, which are places in ``keys`` and ``solutions``."""

    keys: pa.StringArray
    solutions: Sequence[str]
    key: npt.NDArray[np.int32]
    solution: npt.NDArray[np.int32]
    bytes: npt.NDArray[np.int64]

    def of(self, keys: Collection[str]) -> dict[tuple[str, str], int]:
        """The largest by key and solution, of some keys."""
        wanted = pc.is_in(self.keys, pa.array((x for x in keys if x.isascii()), pa.string())).to_numpy(
            zero_copy_only=False
        )
        out: dict[tuple[str, str], int] = {}
        for row in np.flatnonzero(wanted[self.key]).tolist():
            place = self.keys[self.key[row]].as_py(), self.solutions[self.solution[row]]
            out[place] = max(int(self.bytes[row]), out.get(place, 0))
        return out
