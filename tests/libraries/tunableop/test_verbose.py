"""Tests of reading TunableOp's verbose log: tried kernels, limits, facts about the machine, and incomplete logs."""

from __future__ import annotations

from collections import Counter

import pytest

from logparse.libraries.kinds.format import Outcome
from logparse.libraries.tunableop.verbose import FORMAT
from logparse.model import Call, Fact, Measurement, Message, Record, Reject
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import records, stream

FOLDER = SAMPLES / "tunableop"


def read(data: bytes) -> tuple[list[Outcome], list[Record]]:
    """Read TunableOp's messages in a log. Returns the result of each message, and all data from the log.

    Some data are known only after the last message. They are in the second value alone.
    """
    taken, rest = stream(FORMAT, data)
    ours = [outcome for outcome in taken if outcome is not None]
    return ours, [*records(ours), *rest]


def keep_measurements(found: list[Record]) -> list[Measurement]:
    return [record for record in found if isinstance(record, Measurement)]


def test_every_line_of_the_sample_is_ours() -> None:
    data = (FOLDER / "tunableop_verbose.log").read_bytes()
    taken, rest = stream(FORMAT, data)
    assert None not in taken
    assert not rest
    assert Counter(o.unit for o in taken if o) == {"fact": 10, "call": 20, "message": 64, "measurement": 29}


def test_candidates_of_one_key() -> None:
    _, found = read((FOLDER / "tunableop_verbose.log").read_bytes())
    key = "GemmTunableOp_BFloat16_TN,tn_64_8192_4096_ld_4096_4096_64"
    got = [(m.solution.text, m.status, m.time_us, m.error) for m in keep_measurements(found) if m.key_text == key]
    assert got == [
        ("Default", "ok", pytest.approx(92.4), None),
        ("rocblas:91022", "unsupported", None, "the library cannot run this kernel for this call"),
        ("rocblas:-61", "skipped", None, "a few runs of this kernel were slower than the best kernel so far"),
        ("hipblaslt:90877", "skipped", None, "ten runs of this kernel were slower than the best kernel so far"),
        ("hipblaslt:104377", "ok", pytest.approx(23.6), None),
        ("Default", "ok", pytest.approx(92.964), None),
    ]
    best = next(m for m in keep_measurements(found) if m.solution.text == "hipblaslt:104377")
    assert (best.origin, best.min_us, best.max_us, best.std_us) == (
        "tunableop-verbose", pytest.approx(23.435), pytest.approx(23.883), pytest.approx(0.09676)
    )  # fmt: skip


def test_the_running_side_of_the_validators_is_the_fact() -> None:
    data = (
        b"reading tuning results from x0.csv\nValidator HIPBLASLT_VERSION=100000-old\n"
        b"HIPBLASLT_VERSION validation: expect 100000-old to match 100000-3b3d59eb\nresults validator check failed\n"
    )
    ours, found = read(data)
    assert len(ours) == 4
    assert [m.text for m in found if isinstance(m, Message)] == ["results validator check failed"]
    assert [f for f in found if isinstance(f, Fact)] == [
        Fact("validator:HIPBLASLT_VERSION", "100000-3b3d59eb"),
        Fact("hipblaslt_version", "100000"),
        Fact("hipblaslt_revision", "3b3d59eb"),
        Fact("backend", "HIP"),
    ]


def test_lookups_are_calls() -> None:
    _, found = read((FOLDER / "tunableop_verbose.log").read_bytes())
    calls = Counter(c.problem.label for c in found if isinstance(c, Call))
    assert len(calls) == 5
    assert set(calls.values()) == {4}  # one miss and three hits


def test_the_oldest_form_leaves_slower_candidates_without_a_time() -> None:
    _, found = read((FOLDER / "torch2.3/tunableop_verbose.log").read_bytes())
    assert [(m.solution.text, m.status, m.time_us, m.error) for m in keep_measurements(found)] == [
        ("Default", "ok", pytest.approx(280.746), None),
        ("rocblas:1074", "unsupported", None, "the library cannot run this kernel for this call"),
        (
            "rocblas:1075",
            "no_time",
            None,
            "PyTorch timed this kernel, but the kernel was not faster than the best kernel so far",
        ),
        ("rocblas:1076", "ok", pytest.approx(250.411), None),
    ]


def test_a_cut_log_names_the_candidate_that_was_running() -> None:
    taken, rest = stream(FORMAT, (FOLDER / "damaged/tunableop_verbose_cut.log").read_bytes())
    assert taken[-1] is None  # a line of the runtime is foreign
    message, culprit = rest
    assert isinstance(message, Message)
    assert message.category == "partial"
    assert message.text.endswith("is cut off")
    assert isinstance(culprit, Measurement)
    assert (culprit.solution.text, culprit.status) == ("hipblaslt:104001", "no_time")
    assert culprit.error == "the log ends while PyTorch times this kernel"


def test_level_2_has_the_winner_only() -> None:
    key = "GemmTunableOp_Half_TN(tn_96_100_64_ld_64_64_96)"
    data = f"finding fastest for {key} out of 3 candidates\n└──found fastest for {key} Default\n{key} -> Default,0.5\n"
    _, found = read(data.encode())
    (one,) = keep_measurements(found)
    assert (one.origin, one.solution.text, one.time_us) == ("tunableop-verbose", "Default", 500.0)


def test_loaded_rows_are_those_of_a_results_file() -> None:
    key = "GemmTunableOp_Half_TN(tn_96_100_64_ld_64_64_96)"
    data = f"reading tuning results from x0.csv\nLoading results\n{key} -> Default,inf\n{key} -> Gemm_Rocblas_-9,0.25\n"
    _, found = read(data.encode())
    assert [(m.origin, m.status, m.time_us) for m in keep_measurements(found)] == [
        ("tunableop", "failed", None),
        ("tunableop", "ok", 250.0),
    ]


def test_two_processes_in_one_stream_are_not_mixed_up() -> None:
    first, second = (f"GemmTunableOp_Half_TN(tn_{m}_100_64_ld_64_64_{m})" for m in (96, 97))
    timing = "├──tuning using warmup iters 0 [0 ms] and tuning iters 5 [1 ms] instance id=0, {} Default\n"
    data = (
        f"finding fastest for {first} out of 2 candidates\nfinding fastest for {second} out of 2 candidates\n"
        + timing.format(first)
        + timing.format(second)
        + "├──found better instance id=0. 0.5ms. Default\n"
    )
    ours, _ = read(data.encode())
    (reject,) = ours[-1].records
    assert isinstance(reject, Reject)
    assert "two matrix products" in reject.reason


def test_what_is_known_of_a_candidate_counts_once() -> None:
    for name in ("tunableop_verbose.log", "torch2.3/tunableop_verbose.log", "damaged/tunableop_verbose_cut.log"):
        ours, _ = read((FOLDER / name).read_bytes())
        for outcome in ours:
            assert (outcome.unit == "measurement") is bool(keep_measurements(list(outcome.records)))


def test_a_time_without_a_solution_is_a_reject() -> None:
    ours, _ = read("├──found better instance id=3. 0.5ms. Default\n".encode())
    assert [o.unit for o in ours] == ["reject"]


def test_std_of_one_iteration_is_unknown() -> None:
    key = "GemmTunableOp_Half_TN(tn_96_100_64_ld_64_64_96)"
    data = (
        f"├──tuning using warmup iters 0 [0 ms] and tuning iters 1 [1 ms] instance id=0, {key} Default\n"
        "├──found better instance id=0. 9.2e-05ms. Default min 9.2e-05 max 9.2e-05 mean 9.2e-05 std -nan\n"
    )
    _, found = read(data.encode())
    (one, *_) = keep_measurements(found)
    assert (one.time_us, one.std_us) == (pytest.approx(0.092), None)


def test_lines_of_others_are_left_alone() -> None:
    foreign = (
        b"writing file checkpoint.pt\nLoading results\nValidator A=1\n   0.5 Default\nvalidation: expect 1 to match 2\n"
    )
    taken, rest = stream(FORMAT, foreign)
    assert taken == [None] * 5
    assert not rest


@needs_corpus
def test_the_log_of_a_cuda_build() -> None:
    taken, rest = stream(FORMAT, (CORPUS / "tunableop/real_cuda_2.11/cuda_verbose3.log").read_bytes())
    assert None not in taken
    assert not rest
    found = records([o for o in taken if o])
    assert not [r for r in found if isinstance(r, Reject)]
    times = keep_measurements(found)
    assert Counter(m.status for m in times) == {"ok": 43, "skipped": 1}
    assert len({m.key_text for m in times}) == 22  # each key has both Default entries
    assert sum(isinstance(r, Call) for r in found) == 27
    best: dict[str | None, float] = {}
    for m in times:
        if m.time_us is not None:
            best[m.key_text] = min(m.time_us, best.get(m.key_text, m.time_us))
    csv = (CORPUS / "tunableop/real_cuda_2.11/cuda_results0.csv").read_text().splitlines()[1:]
    assert best == {",".join(x.split(",")[:2]): pytest.approx(float(x.split(",")[3]) * 1000) for x in csv}


@needs_corpus
@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("therock5550_verbose3_excerpt.log", {"ok": 2, "skipped": 3}),
        ("rocmblog_2.3_verbose_excerpt.log", {"ok": 1, "unsupported": 3, "skipped": 1, "no_time": 1}),
    ],
)
def test_excerpts(name: str, statuses: dict[str, int]) -> None:
    data = (CORPUS / "tunableop" / name).read_bytes()
    taken, rest = stream(FORMAT, data)
    foreign = [line for line, outcome in zip(data.splitlines(), taken, strict=False) if outcome is None]
    assert all(line.startswith(b"writing file ") for line in foreign), "which anyone may print"
    assert Counter(m.status for m in keep_measurements([*records([o for o in taken if o]), *rest])) == statuses


def test_drawn_trees_are_not_read_as_tunableop() -> None:
    """Lines of other programs that draw trees or tables are not taken for TunableOp's lines.

    TunableOp's lines begin with the same characters. Such programs are the command ``tree`` and rocprof-compute.
    """
    drawn = "examples\n├── train.py\n│   └── data\n└── README.md\n╞═══╡\n├───┼───┤\n"
    assert read(drawn.encode()) == ([], [])
    tuned = "finding fastest for GemmTunableOp_float_NN(nn_8_8_8) out of 2 candidates\n├──of a version to come\n"
    assert [outcome.unit for outcome in read(tuned.encode())[0]] == ["message", "reject"]
