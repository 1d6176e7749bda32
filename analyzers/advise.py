"""A store to a recommendation, and a recommendation to files: what the verb ``recommend`` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzers import completeness
from analyzers.analyzer import Settings, Tables
from analyzers.recommend import Recommendation, emissions, recommend, targets
from analyzers.render import rows
from logparse.formats.format import Writer
from logparse.store import Store


@dataclass(frozen=True)
class Written:
    """A file that was written, and what makes its library read it (shell lines, verbatim)."""

    path: Path
    use: str


def advise(store: Store, settings: Settings, run: str | None = None) -> Recommendation:
    """Analyse a run (default the latest) and keep its findings in the store.  Raises StoreError for an unknown run."""
    run = store.latest_run(run)
    recommendation = recommend(Tables(run=run, **store.frames(run)), settings)
    store.write_findings(rows(recommendation))
    return recommendation


def missing(store: Store) -> list[str]:
    """What the latest run's logs lack, as lines."""
    if not store.runs():
        return []
    run = store.latest_run()
    return [finding.message for finding in completeness.find(Tables(run=run, **store.frames(run)), Settings())]


def write(
    recommendation: Recommendation, settings: Settings, writers: Sequence[Writer], out: Path, gpus: int = 1
) -> tuple[list[Written], list[str]]:
    """Write every target's files into a folder of its own below ``out``; also say what was not written, and why.

    ``gpus`` is how many devices a process of the target sees: PyTorch reads one TunableOp file for each.
    """
    written: list[Written] = []
    notes: list[str] = []
    for name, facts in targets(recommendation, settings).items():
        made = emissions(recommendation, facts, writers, gpus=gpus)
        for file in made.files:
            path = out / name / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            if file.data.startswith(b"#!"):
                path.chmod(0o755)
            use = file.use.replace("{path}", str(path.absolute())).replace("{folder}", str(path.parent.absolute()))
            written.append(Written(path, use))
        notes += [f"{name}: {note}" for note in made.notes]
    return written, notes
