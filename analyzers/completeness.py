"""What is missing from a run's logs: mask bits, ends, ranks, and counts that disagree or may hold a call twice.

All findings are about the run.  They cost nothing to compute, so ``status`` shows them and ``recommend`` puts them
first: a ranking made from half a log is a wrong ranking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from analyzers.analyzer import Analyzer, Settings, Tables
from analyzers.evidence.double_counts import remarks_on
from analyzers.evidence.runs import tables_of_logs
from logparse.formats.miopen.log import SHARED
from logparse.formats.traces.torch.records import ASSIGNED, BY_ORDER, UNREAD
from logparse.model import Evidence, Finding
from logparse.store import Store
from logparse.text import counted

NAME = "completeness"
MASK_BITS: Mapping[str, int] = {
    "error": 1,
    "trace": 2,
    "hints": 4,
    "info": 8,
    "api": 16,
    "bench": 32,
    "profile": 64,
    "extended_profile": 128,
}
"""Bit of HIPBLASLT_LOG_MASK that writes a category (the first five also are those of CUBLASLT_LOG_MASK)."""
_SHARED_BUFFER = "threads lose, tear and repeat bench lines beside trace or api lines"
BY_LEVEL = ("trace", "hints", "info", "api")
"""Categories that HIPBLASLT_LOG_LEVEL can switch on as well, besides errors."""
AT_EXIT = ("profile", "extended_profile")
BEYOND_LEVEL = ("bench", *AT_EXIT)
"""Categories that only HIPBLASLT_LOG_MASK can switch on; LEVEL, once set to anything, disables them."""
FEW = 0.5
"""A process with less than this share of the median calls may have been killed or started late."""


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Mask bits, a LEVEL that may have disabled MASK, truncated ends, uneven ranks, profile against bench."""
    out = [*_mask(tables), *_ends(tables), *_silent(tables), *_ranks(tables), *_profile(tables), *_counted(tables)]
    out += [*_shared_buffer(tables), *_assigned(tables), *_without_inputs(tables), *_without_problem(tables)]
    return [Finding(analyzer=NAME, message=message, evidence=_evidence(details)) for message, details in out]


def _evidence(details: Mapping[str, object]) -> Evidence:
    source = details.get("source_id")
    others = {name: value for name, value in details.items() if name != "source_id"}
    return Evidence(source_id=None if source is None else str(source), details=others)


def missing(store: Store) -> list[str]:
    """What the latest run's logs lack, as lines."""
    runs = store.runs()
    return [finding.message for finding in find(tables_of_logs(store, runs[-1]), Settings())] if runs else []


Remark = tuple[str, dict[str, object]]


def categories(tables: Tables) -> pd.DataFrame:
    """Distinct ``source_id, category`` of the mask's categories that the run's logs hold."""
    calls = tables.calls[~tables.calls["by_tool"].fillna(False).astype(bool)]
    rows = pd.concat([calls[["source_id", "category"]], tables.messages[["source_id", "category"]]])
    return rows[rows["category"].isin(MASK_BITS)].drop_duplicates().sort_values(["source_id", "category"])


def _mask(tables: Tables) -> Iterator[Remark]:
    rows = categories(tables)
    if not len(rows):
        return
    present = sorted(set(rows["category"]), key=lambda x: MASK_BITS[x])
    bits = [MASK_BITS[name] for name in present]
    mask, terms = sum(bits), f" ({' + '.join(map(str, bits))})" if len(bits) > 1 else ""
    yield (
        f"the logs hold {', '.join(present)}, which is what a log mask of {mask}{terms} writes",
        {"mask": mask, "categories": tuple(present)},
    )
    nvidia = tables.messages["function"].fillna("").astype(str).str.startswith("cublas")
    own = rows[~rows["source_id"].isin(set(tables.messages.loc[nvidia, "source_id"]))]
    by_source = own.groupby("source_id")["category"].agg(set)
    hidden = [str(x) for x, have in by_source.items() if have & set(BY_LEVEL) and not have & set(BEYOND_LEVEL)]
    if hidden:
        yield (
            f"{counted(len(hidden), 'log')} with {'/'.join(BY_LEVEL)} lines but no bench or profile lines. If bench "
            "lines were wanted: HIPBLASLT_LOG_LEVEL, set to anything, silently disables HIPBLASLT_LOG_MASK; unset it "
            "and set HIPBLASLT_LOG_MASK=32",
            {"sources": tuple(hidden)},
        )


def _shared_buffer(tables: Tables) -> Iterator[Remark]:
    rejects = tables.sources[pd.to_numeric(tables.sources["reject_lines"], errors="coerce") > 0]
    for source in sorted(_with_shared_buffer(tables) & set(rejects["source_id"])):
        yield (
            f"{_path(rejects, source)} has rejected lines: {_SHARED_BUFFER}. HIPBLASLT_LOG_MASK=96 is exact",
            {"source_id": source},
        )


def _with_shared_buffer(tables: Tables) -> set[str]:
    """Logs of bench lines beside those with a prefix: in hipBLASLt each kind has a lock of its own, and both one
    buffer.
    """
    by_source = categories(tables).groupby("source_id")["category"].agg(set)
    return {str(source) for source, have in by_source.items() if "bench" in have and have & {"trace", "api"}}


def _ends(tables: Tables) -> Iterator[Remark]:
    own = tables.sources[tables.sources["run"] == tables.run]
    if "ended" in own:
        for path, ended in own.loc[own["ended"].notna(), ["path", "ended"]].sort_values("path").itertuples(index=False):
            yield f"{path} ends {ended}: its process was killed or still writes", {"path": path}
    torn = tables.messages[tables.messages["text"].fillna("").astype(str).str.contains("log ends inside", regex=False)]
    for source in sorted(set(torn["source_id"])):
        path = _path(own, source)
        yield f"{path} ends inside a message: its process was killed or still writes", {"source_id": source}


def _path(sources: pd.DataFrame, source: str) -> str:
    known = sources.loc[sources["source_id"] == source, "path"]
    return str(known.iloc[0]) if len(known) else source


def _silent(tables: Tables) -> Iterator[Remark]:
    own = tables.sources[tables.sources["run"] == tables.run]
    units = ["call_lines", "message_lines", "measurement_lines", "fact_lines"]
    known = own[units].apply(pd.to_numeric, errors="coerce").sum(axis=1, min_count=1)
    empty = set(own.loc[pd.to_numeric(own["bytes"], errors="coerce") == 0, "path"])
    for path in sorted(own.loc[known == 0, "path"]):
        why = "is empty" if path in empty else "holds no line of a format that is known: nothing of it is counted"
        yield f"{path} {why}", {"path": path}


def _ranks(tables: Tables) -> Iterator[Remark]:
    """Processes are compared with those whose calls were counted from the same kind of log."""
    rows = tables.workload[tables.workload["pid"].notna()]
    for category, same in sorted(rows.assign(calls=rows["calls"].astype("Float64")).groupby("calls_from")):
        calls = same.groupby("pid")["calls"].sum(min_count=1).dropna()
        median = float(calls.median()) if len(calls) > 1 else 0.0
        few = calls[calls < FEW * median]
        if not len(few):
            continue
        pids = [int(x) for x in sorted(few.index)]
        listed = ", ".join(f"{pid} ({int(few[pid]):,})" for pid in pids[:5])
        yield (
            f"{len(few)} of {len(calls)} processes logged less than half the median of {median:,.0f} {category} calls: "
            f"{listed}. A rank may have been killed, or its log be missing in part",
            {"processes": len(calls), "median_calls": median, "few": tuple(pids)},
        )


def _profile(tables: Tables) -> Iterator[Remark]:
    rows = tables.calls[~tables.calls["by_tool"].fillna(False).astype(bool)]
    rows = rows[rows["category"].isin(BEYOND_LEVEL)].assign(count=rows["count"].astype("Float64"))
    table = rows.pivot_table(index=["source_id", "problem"], columns="category", values="count", aggfunc="sum")
    for name in AT_EXIT:
        if name not in table or "bench" not in table:
            continue
        both = table[table.groupby(level="source_id")[[name, "bench"]].transform("sum").gt(0).all(axis=1)]
        left, right = both[name].fillna(0), both["bench"].fillna(0)
        different = int((left != right).sum())
        shared = not _with_shared_buffer(tables).isdisjoint(both.index.get_level_values("source_id"))
        causes = ([_SHARED_BUFFER] if shared else []) + [_cause(left, right)]
        if different:
            yield (
                f"{name} counts of {different} of {len(both)} problems differ from the bench lines "
                f"({int(left.sum()):,} against {int(right.sum()):,} calls): {', or '.join(causes)}",
                {"problems": len(both), "different": different, "profile": int(left.sum()), "bench": int(right.sum())},
            )


def _cause(profile: pd.Series, bench: pd.Series) -> str:
    """Profiles are written at exit, by each process that a fork left with its log and its counts."""
    if profile.sum() > bench.sum():
        return "bench lines were lost, or the process forked and both wrote at exit what it had counted before"
    return "the process did not end normally (profiles are written at exit), or records were lost"


def _counted(tables: Tables) -> Iterator[Remark]:
    for message in remarks_on(tables.calls, tables.sources):
        yield message, {}


def _assigned(tables: Tables) -> Iterator[Remark]:
    """A backward convolution of a trace runs B and W together; kernels of an unknown direction count for neither."""
    own = tables.facts[tables.facts["run"] == tables.run]
    shares = own[own["name"] == BY_ORDER]
    by_order: dict[str, str] = dict(zip(shares["source_id"], shares["value"], strict=True))
    rows = own[own["name"] == ASSIGNED]
    for source, value in sorted(zip(rows["source_id"], rows["value"], strict=True)):
        assigned, ordered = float(value), float(by_order.get(source, 0.0))
        remarks_of = []
        if assigned < 1.0:
            remarks_of.append("the rest stays B+W and is never compared with F or B")
        if ordered:
            remarks_of.append(f"{ordered:.1%} by the order of the kernels alone, whose names do not show it")
        if remarks_of:
            yield (
                f"{_path(tables.sources, source)}: {assigned:.1%} of the time of backward convolutions is assigned to "
                f"B or W; {'; '.join(remarks_of)}",
                {"source_id": source, "assigned": value, "by_order": ordered},
            )


def _without_inputs(tables: Tables) -> Iterator[Remark]:
    rows = tables.messages[tables.messages["text"] == UNREAD]
    count = int(pd.to_numeric(rows["count"]).sum())
    if count:
        names = sorted(set(rows["function"].astype(str)))
        yield (
            f"no problem here, as their trace lacks the sizes or strides of their inputs: {count:,} × "
            f"{', '.join(names[:4])}{' …' * (len(names) > 4)} (torch.profiler: record_shapes=True)",
            {"calls": count, "operators": tuple(names)},
        )


def _without_problem(tables: Tables) -> Iterator[Remark]:
    rows = tables.messages[tables.messages["text"] == SHARED]
    for source, count in sorted(pd.to_numeric(rows["count"]).groupby(rows["source_id"]).sum().items()):
        yield (
            f"{_path(tables.sources, str(source))}: {counted(int(count), 'line')} of MIOpen's with a time or a solver "
            "left out: threads or ranks share the log, and of which one's problem they are is unknown "
            "(MIOPEN_ENABLE_LOGGING_MPMT=1 names the thread in each line)",
            {"source_id": source, "lines": int(count)},
        )


ANALYZER = Analyzer(name=NAME, about="what a run's logs lack: mask bits, cut ends, missing ranks", find=find)
