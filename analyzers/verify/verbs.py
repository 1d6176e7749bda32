"""What the verbs coverage and verify do: paths and stores in, results out."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.analyzer import Tables
from analyzers.diff.diff import FAIL_ON
from analyzers.overrides import coverage as _coverage
from analyzers.overrides.coverage import Coverage
from analyzers.overrides.lint import lint
from analyzers.overrides.verbs import Unread, lint_files
from analyzers.times.runs import _existing, read_at, tables_at, tables_to_check
from analyzers.verify import actions as _verify_actions
from analyzers.verify import findings as _settings
from analyzers.verify import verify as _verify
from analyzers.verify.actions import ActionProof
from analyzers.verify.verify import Verification
from logparse.errors import InputError, UsageError
from logparse.store import open_store

# ------------------------------------------------------------------------------------------------------------- checks


def workload(against: str | None, store: str | None, run: str | None) -> Tables:
    """The tables of the run that files are held against: of the word ``against``, else a run of ``store``.

    Raises UsageError where both name a run.
    """
    if against and run:
        raise UsageError("--against names the run, as STORE#RUN; --run is one of --store")
    return read_at(against, store, tables_to_check) if against else tables_to_check(open_store(store), run)


def cover(paths: Sequence[str], against: Tables, target: Sequence[str] = ()) -> tuple[list[Coverage], list[Unread]]:
    """Replay a run's calls against override files; of several, those that are no override files
    are returned beside the others.  Raises InputError.
    """
    files, unread = lint_files(paths, target, against)
    return [_coverage.coverage(file, against) for file in files], unread


def verify(
    before: str,
    after: str,
    files: Sequence[str],
    store: str | None = None,
    fail_on: float = FAIL_ON,
    actions: Sequence[str] = (),
) -> Verification | ActionProof:
    """Compare the run ``after`` with ``before`` for the rows of override files, or, without files, for what the
    findings of ``before`` proposed; promises are those of ``before``'s store's last ``recommend``.  With ``actions``:
    what these did to the whole job.
    """
    a, b = tables_at(before, store), tables_at(after, store)
    if actions:
        return _verify_actions.verify_actions(a, b, actions)
    held = _existing(before.rpartition("#")[0] or before) or _existing(store)
    if not files:
        if held is None:
            raise InputError("without override files, verify needs a store with the findings of the run before")
        return _settings.verify_findings(a, b, held.findings(), fail_on)
    promised = _verify.promises(held.findings()) if held is not None else {}
    return _verify.verify(a, b, [lint(path, None, b) for path in files], promised, fail_on)
