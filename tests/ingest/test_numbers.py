"""Tests of logs with impossible numbers, in every format.

Each line is still counted, and every subcommand still answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from logparse.ingest import ingest
from logparse.libraries import FORMATS
from logparse.model import LIMIT, MOST_CALLS, MOST_US
from logparse.store import Store, open_store
from tests.conftest import NIGHTLY, SAMPLES, sized
from tests.damage import NUMBERS, other_numbers, seeds
from tests.libraries.reading import check_conservation
from tests.program import run

GROUPS = [[format.name] for format in FORMATS] if NIGHTLY else [[format.name for format in FORMATS]]
MANY = 12
"""Number of samples of a log format above which ``make test`` saves time.

In each sample of such a format, it tries only a third of the impossible numbers.
"""
IN_RANGE = {
    "calls": f"count is null or count between 0 and {MOST_CALLS}",
    "measurements": " and ".join(
        f"({x} is null or {x} between 0 and {MOST_US})" for x in ("time_us", "min_us", "max_us", "std_us")
    ),
    "kernels": f"calls > 0 and total_us between 0 and calls * {MOST_US}",
    "gemm_problems": " and ".join(f"({x} is null or {x} > 0)" for x in ("m", "n", "k", "batch_count")),
    "conv_problems": " and ".join(f"({x} is null or {x} > 0)" for x in ("n", "c", "h", "w", "k", "groups")),
}
"""For each SQL view, a condition that all of its rows must meet."""


def mutants(names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield copies of sample logs in the named formats in which some numbers are impossible, as (name, content)."""
    random = Random(49)
    done = set()
    for format in names:
        samples = seeds()[format]
        every = sized(3, 1) if len(samples) > MANY else 1
        for place, (name, data) in enumerate(samples):
            if data not in done:  # several formats read a log
                done.add(data)
                for other in [*other_numbers(data, random, sized(1, 6))][place % every :: every]:
                    yield name, other


def answers(store: Store, folder: Path) -> None:
    """Check that the most common subcommands give an answer for this store (Parquet folder).

    A subcommand may say that there is no result (exit code 1), but must not raise an exception.
    """
    for words in (("top",), ("top", "--by", "time"), ("status",), ("recommend", "--out", str(folder / "overrides"))):
        out = run(*words, "--store", store.url)
        assert out.returncode in (0, 1, 3), (words, out.stderr)
        assert "damaged" not in out.stderr, out.stderr
        assert "cannot be read" not in out.stderr, out.stderr


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0] if len(names) == 1 else "all formats")
def test_every_number_may_be_wrong(tmp_path: Path, names: Sequence[str]) -> None:
    store = open_store(tmp_path / "store", create=True)
    for number, (name, data) in enumerate(mutants(names)):
        (tmp_path / "files" / str(number)).mkdir(parents=True)
        (tmp_path / "files" / str(number) / name).write_bytes(data)
    results = ingest([str(tmp_path / "files")], store, run="r")
    assert [x.error for x in results if x.state == "failed"] == []
    check_conservation(store)
    for view, holds in IN_RANGE.items():
        assert not len(wrong := store.query(f"select * from {view} where not ({holds})")), wrong
    answers(store, tmp_path)


@pytest.mark.parametrize("name", ["traces/job.trace.json", "graph/decode.trace.json"])
@pytest.mark.parametrize("member", ["dur", "ts"])
def test_all_times_of_a_trace_may_be_wrong(tmp_path: Path, name: str, member: str) -> None:
    """If all kernels in a trace take no time or an impossible time, every subcommand still answers."""
    # In an earlier version, a division by zero raised an error. To save time, the subcommands run for only two of the
    # impossible times: one with which the kernels are stored, and one with which they are rejected.
    states: dict[bool, Store] = {}
    for number in NUMBERS[:-1] if NIGHTLY else (b"0", b"-2.5", b"9223372036854775808"):
        trace = json.loads((SAMPLES / name).read_bytes())
        for event in trace["traceEvents"]:
            if member in event:
                event[member] = json.loads(number)
        folder = tmp_path / f"{number.decode()}"
        folder.mkdir()
        (folder / "job.trace.json").write_text(json.dumps(trace))
        store = open_store(folder / "store", create=True)
        (result,) = ingest([str(folder / "job.trace.json")], store)
        assert result.state == "new"
        check_conservation(store)
        bad = number != b"0" and (member == "dur" or abs(float(number)) >= LIMIT)
        states[bad] = states.get(bad, store)
        assert bool(result.units["reject"]) == bad
        assert bool(len(store.kernels())) != bad
    assert len(states) == 2
    for store in states.values():
        answers(store, tmp_path)


def test_a_stamp_that_is_decades_off_makes_no_step_of_decades(store: Store, tmp_path: Path) -> None:
    trace = json.loads((SAMPLES / "traces/job.trace.json").read_bytes())
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    kernels[-1]["ts"] += 1e15
    (tmp_path / "job.trace.json").write_text(json.dumps(trace))
    ingest([str(tmp_path / "job.trace.json")], store)
    assert "gpu_window_us" not in set(store.facts()["name"])
    (reason,) = store.rejects()["reason"]
    assert reason == "the first and the last kernel are 1e+15 µs apart by their time stamps, so a time stamp is wrong"
    answers(store, tmp_path)


DEEP = "[" * 100_000
IN_A_HEAD = "[" * 20_000
NESTED = {
    "facts.json": f'{{"arch": "gfx942", "x": {DEEP}}}',
    "job.trace.json": f'{{"schemaVersion": 1, "deviceProperties": {IN_A_HEAD}, "traceEvents": [{{"ph": "X"}}]}}',
    "event.trace.json": f'{{"deviceProperties": [], "traceEvents": [{{"ph": "X", "cat": "cpu_op", "x": {DEEP}}}]}}',
    "tail.trace.json": f'{{"deviceProperties": [], "traceEvents": [{{"ph": "M"}}], "x": {DEEP}}}',
    "units_7.json": f'{{"logparse_units": "step", "kinds": {DEEP}}}',
    "record-1.json": f'{{"logparse_bundle": 1, "facts": {DEEP}}}',
    "autotune_configs.json": f'{{"_metadata": {{"flashinfer_version": "0.6", "x": {DEEP}}}}}',
}


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_deep_nesting_is_a_reject(store: Store, tmp_path: Path, closed: bool) -> None:
    for name, text in NESTED.items():
        (tmp_path / name).write_text(re.sub(r"\[{9,}", lambda x: x[0] + "]" * len(x[0]), text) if closed else text)
    results = ingest([str(tmp_path)], store)
    assert {(Path(x.path).name, x.state) for x in results} == {(name, "new") for name in NESTED}
    assert all(x.units["reject"] for x in results), [x.path for x in results if not x.units["reject"]]
    check_conservation(store)
