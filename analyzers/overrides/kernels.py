"""Tell which calls the kernel in a row of an override file can really run.

The library matches calls and rows by a key. The key does not contain everything about a call:

* hipBLASLt's key has no epilogue (the bias or activation after the product). Each of hipBLASLt's indices is a kernel
  either with or without an auxiliary matrix, so no index runs both kinds of calls.
* The key has no workspace. The library does not use a kernel that needs more workspace than the call provides.

No override file states these facts. They come from two sources: logged calls that ran with the kernel, and a replay's
measurements of the kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from analyzers.evidence.joins import Given, given_workspaces
from analyzers.evidence.tables import Tables
from analyzers.overrides.lint import by_name
from analyzers.overrides.look_up import LookUp
from logparse.libraries.kinds.override_format import OverrideFile, OverrideFormat
from logparse.libraries.kinds.reading import Row
from logparse.model import problem_from_text


@dataclass(frozen=True)
class Kernels:
    """Facts about which calls each kernel can run, collected from logged calls and measurements.

    All fields are empty if the file's format does not distinguish kinds of kernels. A key is the text by which the
    library looks up a call.

    * ``seen``: for each key and kernel, the kinds of calls that ran the kernel (``OverrideFormat.kernels``).
    * ``needs``: for each key and kernel, the largest workspace (bytes) with which the kernel was measured.
    * ``given``: for each operator with its sizes, the workspace that calls provide.
    * ``ran``: pairs of an operator and a kernel that logs name.
    """

    format: OverrideFormat
    seen: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    needs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    given: Mapping[str, Given] = field(default_factory=dict)
    ran: Collection[tuple[str, str]] = ()

    @classmethod
    def of(cls, file: OverrideFile, *runs: Tables) -> Kernels:
        """Collect which kernels in an override file ran, and how much workspace they need.

        * ``file``: the user's list of kernels for a library.
        * ``runs``: the data of several jobs, with their measurements and logs.
        """
        format = by_name(file.format)
        if format.kernels is None:
            return cls(format)
        seen: dict[tuple[str, str], frozenset[str]] = {}
        named = {row.solution.text for row in file.rows if row.solution is not None and row.live}
        facts, rows = file.reading.key_facts, file.reading.by_key
        for text, solution in {pair for tables in runs for pair in _find_kernels_that_ran(tables, named)}:
            problem = problem_from_text(text)
            key, kind = format.key(problem, facts), format.kernels(problem)
            if key is not None and key in rows and kind is not None:
                seen[key, solution] = seen.get((key, solution), frozenset()) | {kind}
        needs: dict[tuple[str, str], int] = {}
        for tables in runs:
            for text, solution, need in _find_needed_workspaces(tables, named):
                key = format.key(problem_from_text(text), facts)
                if key is not None and key in rows:
                    needs[key, solution] = max(need, needs.get((key, solution), 0))
        # How much workspace the calls provide is taken from the last job only.
        last = runs[-1]
        ran = last.calls[last.calls["solution"].isin(named)]
        return cls(format, seen, needs, given_workspaces(last), set(zip(ran["problem"], ran["solution"], strict=True)))

    def judged(self, call: str, answer: LookUp) -> LookUp:
        """Correct the result of a look-up in an override file if the kernel in the row may be unable to run the call.

        The result becomes "miss" if it cannot, and "unknown" if that is unclear.
        """
        found = self.of_kind(call, answer)
        why = self.short_of_workspace(call, found.row)
        if found.row is None or why is None:
            return found
        # The call may provide too little workspace.
        place = f"line {found.row.line}: {why.text}"
        if why.certain:
            return LookUp(found.key, None, "miss", f"{place}, so the library takes its own choice")
        return LookUp(found.key, None, "unknown", place, (found.row.line,))

    def of_kind(self, call: str, answer: LookUp) -> LookUp:
        """Correct the result of a look-up in an override file, if the row's kernel is of the wrong kind for the call.

        For example, a kernel that also writes an auxiliary matrix cannot run a call without this matrix.

        * The result becomes "miss" if the kernel is known to run only other kinds of calls.
        * It becomes "unknown" if the call needs a special kind of kernel, and the kind of this kernel is unknown.

        Workspaces are not compared here.
        """
        row = answer.row
        if self.format.kernels is None or row is None or row.solution is None:
            return answer
        kind = self.format.kernels(problem_from_text(call))
        known = self.seen.get((row.key, row.solution.text), frozenset())
        if kind is None or kind in known or not (known or kind):
            return answer
        place, plain = f"line {row.line}: {row.solution.text}", "plain results"
        if known:
            ran, needed = " and ".join(sorted(x or plain for x in known)), kind or plain
            why = f"{place} has kernels for {ran}, as the calls that ran it show, but this call needs {needed}"
            return LookUp(answer.key, None, "miss", f"{why}, so the library takes its own choice")
        why = f"{place} can be used for the call if its kernels are for {kind}, which no file states"
        return LookUp(answer.key, None, "unknown", why, (row.line,))

    def short_of_workspace(self, call: str, row: Row | None) -> Short | None:
        """Return a warning if a call may not provide enough workspace for the kernel that the user selected for it.

        ``row``: the call's entry in the override file. None if nothing shows a lack of workspace.
        """
        if self.format.kernels is None or row is None or row.solution is None:
            return None
        name, its = row.solution.text, self.given.get(call)
        need, ran = self.needs.get((row.key, name)), (call, name) in self.ran
        if need is None:
            none = its is not None and its.most == 0 and not ran
            return (
                Short(False, f"the call provides no workspace, and whether {name} needs workspace is unknown")
                if none
                else None
            )
        what = f"{name} needs {need:,} bytes of workspace, but"
        if its is not None and its.least < need <= its.most:
            return Short(False, f"{what} some of these calls provide only {its.least:,} bytes")
        if ran or need == 0 or (its is not None and its.least >= need):
            return None
        if its is None:
            workspace = "how much workspace the call provides (set HIPBLASLT_LOG_MASK=2 to log this)"
            return Short(False, f"{what} no log states {workspace}")
        return Short(True, f"{what} the call provides only {its.most:,} bytes")


class Short(NamedTuple):
    """The reason why a call provides, or may provide, too little workspace for a kernel.

    If ``certain`` is False, the workspace may also be large enough.
    """

    certain: bool
    text: str


def _find_kernels_that_ran(tables: Tables, named: set[str]) -> Iterator[tuple[str, str]]:
    """Yield which of the ``named`` kernels ran, and for which operators (with sizes).

    The pairs (operator, kernel) come from measurements and logged calls.
    """
    timed = tables.measurements[tables.measurements["status"] == "ok"]
    for frame in (timed, tables.calls):
        rows: pd.DataFrame = frame[frame["solution"].isin(named)][["problem", "solution"]].drop_duplicates()
        yield from zip(rows["problem"].astype("str"), rows["solution"].astype("str"), strict=True)


def _find_needed_workspaces(tables: Tables, named: set[str]) -> Iterator[tuple[str, str, int]]:
    """Yield how much workspace (bytes) some kernels needed when they were measured.

    ``named`` selects the kernels. The values are tuples: the text of an operator with its sizes, the kernel, and the
    bytes.
    """
    rows = tables.measurements[tables.measurements["solution"].isin(named)]
    rows = rows.loc[rows["workspace_bytes"].notna(), ["problem", "solution", "workspace_bytes"]].drop_duplicates()
    columns = (rows["problem"].astype("str"), rows["solution"].astype("str"), rows["workspace_bytes"].astype("int64"))
    yield from zip(*columns, strict=True)
