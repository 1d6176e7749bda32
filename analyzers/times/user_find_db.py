"""Faster solvers in a user find-db for backward weights that are slow in the system's.

MIOpen reads the user find-db first and does not merge the two (``formats/miopen/find_db.py``), so a record there is an
override of the system's.  The search that ``tune_miopen.sh`` starts writes such a file into a folder of its own: it is
used once its rows stand in the user find-db that the job reads.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analyzers.analyzer import Settings, Tables
from analyzers.times.cells import count_of, text_of
from analyzers.times.joins import timed
from analyzers.times.miopen_tuning import completed
from analyzers.times.origins import EVIDENCE
from analyzers.times.picks import picks
from logparse.model import Evidence, Finding, Override, problem_from_text, solution_from_text
from logparse.target import machine, same_device, serves


def replaced_solvers(
    name: str,
    w: pd.DataFrame,
    tables: Tables,
    settings: Settings,
    facts: Mapping[str, Mapping[str, str]],
    calls: Mapping[str, int],
) -> list[Finding]:
    """One finding per problem that is slow in a system find-db and faster in a user's of the same device.

    ``w`` holds ``passes.backward_weights`` of the sources in question.
    """
    kinds = w["source_id"].map({source: known.get("find_db") for source, known in facts.items()})
    if not (kinds == "user").any():
        return []
    slow, user = w[w["slow"] & (kinds == "system")], w[kinds == "user"]
    columns = ["problem", "source_id", "solution", "best_us"]
    pairs = slow[columns].merge(user[columns], on="problem", suffixes=("_system", "_user"))
    pairs = pairs[pairs["best_us_user"] < (1 - settings.floor_share) * pairs["best_us_system"]]
    pairs = pairs[pairs["solution_user"] != pairs["solution_system"]]
    pairs = pairs.sort_values(["problem", "best_us_user", "source_id_user", "source_id_system"])
    if not len(pairs):
        return []
    picked = picks(tables).groupby("problem")["pick"].agg(set).to_dict()
    raw = _spelled(tables, pairs)
    out: dict[str, Finding] = {}
    for row in pairs.to_dict("records"):
        text, source = str(row["problem"]), str(row["source_id_user"])
        places = facts.get(source, {}), facts.get(str(row["source_id_system"]), {})
        if text in out or not same_device(*places) or row["solution_user"] in picked.get(text, ()):
            continue
        known = {str(key): value for key, value in row.items()} | raw.get((source, text), {})
        out[text] = _finding(name, known, facts[source], settings, calls.get(text), bool(picked.get(text)))
    return completed(list(out.values()), tables, facts)


def settled(
    slow: pd.DataFrame, tables: Tables, settings: Settings, facts: Mapping[str, Mapping[str, str]]
) -> set[tuple[str, str]]:
    """(source, problem) of the slow rows of ``passes.backward_weights`` that the job does not run: its logs pick
    another solver, which somewhere takes no more than ``slow_factor`` times the siblings.

    Somewhere is every file of measurements that is not known to be of another device.
    """
    columns = ["problem", "solution", "source_id", "time_us"]
    ran = picks(tables).rename(columns={"pick": "solution"})[["problem", "solution"]].drop_duplicates()
    if not len(ran):
        return set()
    rows = tables.measurements[[*columns, "origin", "status"]]
    rows = rows[rows["problem"].isin(set(ran["problem"]))]
    times = timed(rows[rows["origin"].isin(EVIDENCE)])
    pairs = slow.merge(ran.merge(times[columns], on=["problem", "solution"]), on="problem", suffixes=("", "_ran"))
    pairs = pairs[pairs["time_us"] <= settings.slow_factor * pairs["sibling_us"]]
    pairs = pairs[pairs["solution"] != pairs["solution_ran"]]
    return {
        (str(source), str(problem))
        for source, other, problem in zip(pairs["source_id"], pairs["source_id_ran"], pairs["problem"], strict=True)
        if same_device(facts.get(str(source), {}), facts.get(str(other), {})) is not False
    }


def _spelled(tables: Tables, pairs: pd.DataFrame) -> dict[tuple[str, str], dict[str, object]]:
    """The user file's own spelling of its fastest solvers: what a writer needs besides the time."""
    rows = tables.measurements
    rows = rows[rows["problem"].isin(set(pairs["problem"])) & rows["source_id"].isin(set(pairs["source_id_user"]))]
    rows = timed(rows).sort_values(["source_id", "problem", "time_us", "solution"])
    rows = rows.drop_duplicates(["source_id", "problem"])
    names = ["raw", "algorithm", "workspace_bytes", "key_text"]
    return {(str(row["source_id"]), str(row["problem"])): {x: row[x] for x in names} for row in rows.to_dict("records")}


def _finding(
    name: str, row: Mapping[str, object], facts: Mapping[str, str], settings: Settings, calls: int | None, logged: bool
) -> Finding:
    problem, text = problem_from_text(str(row["problem"])), str(row["solution_user"])
    best_us, system_us = float(str(row["best_us_user"])), float(str(row["best_us_system"]))
    target = settings.target or facts
    named = solution_from_text(text)
    solution = type(named)(named.library, named.id, text_of(row.get("raw")) or "", text_of(row.get("algorithm")))
    space = row.get("workspace_bytes")
    message = (
        f"a user find-db of this device knows {text} ({best_us / 1e3:.4g} ms), the system's best is "
        f"{row['solution_system']} ({system_us / 1e3:.4g} ms); times of two files, made apart"
    )
    return Finding(
        analyzer=name,
        problem=problem,
        message=message if logged else f"{message}; gained already if the job reads that file, which no log shows",
        per_call_us=system_us - best_us,
        calls=calls,
        saving_us=None if calls is None else (system_us - best_us) * calls,
        evidence=Evidence(
            certainty="measured",
            now_us=system_us,
            source_id=str(row["source_id_user"]),
            best=text,
            best_us=best_us,
            origin="find-db",
            measured=str(row["problem"]),
            arch=facts.get("arch"),
            cu_count=facts.get("cu_count"),
            details={
                "system": row["source_id_system"],
                "pick_us": system_us,
                "criterion": "user find-db",
                "confidence": 0.7 if logged else 0.5,
            },
        ),
        override=None
        if serves(facts, target, "miopen") is not True
        else Override(
            problem=problem,
            solution=solution,
            target=machine(target),
            time_us=best_us,
            default_us=system_us,
            workspace_bytes=count_of(space),
            key_text=text_of(row.get("key_text")),
        ),
        advice="Copy these rows into the user find-db that the job reads (MIOPEN_USER_DB_PATH).",
    )
