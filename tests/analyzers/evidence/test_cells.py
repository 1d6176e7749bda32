from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analyzers.evidence.cells import count_of, number_of, text_of


@pytest.mark.parametrize("unknown", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT])
def test_what_pandas_has_for_unknown(unknown: object) -> None:
    assert (text_of(unknown), number_of(unknown), count_of(unknown)) == (None, None, None)


def test_cells_of_a_frame_become_types_of_python() -> None:
    counts = pd.Series([2**53 + 1, None], dtype="Int64")
    assert [count_of(x) for x in counts] == [2**53 + 1, None]
    assert type(number_of(np.float32(0.5))) is float
    assert type(count_of(np.int64(3))) is int
    assert (text_of(""), text_of("a")) == (None, "a")
