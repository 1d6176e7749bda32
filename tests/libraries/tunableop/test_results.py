"""Tests of reading and writing PyTorch's TunableOp results (CSV), including damaged files."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import Head
from logparse.libraries.tunableop import results
from logparse.model import DEFAULT, Fact, Measurement, Override, Reject, Solution
from tests.conftest import CORPUS, SAMPLES, needs_corpus
from tests.libraries.reading import Memory, from_file, head, outcomes, records
from tests.libraries.tunableop.test_signature import keys

FOLDER = SAMPLES / "tunableop"
TARGET = {
    "validator:PT_VERSION": "2.9.1",
    "validator:HIP_VERSION": "701",
    "validator:HIPBLASLT_VERSION": "100000-3b3d59eb",
    "validator:GCN_ARCH_NAME": "gfx942:sramecc+:xnack-",
    "validator:ROCBLAS_VERSION": "5.0.0.3b3d59eb",
}


def rows(source: Memory | bytes) -> list[Measurement]:
    return [r for r in records(outcomes(results.FORMAT, source)) if isinstance(r, Measurement)]


def facts(source: Memory | bytes) -> dict[str, str]:
    return {r.name: r.value for r in records(outcomes(results.FORMAT, source)) if isinstance(r, Fact)}


def override(row: Measurement, **change: object) -> Override:
    values = {"problem": row.problem, "solution": row.solution, "target": TARGET, "time_us": row.time_us}
    return Override(**{**values, "key_text": row.key_text, **change})  # type: ignore[arg-type]


def test_versions_before_2_5_and_rocm_version() -> None:
    got = facts(
        b"Validator,PT_VERSION,2.4.0\nValidator,HIPBLASLT_VERSION,0.6.0-592518e7\nValidator,ROCM_VERSION,6.0.0\n"
    )
    assert (got["hipblaslt_version"], got["hipblaslt_revision"], got["rocm_version"]) == ("0.6.0", "592518e7", "6.0.0")


def test_an_empty_revision_is_known_to_be_empty() -> None:
    """If a TunableOp file states an empty library revision, it is stored as empty, not as unknown.

    PyTorch 2.11 writes an empty revision if the library was not built from a git repository, as in Debian's ROCm 7.2.4.
    """
    got = facts(b"Validator,PT_VERSION,2.11.0\nValidator,HIPBLASLT_VERSION,100202-\nValidator,ROCBLAS_VERSION,5.2.0.\n")
    assert (got["hipblaslt_version"], got["hipblaslt_revision"], got["rocblas_version"]) == ("100202", "", "5.2.0.")
    assert got["validator:HIPBLASLT_VERSION"] == "100202-"


def test_an_empty_file_is_recognised_and_has_no_rows() -> None:
    source = from_file(FOLDER / "empty/tunableop_results0.csv")
    assert results.recognise(head(source))
    assert facts(source) == {}
    assert not results.recognise(Head("empty.csv", b""))
    assert not results.recognise(Head("tunableop_untuned0.csv", b""))


def test_a_reject_points_at_its_bytes() -> None:
    source = from_file(FOLDER / "damaged/tunableop_results0.csv")
    got = []
    for outcome in outcomes(results.FORMAT, source):
        for record in outcome.records:
            if isinstance(record, Reject):
                start = outcome.at + record.offset
                got.append(source.data[start : start + record.length].decode())
    assert got == [
        "GemmTunableOp_Half_TN,tn_96_108_64",
        "op",
        "# tuned on node 7",
        "nn_96_112_64_ld_64_64_96",
        "tn_96_116_64_ld_64_64",
    ]


def test_of_validators_the_last_wins() -> None:
    assert facts(b"Validator,PT_VERSION,2.0.0\nValidator,PT_VERSION,2.9.1\n")["pytorch_version"] == "2.9.1"


# ------------------------------------------------------------------------------------------------------- writer


def test_written_bytes() -> None:
    source = from_file(FOLDER / "tunableop_results0.csv")
    (file,) = results.write([override(r) for r in rows(source)], TARGET)
    lines = source.data.decode().splitlines()
    assert file.name == "tunableop_results0.csv"
    assert file.data.decode() == "\n".join([*lines[:5], *sorted(lines[5:])]) + "\n"
    assert "export PYTORCH_TUNABLEOP_FILENAME={folder}/tunableop_results.csv" in file.lines


def test_one_file_per_gpu() -> None:
    row = rows(from_file(FOLDER / "tunableop_results0.csv"))[0]
    files = results.write([override(row)], {**TARGET, "gpus": "3"})
    assert [f.name for f in files] == [f"tunableop_results{i}.csv" for i in range(3)]
    assert len({f.data for f in files}) == 1


def test_a_bad_pick_is_undone_with_default() -> None:
    row = rows(from_file(FOLDER / "tunableop_results0.csv"))[2]
    (file,) = results.write([override(row, solution=DEFAULT, time_us=None)], TARGET)
    assert file.data.endswith(b",Default,0\n")


def test_a_key_is_rewritten_in_the_dialect_of_the_target() -> None:
    row = rows(from_file(FOLDER / "tunableop_results0.csv"))[2]
    old = {"validator:PT_VERSION": "2.4.0", "validator:GCN_ARCH_NAME": "gfx942"}
    (file,) = results.write([override(row)], old)
    assert file.data.decode().splitlines()[-1] == (
        "GemmTunableOp_BFloat16_NT,nt_4096_12288_8192,Gemm_Hipblaslt_NT_91077,1.7416"
    )


def test_of_two_solutions_of_one_key_the_faster_is_written() -> None:
    row = rows(from_file(FOLDER / "tunableop_results0.csv"))[2]
    pair = [override(row, solution=DEFAULT, time_us=9.0), override(row, time_us=8.0)]
    for order in (pair, pair[::-1]):
        (file,) = results.write(order, TARGET)
        assert file.data.decode().count("Gemm") == 2  # one row, with the faster solution
        assert file.data.endswith(b"Gemm_Hipblaslt_91077,0.008\n")
    with pytest.raises(EmissionError, match="not both have a time"):
        results.write([override(row, time_us=None), override(row, solution=DEFAULT, time_us=None)], TARGET)


@pytest.mark.parametrize(
    ("facts_", "reason"),
    [
        ({}, "PT_VERSION is missing.*--target"),
        ({"validator:PT_VERSION": "2.9.1"}, "HIP_VERSION, HIPBLASLT_VERSION, GCN_ARCH_NAME, ROCBLAS_VERSION.*--target"),
        ({k: v for k, v in TARGET.items() if "ROCBLAS" not in k}, "ROCBLAS_VERSION.*--target"),
        ({**TARGET, "validator:HIP_VERSION": "7,1"}, "comma"),
    ],
)
def test_unknown_validators_are_refused(facts_: dict[str, str], reason: str) -> None:
    row = rows(from_file(FOLDER / "tunableop_results0.csv"))[2]
    with pytest.raises(EmissionError, match=reason):
        results.write([override(row)], facts_)


def test_a_cuda_target_has_one_validator() -> None:
    row = rows(from_file(FOLDER / "cuda/tunableop_results0.csv"))[0]
    (file,) = results.write([override(row)], {"validator:PT_VERSION": "2.11.0", "backend": "CUDA"})
    assert file.data.decode().splitlines()[0] == "Validator,PT_VERSION,2.11.0"
    with pytest.raises(EmissionError, match=r"from 2\.14 on"):
        results.write(
            [override(row, solution=Solution("cublaslt", "id=24"))],
            {"validator:PT_VERSION": "2.11.0", "backend": "CUDA"},
        )


def test_a_field_of_the_key_that_is_unknown_is_named() -> None:
    row = rows(from_file(FOLDER / "torch2.5/tunableop_results0.csv"))[0]
    with pytest.raises(EmissionError, match="because its lda, ldb, ldc is unknown"):
        results.write([override(row)], TARGET)


def test_accepts_only_what_the_op_has_candidates_for() -> None:
    plain, *_, bias, _, _, _, complex_, _, _ = rows(from_file(FOLDER / "tunableop_results0.csv"))
    assert results.accepts(override(plain))
    assert not results.accepts(override(bias, solution=Solution("rocblas", "1")))
    assert not results.accepts(override(complex_, solution=Solution("hipblaslt", "1")))
    assert not results.accepts(override(plain, solution=Solution("miopen", "x")))


names = st.one_of(st.just(DEFAULT), st.integers(0, 1 << 31).map(lambda i: Solution("hipblaslt", str(i))))


@given(st.lists(st.tuples(keys(), names, st.floats(1e-5, 1e7)), max_size=8, unique_by=lambda x: x[0]))
def test_object_to_text_to_object(entries: list[tuple[str, Solution, float]]) -> None:
    wanted = []
    for key, solution, time_us in entries:
        row = results.row(f"{key},Default,1", 1)
        assert row is not None
        made = override(results.measurement(row), solution=solution, time_us=time_us)
        if results.accepts(made):
            wanted.append(made)
    (file,) = results.write(wanted, TARGET)
    got = {r.key_text: r for r in rows(file.data)}
    assert got.keys() == {w.key_text for w in wanted}
    for want in wanted:
        assert got[want.key_text].solution == want.solution
        assert got[want.key_text].problem == want.problem
        assert got[want.key_text].time_us == pytest.approx(want.time_us, rel=1e-5, abs=1e-8)
    facts_ = facts(file.data)
    assert {k: v for k, v in facts_.items() if k.startswith("validator:")} == TARGET
    assert results.write(wanted[::-1], TARGET)[0].data == file.data  # sorted, so that a diff is stable


# ------------------------------------------------------------------------------------------------------- corpus


@needs_corpus
def test_every_row_of_the_corpus() -> None:
    statuses: Counter[str] = Counter()
    for path in sorted(CORPUS.glob("tunableop/**/*results*.csv")):
        if "aiter" in path.parts:
            continue
        source = from_file(path)
        assert results.recognise(head(source)), path
        found = outcomes(results.FORMAT, source)
        lines = source.data.decode().splitlines()
        assert not [r for r in records(found) if isinstance(r, Reject)], path
        assert [r.key_text for r in rows(source)] == [
            ",".join(line.split(",")[:2]) for line in lines if not line.startswith("Validator,")
        ]
        got = facts(source)
        for line in lines:
            if line.startswith("Validator,"):
                assert got["validator:" + line.split(",")[1]] == line.split(",")[2]
        assert got.get("backend") == ("CUDA" if "cuda" in str(path) or "dtadpole" in path.name else "HIP") or not lines
        statuses.update(r.status for r in rows(source))
    assert statuses == {"ok": 9703, "skipped": 14, "failed": 1}  # 14: duplicates in one file; 1: a real Default,inf


@needs_corpus
def test_the_corpus_is_written_back_byte_for_byte() -> None:
    for path in sorted(CORPUS.glob("tunableop/*results*.csv")):
        source = from_file(path)
        first = {r.key_text: r for r in rows(source) if r.status in ("ok", "failed")}
        if not first:
            continue
        target = facts(source)
        (file,) = results.write([override(r, target=target) for r in first.values()], target)
        lines = source.data.decode().splitlines()
        kept: dict[str, str] = {}
        for line in lines:
            if not line.startswith("Validator,"):
                kept.setdefault(",".join(line.split(",")[:2]), line.replace(",inf", ",0"))
        written = file.data.decode().splitlines()
        assert set(written[: len(lines)]) >= {line for line in lines if line.startswith("Validator,")}
        assert written[len(written) - len(kept) :] == [kept[key] for key in sorted(kept)], path
