"""Tests of finding the matrix products and convolutions that a text on the command line names."""

from __future__ import annotations

from pathlib import Path

import pytest

from logparse.errors import InputError
from logparse.ingest import ingest
from logparse.lookup.problems_in_text import find_by_label
from logparse.store import open_store


def test_sizes_alone_name_a_matrix_product_if_no_other_has_them(tmp_path: Path) -> None:
    table = tmp_path / "job.csv"
    rows = ("T,N,4096,512,1024", "N,N,64,512,1024", "N,T,64,512,1024")
    text = "".join(f"{row},1,bf16_r,torch,Default,61.2\n" for row in rows)
    table.write_text(f"trans_a,trans_b,m,n,k,batch_count,a_type,library,solution,time_us\n{text}")
    store = open_store(str(tmp_path / "store"), create=True)
    ingest([str(table)], store, run="r")
    for name in ("4096x512x1024", "4096×512×1024 bf16_r", "TN 4096x512x1024"):
        assert [x.label for x in find_by_label(store, name)] == ["TN 4096×512×1024 bf16_r"]
    assert find_by_label(store, "4096x512x102") == []
    several = "64×512×1024: give one of these names: NN 64×512×1024 bf16_r, NT 64×512×1024 bf16_r"
    with pytest.raises(InputError, match=f"^{several}$"):
        find_by_label(store, "64x512x1024")
