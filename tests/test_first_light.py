"""Test of logparse's main use from end to end on real log files.

The expected figures were counted by other means than logparse.
"""

from __future__ import annotations

from pathlib import Path

from analyzers.evidence.tables import Settings
from analyzers.recommend.verb import advise, write
from logparse.ingest import ingest
from logparse.ingest.stated_target import target_from
from logparse.store import Store
from tests.conftest import CORPUS, needs_corpus


@needs_corpus
def test_mi300x_find_db(store: Store, tmp_path: Path) -> None:
    ingest([str(CORPUS / "miopen" / "gfx942130.HIP.fdb.txt.bz2")], store)
    directions = store.query("select direction, count(*) as n from conv_problems group by all").set_index("direction")[
        "n"
    ]
    assert directions.to_dict() == {"F": 3391, "B": 3072, "W": 3137}
    found = advise(store, Settings())
    (totals,) = [x.message for x in found.remarks if x.analyzer == "slow-wrw"]
    assert "299 of 3,137" in totals
    assert "one call of each takes 582 ms in all, ≈ 520 ms more than the slower of F and B" in totals
    assert sum(x.analyzer == "slow-wrw" and "the best known solver of W" in x.message for x in found.findings) >= 299
    written, _ = write(found, Settings(), tmp_path / "overrides")
    assert {"tune_miopen.sh", "report.md", "findings.json"} <= {file.path.name for file in written}


@needs_corpus
def test_a_log_an_untuned_file_and_a_trace_of_one_training_hold_the_same_problems(store: Store) -> None:
    names = ("cublaslt_mask31_588.log.gz", "gpt2_untuned0.csv", "gpt2.trace.json.gz")
    ingest([str(CORPUS / "h200" / name) for name in names], store)
    calls = store.query(
        "select path, count(distinct problem) as problems, sum(count) as calls"
        " from calls join sources using (source_id) group by path"
    )
    calls["path"] = [Path(path).name for path in calls["path"]]
    rows = calls.set_index("path")
    assert rows["problems"].to_dict() == dict.fromkeys(names, 19)
    assert (rows.loc[names[0], "calls"], rows.loc[names[2], "calls"]) == (375, 150)
    fields = "trans_a, trans_b, m, n, k, batch_count, a_type, lda, ldb, coalesce(ldc, ldd)"
    rows_of = store.query(
        f"select distinct path, {fields} from calls join gemm_problems using (problem) join sources using (source_id)"
    )
    keys = {
        Path(path).name: set(map(tuple, part.drop(columns="path").to_numpy())) for path, part in rows_of.groupby("path")
    }
    assert len(keys[names[0]]) == 19
    assert keys[names[0]] == keys[names[1]] == keys[names[2]]
    linked = store.query(
        "select count(distinct l.problem) as n from links l join calls a on a.problem = l.problem"
        " join calls b on b.problem = l.other where a.category = 'trace' and b.category = 'profiler'"
    )
    assert linked["n"][0] == 19


@needs_corpus
def test_a_tunableop_csv_is_its_own_target(store: Store, tmp_path: Path) -> None:
    path = CORPUS / "tunableop" / "timlawrenz_results0_v1.csv"
    facts = target_from([str(path)])
    assert facts["validator:GCN_ARCH_NAME"] == "gfx1151"
    ingest([str(path)], store)
    found = advise(store, Settings(target=facts))
    assert not found.overrides, "a results file holds winners only: nothing in it is known to be better than its pick"
