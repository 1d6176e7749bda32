"""Tests of TunableOp's CSV file of calls that are not tuned yet.

logparse reads the file, and writes a script that tunes these calls.
"""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.tunableop import results, untuned
from logparse.model import DEFAULT, Call, Override, Reject
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import Memory, from_file, head, outcomes, records
from tests.libraries.tunableop.test_signature import keys

SAMPLE = from_file(SAMPLES / "tunableop/tunableop_untuned0.csv")
TARGET = {"pytorch_version": "2.9.1"}


def calls(source: Memory) -> list[Call]:
    return [r for r in records(outcomes(untuned.FORMAT, source)) if isinstance(r, Call)]


def wanted(source: Memory) -> list[Override]:
    return [Override(problem=call.problem, solution=DEFAULT, target=TARGET) for call in calls(source)]


def test_a_line_is_a_call_that_is_not_counted() -> None:
    assert untuned.recognise(head(SAMPLE))
    assert not results.recognise(head(SAMPLE))
    got = calls(SAMPLE)
    assert len(got) == 13
    assert {(c.category, c.count, c.solution) for c in got} == {("untuned", None, None)}
    assert got[10].problem.label == "TN 64×8192×4096 bf16_r"


def test_blas_params_are_read() -> None:
    line = (
        "GemmTunableOp_Half_NN,nn_8_8_8_ld_8_8_8,BLAS_PARAMS: - { function: matmul, beta: 0.0000, compute_type: f32_r }"
    )
    source = Memory(f"{line}\n".encode())
    assert untuned.recognise(head(source))
    assert not results.recognise(head(source))
    assert "beta=zero" in calls(source)[0].problem.text


def test_what_is_no_key_is_a_reject() -> None:
    found = outcomes(untuned.FORMAT, b"GemmTunableOp_Half_NN,nn_8_8_8,Default,0.1\nGemmTunableOp_Half_NN\n\n")
    assert [o.unit for o in found] == ["reject", "reject", "blank"]
    first = found[0].records[0]
    assert isinstance(first, Reject)
    assert (first.offset, first.length) == (31, 11)


def test_written_back_byte_for_byte_with_a_script() -> None:
    file, script = untuned.write(wanted(SAMPLE), TARGET)
    assert (file.name, file.data) == ("tunableop_untuned0.csv", SAMPLE.data)
    assert script.name == "tune_tunableop.py"
    tree = ast.parse(script.data)
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert imported == {"os", "sys", "tempfile", "torch"}


def test_each_key_once_in_the_order_given() -> None:
    pair = wanted(SAMPLE)[:2]
    file, _ = untuned.write([pair[1], pair[0], pair[1]], TARGET)
    assert file.data.splitlines() == SAMPLE.data.splitlines()[1::-1]


def test_the_version_must_be_known_and_able() -> None:
    with pytest.raises(EmissionError, match="--target"):
        untuned.write(wanted(SAMPLE), {})
    with pytest.raises(EmissionError, match=r"2\.6 and later"):
        untuned.write(wanted(SAMPLE), {"pytorch_version": "2.5.1"})


@given(st.lists(keys(), max_size=6, unique=True))
def test_object_to_text_to_object(texts: list[str]) -> None:
    source = Memory("".join(f"{text}\n" for text in texts).encode(), "tunableop_untuned0.csv")
    overrides = [o for o in wanted(source) if untuned.accepts(o)]
    file, _ = untuned.write(overrides, TARGET)
    assert [c.problem for c in calls(Memory(file.data))] == [o.problem for o in overrides]
    assert len(overrides) == len(texts)


@needs_corpus
def test_the_corpus() -> None:
    counts = {}
    for path in [*CORPUS.glob("tunableop/**/*untuned*.csv"), CORPUS / "h200/gpt2_untuned0.csv"]:
        if "aiter" in path.parts:
            continue
        source = from_file(path)
        assert untuned.recognise(head(source)), path
        counts[path.name] = len(calls(source))
    assert counts == {
        "apollo_untuned0.csv": 1, "cuda_untuned0.csv": 22, "cuda_untuned0_blaslog.csv": 22, "gpt2_untuned0.csv": 19,
        "synthetic_scaled_untuned.csv": 3,
    }  # fmt: skip
