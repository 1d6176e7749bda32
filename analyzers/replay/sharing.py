"""Share measurements between machines: export them as a bundle of files, and use the bundles of others.

A bundle contains no path, no name of a host, process or user, and not the order of calls
(``logparse.libraries.own.bundle``).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

import pandas as pd

from analyzers.evidence.cells import count_of, number_of
from analyzers.evidence.confirmations import samples_in
from analyzers.evidence.joins import calls_by_problem, facts_by_source
from analyzers.evidence.origins import ACTION, CONFIRM, RACE
from analyzers.evidence.runs import tables_of
from analyzers.replay.results import Result, environment_key
from analyzers.replay.scheduler import History
from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.ingest.input_file import Inputs, find_inputs, name_of
from logparse.libraries.builds import BUILDS
from logparse.libraries.kinds.format import Emission
from logparse.libraries.own import bundle
from logparse.model import Measurement, problem_from_text, solution_from_text
from logparse.quoting import Shell
from logparse.store import Store
from logparse.target import Facts, arch
from logparse.text import pluralize

ONE_IN = 10
"""As a check, one of this many GEMMs and convolutions is measured again although another machine has timed it."""
HELD = 0.03
"""How much slower another machine's best kernel may be here than the best kernel, so that its record is called right.

0.03 means 3 %. The value equals the smallest gain that a confirmation reports.
"""


def take(store: Store, place: str, run: str | None) -> None:
    """Add measurements from other machines to the stored data of a job, so that they need not be repeated here.

    * ``place``: a folder or URL with files that ``logparse export`` wrote on the other machines. Files that were
      already read are skipped.
    * ``run``: the job to which the measurements are added. By default it is the latest.

    Raises InputError if there is no such file, or if one cannot be read.
    """
    inputs = find_inputs([place])
    files = {path: size for path, size in inputs.files.items() if name_of(path).startswith(bundle.RECORD)}
    if not files:
        why = inputs.missing[0][1] if inputs.missing else f"{place}: holds no {bundle.RECORD}….json"
        raise InputError(f"--records: {why}; `logparse export --to bundle` writes such records")
    failed = [x for x in ingest(Inputs(files, [], {}), store, run=store.latest_run(run)) if x.state == "failed"]
    if failed:
        raise InputError(f"--records: {failed[0].path}: {failed[0].error}")


@dataclass(frozen=True)
class Borrowed:
    """GEMMs and convolutions that other machines have already measured, so that this machine can skip most of them.

    * ``settled``: the ones that this machine skips.
    * ``again``: the ones that it measures as a check, each with the fastest kernel of the other machine.

    Both name a GEMM or convolution by a tuple: the hash of the machine and library versions for which the times are
    valid, and the text of the GEMM or convolution.
    """

    settled: Set[tuple[str, str]] = frozenset()
    again: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """GEMMs and convolutions that are measured again as a check, with the best kernel according to the record."""

    def report(self, results: Iterable[Result]) -> list[str]:
        """Tell the user in one line how much the measurements from other machines helped.

        For example, how many GEMMs and convolutions were skipped because of them.
        """
        settled, lost = 0, []
        for result in results:
            pair = environment_key(result.facts), result.problem.text
            settled += result.known and pair in self.settled
            times = {x.solution.text: x.time_us for x in result.rows if x.status == "ok" and x.time_us}
            best = self.again.get(pair, "")
            if best in times and result.best_us:
                lost.append((times[best] or 0.0) / result.best_us - 1)
        line = f"{pluralize(settled, 'problem')} answered by other machines' records"
        if not lost:
            return [line] if self.settled else []
        # Some were measured here nevertheless, as a check. The line also states how often the other machine's fastest
        # kernel is the fastest here, too.
        held = sum(x <= HELD for x in lost)
        return [
            (
                f"{line}; {len(lost)} were measured again, and the recorded best was as fast here in {held}, "
                f"at most {max(lost):.1%} slower"
            )
        ]


def without_checks(known: History, store: Store) -> tuple[History, Borrowed]:
    """Decide which measurements from other machines are used as they are, and which tenth is measured again as a check.

    Returns two things: the known measurements without that tenth, and an object that lists both parts.
    """
    rows = store.query(
        f"""select f.value as environment, m.problem from measurements m join sources s using (source_id)
            join facts f using (source_id) where m.origin = '{RACE}' and f.name = 'environment'
            group by all having bool_and(s.format = '{bundle.FORMAT.name}')"""
    )
    pairs = set(zip(rows["environment"], rows["problem"], strict=True))
    again = {pair for pair in pairs if zlib.crc32(str(pair[1]).encode()) % ONE_IN == 0}
    best = {}
    for environment, problem in again:
        timed = {x: row.time_us for x, row in known.races[environment][problem].items() if row.time_us}
        if timed:
            best[environment, problem] = min(timed, key=lambda x: timed[x])
    races = {
        environment: {problem: rows for problem, rows in held.items() if (environment, problem) not in again}
        for environment, held in known.races.items()
    }
    return replace(known, races=races), Borrowed(pairs - again, best)


def bundled(store: Store, run: str | None = None) -> tuple[list[Emission], list[str]]:
    """Return the files of a bundle for other machines, and lines that describe their content.

    One file has the job's calls. There is one more file per measured or confirmed GEMM or convolution. Raises
    StoreError if the run does not exist.
    """
    calls = calls_by_problem(tables_of(store, run).workload)
    pairs = ((str(text), count_of(count)) for text, count in calls.items())
    known = {x: count for x, count in pairs if count and not x.startswith(_OPERATOR)}
    files = [bundle.dump({}, [], known)] if known else []
    facts, machines = facts_by_source(store.query("select source_id, name, value from facts")), Counter[str]()
    for source, own in store.query(_ROWS).groupby("source_id"):
        of = facts.get(str(source), {})
        files.append(bundle.dump(of, measurements_of(own), {}))
        machines[_machine(of)] += 1
    notes = [f"{pluralize(len(known), 'problem')} with their calls, but without order or time of the calls"]
    notes += [f"{pluralize(count, 'record')} of {machine}" for machine, count in machines.most_common()]
    emitted = [Emission(name, data, Shell(), shared=True) for name, data in files]
    # The notes are printed, so that the user sees what the bundle contains.
    return emitted, [*notes, "the files contain no paths, and no names of hosts, users or processes"]


_OPERATOR = "operator "
"""First word of a text that describes an operator other than a GEMM or convolution.

Such a text may contain the name of the user's own operator, so it is not exported.
"""
_ROWS = f"""
    select m.* from measurements m join sources s using (source_id)
    where s.format = 'replay' and m.origin in ('{RACE}', '{CONFIRM}', '{ACTION}')
        and not starts_with(m.problem, '{_OPERATOR}') order by m.source_id, m.ordinal"""
"""SQL for the measurements that are exported: the user's own replays. Records of other machines are not passed on."""


def _machine(facts: Facts) -> str:
    builds = [f"{name} {facts[name]}" for build in BUILDS.values() for name in build.facts if name in facts]
    device = f"{arch(facts) or 'an unknown device'}, {facts.get('cu_count', '?')} CUs"
    return "; ".join([device, *builds, f"operands {facts.get('replay_cache', 'cold')}"])


def measurements_of(rows: pd.DataFrame) -> list[Measurement]:
    """Convert table rows to measurements that other machines may read. They contain no error messages.

    An error message may name files and processes, which must not leave the machine.
    """
    # A text comes once per solution, or per problem. Parsing it each time took nearly all of the time.
    problems = {text: problem_from_text(text) for text in rows["problem"].unique()}
    solutions = {text: solution_from_text(text) for text in rows["solution"].unique()}
    return [
        Measurement(
            problem=problems[row["problem"]],
            solution=solutions[row["solution"]],
            origin=row["origin"],
            status=row["status"],
            time_us=number_of(row["time_us"]),
            samples_us=samples_in(row.get("samples_us")),
            workspace_bytes=count_of(row.get("workspace_bytes")),
        )
        for row in rows.to_dict("records")
    ]
