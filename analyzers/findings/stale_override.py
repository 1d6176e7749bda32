"""Find override files that were made for another machine or another library build than the job uses.

* Seen: a TunableOp results file, a hipBLASLt tuning file or a MIOpen user db states where it was made. The job's logs
  state another value of the same fact, for example another hipBLASLt version.
* Cost: TunableOp drops the whole file if one of its validators (lines that state versions) differs. hipBLASLt drops it
  if the git revision differs. MIOpen looks for a file named by architecture, CU count and version. So nothing is loaded
  or reported, and the job runs untuned (aiter#4634, aiter#5380). If a library does load such a file, an index may mean
  another kernel.
* Needed: one fact that both the file and the logs state. Texts of one version may be more or less complete (``2.9.1``
  and ``2.9.1+rocm7.0``; ``gfx942`` and ``gfx942:sramecc+:xnack-``), so two texts are equal if one begins with the
  other.
* Not judged: a fact that no log states. ``logparse lint FILE --target`` judges a file row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from analyzers.evidence.origins import is_job_log
from analyzers.evidence.tables import Settings, Tables
from analyzers.findings.finding import Analyzer
from logparse.libraries.builds import BUILDS
from logparse.model import Advise, Evidence, Finding
from logparse.target import same_value

NAME = "stale-override"
TUNABLEOP, TUNING_FILE = "tunableop-results", "hipblaslt-tuning-file"
MIOPEN = frozenset({"miopen-find-db", "miopen-perf-db"})
EFFECT: Mapping[str, str] = {
    TUNABLEOP: (
        "PyTorch ignores the whole file if one of its Validator lines (versions and device) differs from PyTorch's "
        "own values"
    ),
    TUNING_FILE: (
        "hipBLASLt ignores a tuning file of another hipBLASLt revision. In another library build or GPU architecture, "
        "the same index names another kernel"
    ),
    **dict.fromkeys(
        MIOPEN,
        "MIOpen looks for a file that is named by its own arch, CU count and version, so it does not find this file",
    ),
}
"""A sentence for each format of override files about files that were made for another machine or build.

It says what the library does with such a file.
"""
NAMES = (
    *("arch", "cu_count", "backend"),
    *(name for build in BUILDS.values() for name in build.facts),
    *("hip_version", "rocm_version", "cuda_version"),
)
"""Names of the facts (versions and devices) in which an override file must agree with the job's logs."""


def override_sources(tables: Tables) -> pd.DataFrame:
    """Return those files of the job that make a library use other kernels, as columns ``source_id, path, format``.

    The databases that come with MIOpen are left out.
    """
    own = tables.sources[(tables.sources["run"] == tables.run) & tables.sources["format"].isin(EFFECT)]
    kinds = tables.facts[tables.facts["name"].isin(["find_db", "perf_db"]) & (tables.facts["value"] == "user")]
    user = own["source_id"].isin(kinds["source_id"])
    return own.loc[user | ~own["format"].isin(MIOPEN), ["source_id", "path", "format"]].sort_values("source_id")


def stated_by_logs(tables: Tables) -> dict[str, set[str]]:
    """Return what the job's own logs state about the machine: the values of each fact, such as ``arch``.

    Databases and replays are not logs of the job.
    """
    own = tables.sources[tables.sources["run"] == tables.run]
    logs = own.loc[is_job_log(own), "source_id"]
    rows = tables.facts[tables.facts["source_id"].isin(logs) & tables.facts["name"].isin(NAMES)]
    return {str(name): set(map(str, values)) for name, values in rows.groupby("name")["value"]}


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    logs, out = stated_by_logs(tables), []
    if not logs:
        return []
    rows = tables.measurements[["source_id", "problem", "solution"]].drop_duplicates()  # A copied row counts once.
    counts = rows["source_id"].value_counts()
    for source, path, format_ in override_sources(tables).itertuples(index=False):
        facts = tables.facts[tables.facts["source_id"] == source]
        mine = {str(k): sorted(map(str, values)) for k, values in facts.groupby("name")["value"]}
        differ = {
            name: (mine[name][0], tuple(sorted(logs[name])))
            for name in NAMES
            if name in mine and name in logs and not any(same_value(name, a, b) for a in mine[name] for b in logs[name])
        }
        if differ:
            out.append(_finding(str(source), str(path), str(format_), differ, int(counts.get(source, 0))))
    return out


def _finding(
    source: str, path: str, format_: str, differ: Mapping[str, tuple[str, tuple[str, ...]]], rows: int
) -> Finding:
    words = [f"{name} {own} (the job's logs: {', '.join(theirs)})" for name, (own, theirs) in differ.items()]
    made, name = "1 row" if rows == 1 else f"{rows:,} rows", "/".join(path.split("/")[-2:])
    return Finding(
        analyzer=NAME,
        message=(
            f"the override file {name} with {made} was made for {'; '.join(words)}. {EFFECT[format_]}. The gain of the "
            "file's rows is unknown until they are measured on the job's machine"
        ),
        evidence=Evidence(source_id=source, details={"format": format_, "rows": rows, "differ": dict(differ)}),
        remedy=Advise("tune again on this machine"),
        advice=(
            "Tune again on this machine, or keep the file for the other machine. `logparse lint --target` lists the "
            "differences."
        ),
    )


ANALYZER = Analyzer(
    name=NAME,
    about="an override file that was made for another device or library build than the logs state for the job",
    worth="unknown",
    find=find,
)
