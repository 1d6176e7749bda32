"""Find convolutions whose backward-weight pass (W) is slow in comparison with the other passes of the same layer.

The other passes are forward (F) and backward data (B). All three do the same floating-point work. So the best known
time of W is compared with the slower of the best F and the best B of the layer in the same file, its sibling. W is slow
if it takes more than ``slow_factor`` times as long and more than ``slow_floor_ms``. The estimated gain is the
difference. If a file has neither F nor B of the layer, nothing is claimed.

If measured times of comparable layers are known, the finding also states the time of their W. In a trace of the job,
the time of a pass is the mean time of all kernels of a call, whatever kernels they are.

A *user* find-db (the result of MIOpen's search) of the same device may have a faster solver than the find-db that comes
with MIOpen. Its time then replaces the estimate, because MIOpen reads the user find-db first and does not merge the two
(``libraries/miopen/find_db.py``). Only a log that names the solver, or a trace of the call, shows whether the job
already uses that file. Without them the finding states the condition (``libraries/miopen/find_db_choice.py``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.evidence.cells import count_of, text_of
from analyzers.evidence.comparable import best_times, device_name
from analyzers.evidence.joins import called_problems, calls_of, facts_of, keep_timed, not_elsewhere, run_facts
from analyzers.evidence.miopen_tuning import complete_overrides
from analyzers.evidence.origins import is_evidence
from analyzers.evidence.passes import backward_weights, find_best_pass_times, passes_of
from analyzers.evidence.picks import picks
from analyzers.evidence.tables import Settings, Tables, query_frames
from analyzers.findings.finding import BESIDE, NOW, RESTS_ON, THEN, Analyzer
from analyzers.job.gpu_time import traced_calls_of_run
from logparse.devices import is_nvidia
from logparse.libraries.builds import can_decide_for
from logparse.libraries.miopen.find_db_choice import ASSUMES, FIND_DBS, SETTLED_BY, rivals_sql
from logparse.model import (
    AFTER_SEARCH,
    Advise,
    ConvProblem,
    Evidence,
    Finding,
    Gain,
    Override,
    Replay,
    Search,
    UseRows,
    problem_from_text,
    solution_from_text,
)
from logparse.target import Facts, arch, machine, same_device
from logparse.text import duration, pluralize

NAME = "slow-wrw"
_MATCHES = "W (backward weights) gets as fast as the slower of F (forward) and B (backward data)"
YARDSTICK = "the slower of F and B"
"""Words for the yardstick of one W: the slower pass of its layer's forward (F) and backward data (B)."""
TUNE = (
    "Let MIOpen search for a faster solver (tune_miopen.sh, takes hours), "
    f"{AFTER_SEARCH}. In PyTorch, also try channels_last with PYTORCH_MIOPEN_SUGGEST_NHWC=1, from which grouped layers "
    "gain most."
)
TUNE_ELSEWHERE = (
    "A faster solver is known on another device of the store. Let MIOpen search "
    f"for it here (tune_miopen.sh, takes hours), {AFTER_SEARCH}."
)
KNOWN_ISSUE = (
    " MIOpen 3.3.0 of ROCm 6.3.0 has a known issue with backward weights of FP16 and FP32 on MI300 (ROCm issue "
    "4080), which ROCm 6.3.1 fixes. Upgrade, or let MIOpen search each shape once (MIOPEN_FIND_ENFORCE=3)."
)
TUNE_CUDNN = (
    "cuDNN has no override file, but `logparse replay` measures what "
    "channels_last and torch.backends.cudnn.benchmark gain; grouped layers gain most."
)


def traced_passes(tables: Tables) -> pd.DataFrame:
    """Return the mean times of the three passes of each convolution layer, from the job's traces.

    ``solution`` is the kernel that took most of the time. Without a trace, there are no rows.
    """
    rows = traced_calls_of_run(tables)
    rows = rows.assign(solution="kernel:" + rows["kernel"].astype(str), time_us=rows["now_us"].astype("float64"))
    # The rows are marked as rows of a find-db, because its times are evidence.
    as_measured = rows.assign(kind="conv", origin="find-db", status="ok")
    return passes_of(as_measured)


def totals(rows: pd.DataFrame) -> dict[str, float]:
    """Sum up the weight gradients of convolutions in one file: their number, their time, and the possible saving, µs.

    ``rows`` come from ``backward_weights``, one row per convolution with its best known time.
    """
    slow = rows[rows["slow"]]
    return {
        "problems": len(rows),
        "slow": len(slow),
        "without_siblings": int(rows["sibling_us"].isna().sum()),
        "held_us": _sum(slow["best_us"]),
        "recoverable_us": _sum(slow["best_us"] - slow["sibling_us"]),
        "w_us": _sum(rows["best_us"]),
    }


def _sum(values: pd.Series) -> float:
    """Add the values in sorted order, so that the sum is the same to the last bit in whatever order they come."""
    return float(np.sort(values.to_numpy(dtype="float64")).sum())


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    """Return findings about slow weight gradients of convolutions (W): totals for each file, then one per convolution.

    * The totals for a file of another job include only convolutions that this job calls.
    * If several files of one device have a convolution, one file is used. Files of this job are preferred, then the
      file with the smallest loss.
    * The loss of a call is multiplied by the number of calls only if it is known on which device the calls ran.
    * That device is unknown if no target is given and the job's files are of several devices. If the job's files state
      no device, all files are considered.
    * The device is also unknown for a file that states no device, if another file states one.
    """
    found = [x for x in (find_best_pass_times(tables), traced_passes(tables)) if len(x)]
    if not found:
        return []
    facts = facts_of(tables)
    every = backward_weights(pd.concat(found, ignore_index=True), settings)
    w = _of_sources(every, tables, settings, facts)
    own = set(tables.sources.loc[tables.sources["run"] == tables.run, "source_id"])
    sources = list(w["source_id"].cat.categories)
    named = [s for s in sources if _device(facts, s) != s]
    # If this run's files state a device, a device that only another run measured cannot be the device of this run.
    of_run = [s for s in named if s in own]
    ran_on = {_device(facts, s) for s in of_run or named} or set(w["device"])
    calls = calls_of(tables, w["problem"]) if len(ran_on) == 1 else {}
    not_run = _not_run(w[w["slow"]], tables, settings, facts)
    findings, here = list[Finding](), run_facts(tables)
    reported = _to_report(w)
    faster = _find_faster_devices(reported, every, facts)
    for source, rows in reported.groupby("source_id", observed=True):
        mine, known = calls if _device(facts, str(source)) in ran_on else {}, facts.get(str(source), {})
        typical = comparable_w(tables, [str(x) for x in rows["problem"]], known)
        for row in rows.to_dict("records"):
            words = (typical.get(str(row["problem"])), faster.get((str(source), str(row["problem"]))))
            one = _report_slow_gradient(row, known, mine, *words)
            findings.append(_with_known_issue(one, here | known if str(source) in own else known))
    not_slow = {(source, problem_from_text(text)) for source, text in not_run}
    findings = [x for x in findings if (x.evidence.source_id, x.problem) not in not_slow]
    summaries = _summaries(w, tables, facts, not_run, _find_worst(findings), settings)
    replaced = replaced_solvers(w, tables, settings, facts, calls)
    better = {(x.evidence.details["system"], x.problem) for x in replaced}
    findings = [x for x in findings if (x.evidence.source_id, x.problem) not in better]
    return [*summaries, *findings, *replaced]


def _find_worst(findings: Sequence[Finding]) -> dict[str, str]:
    """Say for each file what its slow weight gradients lose in the run. A file without counted calls is left out."""
    counted = [
        (x.saving_us, x.problem.label, x.evidence.source_id or "") for x in findings if x.problem and x.saving_us
    ]
    worst = {source: (us, label) for us, label, source in sorted(counted)}
    total = {source: math.fsum(us for us, _, of in counted if of == source) for source in worst}
    return {
        source: f"in the run they lose ≈ {duration(total[source])}, and {label} loses most: ≈ {duration(us)}"
        if total[source] > us
        else f"{label} loses ≈ {duration(us)} in the run"
        for source, (us, label) in worst.items()
    }


def _of_sources(w: pd.DataFrame, tables: Tables, settings: Settings, facts: Mapping[str, Facts]) -> pd.DataFrame:
    """Add facts about their file to a table of weight gradients, and drop rows from another device than the job's.

    * ``loss``: additional time compared with the slower other pass, µs.
    * ``foreign``: True for another job's file.
    """
    own = set(tables.sources.loc[tables.sources["run"] == tables.run, "source_id"])
    w = not_elsewhere(w, tables, settings)
    # As a category, the column has one entry per file, so the look-ups below are not repeated for each row.
    sources = w["source_id"].astype("category")
    device = sources.map({s: _device(facts, s) for s in sources.cat.categories})
    loss, foreign = w["best_us"] - w["sibling_us"], ~w["source_id"].isin(own)
    return w.assign(source_id=sources, loss=loss, device=device, foreign=foreign)


def _summaries(
    w: pd.DataFrame,
    tables: Tables,
    facts: Mapping[str, Facts],
    not_run: Collection[tuple[str, str]],
    worst: Mapping[str, str],
    settings: Settings,
) -> list[Finding]:
    """For each file, report how many weight gradients of convolutions are slow, and how much time they waste.

    * A file is included if it has a slow weight gradient, or if it is a find-db (results of MIOpen's search).
    * ``not_run``: pairs (file, convolution) for which the job runs a faster kernel than the file has. They count as
      not slow.
    * ``worst``: for a file, words about the weight gradient that loses most.
    """
    if not_run:
        runs = [pair not in not_run for pair in zip(w["source_id"].astype(str), w["problem"], strict=True)]
        w = w.assign(slow=w["slow"] & np.array(runs), not_run=w["slow"] & ~np.array(runs))
    names = dict(zip(tables.sources["source_id"], tables.sources["path"], strict=True))
    called = w.loc[w["foreign"], "problem"].isin(called_problems(tables))
    # The texts are dropped first, because they have 150 characters each.
    about = w.drop(columns=["problem", "solution"]).drop(index=called.index[~called])
    found = []
    for source, rows in about.groupby("source_id", observed=True):
        total = totals(rows) | ({"not_run": int(rows["not_run"].sum())} if not_run else {})
        if total["slow"] or "find_db" in facts.get(str(source), {}):
            name = str(names.get(source, source)).rpartition("/")[2]
            known = facts.get(str(source), {})
            cus = f"{known['cu_count']} CUs" if "cu_count" in known else ""
            where = ", ".join(filter(None, (name, arch(known) or known.get("device") or "unknown device", cus)))
            which = " that the run calls" * bool(rows["foreign"].any())
            words = _in_words(total, which, worst.get(str(source), ""), settings.slow_factor)
            message = f"{words}; times of {where}"
            evidence = Evidence(source_id=str(source), details=dict(total))
            found.append(Finding(analyzer=NAME, message=message, evidence=evidence))
    return sorted(found, key=lambda x: (-float(str(x.evidence.details["recoverable_us"])), str(x.evidence.source_id)))


def _in_words(total: Mapping[str, float], which: str, worst: str, factor: float) -> str:
    slow, missing = int(total["slow"]), int(total["without_siblings"])
    out = (
        f"{slow:,} of {pluralize(int(total['problems']), 'backward-weight (W) problem')}{which} "
        f"{'is' if slow == 1 else 'are'} slow"
    )
    if slow:
        out += f" (slow: more than {factor:g} × the slower of F (forward) and B (backward data) of the layer): "
        out += worst or (
            f"one call of each takes {duration(total['held_us'])} in all, ≈ {duration(total['recoverable_us'])} more "
            "than the slower of F and B"
        )
    if others := int(total.get("not_run", 0)):
        out += f"; {others:,} more would be slow, but the job runs a faster solution than the file has"
    return out + f"; {missing:,} have no F or B time in the file" * bool(missing)


def _to_report(w: pd.DataFrame) -> pd.DataFrame:
    """Choose which slow weight gradients of convolutions are reported, one row per device and convolution.

    If several files have the same convolution, a file of this job is used, or else the file with the smallest loss.
    """
    once = w.drop(columns=["problem", "solution"]).sort_values(["foreign", "loss", "best_us", "source_id"])
    once = once.drop_duplicates(["device", "problem_hash"])
    reported = once[once["slow"]].join(w[["problem", "solution"]])
    return reported.sort_values(["source_id", "problem"])


def _find_faster_devices(
    reported: pd.DataFrame, every: pd.DataFrame, facts: Mapping[str, Facts]
) -> dict[tuple[str, str], str]:
    """Find slow weight gradients of convolutions for which another device has a faster kernel.

    Returns a text for each (file, convolution), for example "On gfx942 with 304 CUs ConvHip… takes 80 µs".
    """
    others = every.loc[every["problem"].isin(set(reported["problem"])), ["problem", "source_id", "solution", "best_us"]]
    others = others.assign(device=[_device(facts, str(x)) for x in others["source_id"]]).drop(columns="source_id")
    named = zip(others["device"], others["solution"], strict=True)
    others = others.loc[[" " in device and not str(name).startswith("kernel:") for device, name in named]]
    rows = reported[["source_id", "problem", "device", "solution", "best_us"]]
    rows = rows.merge(others, on="problem", suffixes=("_here", ""))
    rows = rows[(rows["device_here"] != rows["device"]) & (rows["solution_here"] != rows["solution"])]
    rows = rows[rows["best_us"] < rows["best_us_here"]].sort_values(["best_us", "solution", "device"])
    out: dict[tuple[str, str], str] = {}
    for row in rows.to_dict("records"):
        where, solver = " with ".join(str(row["device"]).split(" ")), str(row["solution"]).split(":", 1)[-1]
        place = (str(row["source_id"]), str(row["problem"]))
        out.setdefault(place, f"On {where} CUs {solver} takes {duration(row['best_us'])}")
    return out


def _device(facts: Mapping[str, Facts], source: str) -> str:
    """Return a file's device as architecture and number of CUs, for example ``gfx942 304``.

    If the device is unknown, the name of the file itself is returned.
    """
    return device_name(facts.get(source, {})) or source


def comparable_w(tables: Tables, problems: Sequence[str], known: Facts) -> dict[str, float]:
    """Return for each weight gradient of a convolution how long similar ones take on the device, µs.

    A convolution is left out if no such time is known.
    """
    device = device_name(known)
    if device is None or not problems:
        return {}
    found = best_times(tables, device).expect(problems, others=True)
    each = zip(problems, found.expected_us.tolist(), strict=True)
    return {text: us for text, us in each if not math.isnan(us)}


def _say_comparable(typical_us: float, gain: Gain, calls: int | None) -> str:
    """Say how long similar convolutions take, and what is saved if this one gets as fast as they are.

    ``gain``: the expected gain of a call. The saving is left out if it is not smaller.
    """
    similar = f"W convolutions of similar size take {duration(typical_us)}"
    if not gain.then_us < typical_us < gain.now_us:
        return similar
    whose = "a call" if calls is None else "the run"
    saved = duration((gain.now_us - typical_us) * (calls or 1))
    return f"a more cautious aim: {similar}, and with such a time {whose} saves ≈ {saved}"


def _report_slow_gradient(
    row: Mapping[Hashable, Any], known: Facts, calls: Mapping[str, int], typical_us: float | None, elsewhere: str | None
) -> Finding:
    """Report one slow weight gradient (W) of a convolution. The layer's other passes are F and B.

    * ``typical_us``: the time of comparable weight gradients.
    * ``elsewhere``: a text about a faster kernel on another device.
    """
    text, best, sibling = str(row["problem"]), float(row["best_us"]), float(row["sibling_us"])
    which = "B" if row["b_us"] == sibling else "F"
    library, _, solver = str(row["solution"]).partition(":")
    # A trace has the time of the job's own call. A file with measured times has the time of the best known solver.
    own = library == "kernel"
    takes = f"W takes {duration(best)} with {solver}" if own else f"the best known solver of W, {solver}, takes "
    takes += "" if own else duration(best)
    # The possible saving is (time of W) − (time of the slower of F and B).
    count, gain = calls.get(text), Gain(best, sibling)
    saves = f"a call saves ≈ {duration(gain.saving_us)}"
    if count is not None:
        saves = f"the run saves ≈ {duration(gain.times(count).saving_us)}"
    aim = f"W gets as fast as {which}" if own else f"a search finds a solver for W as fast as {which}"
    message = (
        f"{takes}, {best / sibling:.1f} × as long as {which} ({duration(sibling)}), {YARDSTICK}. If {aim}, {saves}"
    )
    naive = "The naive solver is the fastest known solver" * bool(row["naive"])
    return Finding(
        analyzer=NAME,
        problem=problem_from_text(text),
        message=". ".join(filter(None, (message, naive, elsewhere))),
        per_call=gain,
        calls=count,
        in_run=None if count is None else gain.times(count),
        evidence=Evidence(
            best_us=best,
            source_id=str(row["source_id"]),
            arch=known.get("arch"),
            cu_count=known.get("cu_count"),
            details={"solution": row["solution"], RESTS_ON: _MATCHES, THEN: f"the time of its {which}"}
            | ({} if library == "kernel" else {NOW: "by the best known solver"})
            | ({} if typical_us is None else {BESIDE: _say_comparable(typical_us, gain, count)}),
        ),
        remedy=Replay() if is_nvidia(known) else Search(),  # No tool of NVIDIA's searches.
        advice=TUNE_CUDNN if is_nvidia(known) else TUNE_ELSEWHERE if elsewhere else TUNE,
    )


def _with_known_issue(found: Finding, known: Facts) -> Finding:
    """If the job's MIOpen version is known to be slow for this convolution, add that to the finding's advice."""
    problem = found.problem
    concerned = isinstance(problem, ConvProblem) and problem.in_type in ("FP16", "FP32")
    if not concerned or known.get("miopen_version") != "3.3.0" or arch(known) not in (None, "gfx942"):
        return found
    return replace(found, advice=f"{found.advice}{KNOWN_ISSUE}")


# ------------------------------------------------------------------------------------------------- user find-dbs


_RIVALS = {
    "w": "source_id text, problem text, solution text, best_us float, slow bool",
    "facts": "source_id text, name text, value text",
}


def replaced_solvers(
    w: pd.DataFrame, tables: Tables, settings: Settings, facts: Mapping[str, Facts], calls: Mapping[str, int]
) -> list[Finding]:
    """Report slow weight gradients for which a search by the user found a faster kernel than MIOpen's own list has.

    * Both are find-dbs, files with search results: one is shipped with MIOpen, and one belongs to the user. They must
      be of the same device (``find_db_choice``).
    * ``w``: the rows of such files, from ``passes.backward_weights``.
    * There is one report per convolution. It is left out if the log of the job names the faster kernel, or if the
      call takes about the faster time in the job's trace.
    """
    if not any(known.get("find_db") == "user" for known in facts.values()):
        return []
    with query_frames({"w": w, "facts": tables.facts}, _RIVALS) as con:
        pairs = con.sql(f"with find_dbs as ({FIND_DBS}) {rivals_sql('w', 'slow')} order by problem").df()
    pairs = pairs[pairs["user_us"] < (1 - settings.min_gain) * pairs["system_us"]]
    if not len(pairs):
        return []
    picked = picks(tables).groupby("problem")["pick"].agg(set).to_dict()
    raw, in_traces = _spell_details(tables, pairs), _in_traces(tables)
    out: dict[str, Finding] = {}
    for row in pairs.to_dict("records"):
        text, source = str(row["problem"]), str(row["user_id"])
        traced_us = in_traces.get(text)
        # A trace shows the kernels of the call, but not the solver. It is taken for the solver whose time is nearer to
        # the traced time.
        fast = traced_us is not None and traced_us**2 < row["system_us"] * row["user_us"]
        if row["user_solution"] in picked.get(text, ()) or fast:
            continue
        known = {str(key): value for key, value in row.items()} | raw.get((source, text), {})
        settled = bool(picked.get(text)) or traced_us is not None
        out[text] = _report_replaced_solver(known, facts[source], settings, calls.get(text), settled)
    return complete_overrides(list(out.values()), tables, facts)


def _in_traces(tables: Tables) -> dict[str, float]:
    """Return the mean time (µs) that a call of each weight gradient takes in the job's traces."""
    rows = traced_passes(tables)
    return {str(text): float(us) for text, us in zip(rows["problem"], rows["best_us"], strict=True)}


def _not_run(
    slow: pd.DataFrame, tables: Tables, settings: Settings, facts: Mapping[str, Facts]
) -> set[tuple[str, str]]:
    """Find slow kernels that a file lists for a weight gradient, although the job runs another, faster kernel.

    Returns pairs (file, convolution). Three conditions must be true:

    * A log of the job names another kernel for the convolution.
    * A file shows that this other kernel takes at most ``slow_factor`` times as long as the slower of the layer's two
      other passes (F and B).
    * The two files are not known to be from different devices.
    """
    columns = ["problem", "solution", "source_id", "time_us"]
    ran = picks(tables).rename(columns={"pick": "solution"})[["problem", "solution"]].drop_duplicates()
    if not len(ran):
        return set()
    rows = tables.measurements[tables.measurements["problem"].isin(set(ran["problem"]))]
    times = keep_timed(rows[is_evidence(rows)])
    pairs = slow.merge(ran.merge(times[columns], on=["problem", "solution"]), on="problem", suffixes=("", "_ran"))
    pairs = pairs[pairs["time_us"] <= settings.slow_factor * pairs["sibling_us"]]
    pairs = pairs[pairs["solution"] != pairs["solution_ran"]]
    return {
        (str(source), str(problem))
        for source, other, problem in zip(pairs["source_id"], pairs["source_id_ran"], pairs["problem"], strict=True)
        if same_device(facts.get(str(source), {}), facts.get(str(other), {})) is not False
    }


def _spell_details(tables: Tables, pairs: pd.DataFrame) -> dict[tuple[str, str], dict[str, object]]:
    """Return details, besides the kernel's name, that MIOpen needs to use a convolution's fastest kernel.

    The keys of the result are pairs: a user's find-db (MIOpen's stored search results) and a convolution.
    """
    rows = tables.measurements
    rows = rows[rows["problem"].isin(set(pairs["problem"])) & rows["source_id"].isin(set(pairs["user_id"]))]
    rows = keep_timed(rows).sort_values(["source_id", "problem", "time_us", "solution"])
    rows = rows.drop_duplicates(["source_id", "problem"])
    # MIOpen needs, for example, the algorithm and the size of the workspace.
    names = ["raw", "algorithm", "workspace_bytes", "key_text"]
    return {(str(row["source_id"]), str(row["problem"])): {x: row[x] for x in names} for row in rows.to_dict("records")}


UNSETTLED = (
    "No log shows which of the two files the job reads. If it reads the user find-db already, nothing is left to gain. "
    f"A log that is captured with {SETTLED_BY} names the solver"
)


def _report_replaced_solver(
    row: Mapping[str, object], facts: Facts, settings: Settings, calls: int | None, settled: bool
) -> Finding:
    problem, text = problem_from_text(str(row["problem"])), str(row["user_solution"])
    best_us, system_us = float(str(row["user_us"])), float(str(row["system_us"]))
    gain = Gain(system_us, best_us)
    target = settings.target or facts
    raw, algorithm = text_of(row.get("raw")) or "", text_of(row.get("algorithm"))
    solution = replace(solution_from_text(text), raw=raw, algorithm=algorithm)
    message = (
        f"{text} in a user find-db of this device takes {duration(best_us)}, the best solution of the system "
        f"find-db, {row['system_solution']}, takes {duration(system_us)}; the two files were measured separately"
    )
    return Finding(
        analyzer=NAME,
        problem=problem,
        message=message if settled else f"{message}. {UNSETTLED}",
        per_call=gain,
        calls=calls,
        in_run=None if calls is None else gain.times(calls),
        evidence=Evidence(
            sureness="measured alone",
            source_id=str(row["user_id"]),
            best=text,
            best_us=best_us,
            origin="find-db",
            measured=str(row["problem"]),
            arch=facts.get("arch"),
            cu_count=facts.get("cu_count"),
            assumes=None if settled else ASSUMES,
            details={"system": row["system_id"]},
        ),
        remedy=Advise("copy these rows into the job's user find-db")
        if can_decide_for(facts, target, "miopen") is not True
        else UseRows(
            Override(
                problem=problem,
                solution=solution,
                target=machine(target),
                time_us=best_us,
                default_us=system_us,
                workspace_bytes=count_of(row.get("workspace_bytes")),
                key_text=text_of(row.get("key_text")),
            )
        ),
        advice="Copy these rows into the user find-db that the job reads (MIOPEN_USER_DB_PATH).",
    )


ANALYZER = Analyzer(
    name=NAME,
    about=(
        "convolution layers whose backward-weight pass (W, wgrad) takes far longer than the forward pass (F) and the "
        "backward-data pass (B, dgrad) of the same layer, in files with measured times and in traces of the job. The "
        "finding also states the times of W in similar layers, if they are known"
    ),
    worth=(
        "estimated as the time of the backward-weight pass minus the time of the slower one of the other two passes. "
        "If a user find-db (results of MIOpen's own search) of the device has a faster solver, the saving is measured"
    ),
    find=find,
)
