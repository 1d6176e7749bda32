"""Run a job with override files, log it as a new run, and verify that the files took effect (``run --verify``).

An example is ``logparse run --with overrides --verify before -- python train.py``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.compare import verify
from logparse.capture import applied as marks
from logparse.capture import with_overrides
from logparse.capture.plan import Trace, plan
from logparse.capture.run import Say, capture
from logparse.errors import InputError
from logparse.output import Answer
from logparse.store import new_label

if TYPE_CHECKING:
    from logparse.store import Store

_TRACED = "select 1 from kernels limit 1"


def run_and_verify(command: Sequence[str], overrides: Path, before: str, store: Store, say: Say) -> Answer:
    """Run the user's job with the files in the folder ``overrides``, and compare it with the run ``before``.

    The new run is stored as ``after``, ``after2``, and so on. It is traced if ``before`` was traced. Then the times of
    both runs are compared, too.

    The exit code is the job's. If the job succeeded, it is ``NOT_APPLIED`` (125) if a file was not applied, or else
    that of ``verify``.

    Raises StoreError if there is no run ``before``. Raises InputError if the folder holds no override files. Both are
    raised before the job starts.
    """
    before = store.latest_run(before)
    if not marks.files_of(overrides):
        raise InputError(
            f"--verify: {overrides} holds no override file that an apply.sh applies; `logparse verify --action` checks "
            "a setting or a change of the program"
        )
    traced = bool(len(store.query(_TRACED, before)))
    after = new_label("after", store.runs())
    say(f"the job's libraries write logs, which makes it slower; they are stored as run {after}")
    words, environ = with_overrides.applied(command, overrides, os.environ)
    # TunableOp reads no tuned rows while it records untuned keys (PyTorch 2.10 and later).
    how = plan(words, leave_out=["tunableop"], trace=Trace() if traced else None, environ=environ)
    asked = marks.asked_of(overrides)
    code, _ = capture(words, how, lambda: store, say, run=after, environ=environ, asked=asked)
    if code:
        return Answer([f"not verified, because the job ended with exit code {code}"], code=code, aside=True)
    found = marks.read_marks(how.folder / marks.FOLDER)
    missing = marks.missing(asked, found, command)
    lines = [*([f"applied {found}"] if found else []), *found.notes, *missing]
    if after not in store.runs():
        return Answer([*lines, "not verified, because the job wrote no logs"], code=marks.NOT_APPLIED, aside=True)
    # A label alone could also be the name of a folder with a store.
    first, second = (f"{store.url}#{label}" for label in (before, after))
    proof = verify.answer(verify.verify_at(first, second, [str(overrides)], store.url))
    return replace(proof, text=[*lines, *proof.blocks], code=marks.NOT_APPLIED if missing else proof.code, aside=True)
