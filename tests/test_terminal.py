"""Tables for a terminal: no line is wider than it."""

from __future__ import annotations

import pandas as pd
import pytest

from logparse.output.terminal import drawn


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    frame = pd.DataFrame(
        {"problem": ["W 64×128×56×56 k128 3×3 g32 FP16 NCHW", "NT 1×2×3"], "us": [1234.5, 2.0], "pick": ["y" * 70, "x"]}
    )
    lines = drawn(frame, width).splitlines()
    assert max(map(len, lines)) <= width
