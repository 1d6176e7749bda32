"""The workspace that a job gives its calls, as far as a log states it: hipBLASLt takes no solution that needs more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from analyzers.analyzer import Tables, once
from analyzers.times.cells import is_true


class Given(NamedTuple):
    """Bytes, the least and the most over the calls of one problem: call sites may differ."""

    least: int
    most: int


@once
def given(tables: Tables) -> Mapping[str, Given]:
    """By the text of a called problem, or of one that is linked to it: a Trace line (mask 2) states the workspace, a
    bench or profile line of the same call does not.
    """
    calls, links = tables.calls, tables.links
    stated = calls[calls["workspace_bytes"].notna() & ~is_true(calls["by_tool"])][["problem", "workspace_bytes"]]
    linked = links.loc[~links["problem"].isin(stated["problem"]), ["problem", "other"]]
    other = linked.merge(stated.rename(columns={"problem": "other"}), on="other")[["problem", "workspace_bytes"]]
    rows = pd.concat([x for x in (stated, other) if len(x)] or [stated])
    sizes = rows.groupby("problem")["workspace_bytes"].agg(["min", "max"])
    pairs = zip(sizes.index, sizes["min"], sizes["max"], strict=True)
    return {str(text): Given(int(least), int(most)) for text, least, most in pairs}
