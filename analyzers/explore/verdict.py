"""What the analyzers say of a run, in the few tables and sentences that the page shows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.analyzer import Settings, Tables
from analyzers.explore.plain_text import duration
from analyzers.explore.points import found
from analyzers.picks import compare
from analyzers.recommend import Recommendation, recommend

if TYPE_CHECKING:
    from logparse.store import Store


@dataclass(frozen=True)
class Analysis:
    """``compared`` as of ``picks.compare``, ``found`` one row per problem with a finding, sentences for the top."""

    run: str
    headline: str
    lines: tuple[str, ...]
    compared: pd.DataFrame
    found: pd.DataFrame


def analyse(store: Store, run: str | None = None, settings: Settings | None = None) -> Analysis:
    """Run every analyzer over a run of the store (default the latest).  Raises StoreError where there is none."""
    settings = settings or Settings()
    name = store.latest_run(run)
    frames = store.frames(name)
    wanted = {f.name for f in fields(Tables)} - {"run"}
    tables = Tables(run=name, **{x: frames[x] for x in wanted})
    result = recommend(tables, settings)
    return Analysis(
        run=name,
        headline=headline(result),
        lines=tuple(x.message for x in result.remarks),
        compared=compare(tables, settings),
        found=found(result.findings),
    )


def headline(result: Recommendation) -> str:
    """The ceiling in one sentence, and on how much of the run it rests."""
    ceiling, count = result.ceiling, len(result.findings)
    overrides = len(result.overrides)
    if ceiling.share is None:
        return (
            f"{count:,} problems are worth a look; no pick is timed against an alternative yet, so there is no ceiling. "
            "Next: measure them (logparse replay)"
            if count
            else "Nothing is timed against an alternative yet. Next: ingest timings, or measure (logparse replay)"
        )
    rests = [
        f"{share:.0%} of {what}"
        for share, what in ((ceiling.calls_share, "calls"), (ceiling.time_share, "GPU time"))
        if share is not None
    ]
    known = f" (known for {' and '.join(rests)})" if rests else ""
    if ceiling.saving_us <= 0:
        return f"Nothing worth doing: every pick is the best known one{known}"
    return (
        f"At most {ceiling.share:.1%} of the compared time, {duration(ceiling.saving_us)} per run, can be gained{known}; "
        f"{overrides:,} overrides are proposed"
    )
