"""Tests of reading logs and stores (Parquet folders) by URL, with a local S3 server and all forms of URLs.

The tests also check writes that must not replace an existing file.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logparse import location
from logparse.errors import InputError, StoreError
from logparse.ingest import Ingested, ingest
from logparse.ingest.input_file import InputFile, find_inputs
from logparse.location import join_url, put_if_absent, replace_file, resolve, split_url
from logparse.sql import query
from logparse.store import Store, open_store
from tests.ingest.test_ingest import bench, counts
from tests.libraries.reading import check_conservation

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a local S3 server for the tests of this module, and return its address (``host:port``)."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"):
            patch.delenv(name, raising=False)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        yield f"{host}:{port}"
        server.stop()


@pytest.fixture
def s3(address: str) -> Iterator[Any]:
    """Return a client of the local S3 server. The server has an empty bucket named ``logs``."""
    client = boto3.client("s3", endpoint_url=f"http://{address}")
    client.create_bucket(Bucket="logs")
    yield client
    for found in client.list_objects_v2(Bucket="logs").get("Contents", []):
        client.delete_object(Bucket="logs", Key=found["Key"])
    client.delete_bucket(Bucket="logs")
    client.close()


@pytest.fixture
def options(address: str) -> str:
    return f"?endpoint_override={address}&scheme=http"


def keys(client: Any) -> list[str]:
    return [found["Key"] for found in client.list_objects_v2(Bucket="logs").get("Contents", [])]


def states(results: list[Ingested]) -> list[str]:
    return [result.state for result in results]


# ------------------------------------------------------------------------------------------------------------ inputs


def test_a_glob_of_a_bucket_with_the_endpoint_in_the_url(s3: Any, options: str, store: Store) -> None:
    s3.put_object(Bucket="logs", Key="job/rank0/hipblaslt_11.log", Body=bench(64, 64).encode())
    s3.put_object(Bucket="logs", Key="job/rank1/deep/hipblaslt_12.log.gz", Body=gzip.compress(bench(32).encode()))
    s3.put_object(Bucket="logs", Key="job/rank1/notes.txt", Body=b"nothing")
    results = ingest([f"s3://logs/job/**/hipblaslt_*.log*{options}"], store)
    assert states(results) == ["new", "new"]
    assert counts(store) == {64: 2, 32: 1}
    assert sorted(store.sources()["pid"]) == [11, 12], "the options behind the name are no part of the name"
    check_conservation(store)
    again = ingest([f"s3://logs/job/{options}"], store)
    assert {InputFile(r.path).name: r.state for r in again} == {
        "hipblaslt_11.log": "unchanged",
        "hipblaslt_12.log": "unchanged",
        "notes.txt": "new",
    }


def test_the_endpoint_may_stand_in_the_environment(
    s3: Any, address: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
    s3.put_object(Bucket="logs", Key="run.log", Body=bench(64).encode())
    assert [r.path for r in ingest(["s3://logs/run.log"], store)] == ["s3://logs/run.log"]
    assert counts(store) == {64: 1}


def test_a_log_that_grew_in_a_bucket_is_read_from_where_it_grew(s3: Any, options: str, store: Store) -> None:
    url = f"s3://logs/run.log{options}"
    s3.put_object(Bucket="logs", Key="run.log", Body=bench(64).encode())
    ingest([url], store)
    s3.put_object(Bucket="logs", Key="run.log", Body=bench(64, 32).encode())
    grown = ingest([url], store)
    assert (states(grown), grown[0].lines) == (["grown"], 1)
    assert states(ingest([url], store)) == ["unchanged"]
    assert counts(store) == {64: 1, 32: 1}


def test_a_folder_of_a_bucket_is_read_without_stores_and_hidden_files(s3: Any, options: str) -> None:
    stored = ("a/store/logparse-store.json", "a/store/calls/1-1.parquet", "a/store2/x.log")
    for key in ("a/run.log", "a/.hidden", "a/x.ufdb.txt.time", "a/miopen-lockfiles/x.lock", *stored):
        s3.put_object(Bucket="logs", Key=key, Body=b"x")
    files, missing, *_ = find_inputs([f"s3://logs/a{options}", f"s3://logs/a/{options}"])
    assert files == {f"s3://logs/a/run.log{options}": 1, f"s3://logs/a/store2/x.log{options}": 1}
    assert not missing


def test_a_listing_gives_sizes(s3: Any, options: str, tmp_path: Path) -> None:
    for number in (1, 2):
        s3.put_object(Bucket="logs", Key=f"sized/{number}.log", Body=b"x" * number)
    (tmp_path / "three.log").write_bytes(b"xxx")
    files, *_ = find_inputs([f"s3://logs/sized/*.log{options}", str(tmp_path), "-"])
    assert list(files.values()) == [1, 2, 3, 0]


def test_odd_keys_are_found_and_read(s3: Any, options: str, store: Store) -> None:
    odd = ["with space.log", "100%.log", "a?b.log", "a#b.log", "täst.log", "k=v/a+b.log"]
    for key in odd:
        s3.put_object(Bucket="logs", Key=f"odd/{key}", Body=bench(64).encode())
    files, *_ = find_inputs([f"s3://logs/odd/**/*.log{options}"])
    assert {InputFile(file).name for file in files} == {key.rsplit("/", 1)[-1] for key in odd}
    assert states(ingest(files, store)) == ["new"] * len(odd)


GLOBS = {
    "*.log": ["a1.log", "a2.log", "b1.log"],
    "a?.log": ["a1.log", "a2.log"],
    "[!a]1.log": ["b1.log"],
    "[a-b]1.log": ["a1.log", "b1.log"],
    "**/c.log": ["deep/er/c.log"],
    "*/c.log": [],
}


def test_globs_mean_what_they_mean_on_a_disk(s3: Any, options: str, tmp_path: Path) -> None:
    for name in ("a1.log", "a2.log", "b1.log", "deep/er/c.log"):
        s3.put_object(Bucket="logs", Key=f"g/{name}", Body=b"x")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    for pattern, found in GLOBS.items():
        there, *_ = find_inputs([f"s3://logs/g/{pattern}{options}"])
        here, *_ = find_inputs([f"{tmp_path}/{pattern}"])
        assert [split_url(url)[1].removeprefix("/g/") for url in there] == found
        assert [os.path.relpath(path, tmp_path) for path in here] == found


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://logs/nothing*.log{}", "no file matches this name"),
        ("s3://no-such-bucket/x.log{}", "no-such-bucket"),
        ("s3://logs/x.log{}&colour=red", "colour"),
        ("ftp://logs/x.log", "ftp"),
        ("s3://key:secret@logs/x.log{}", "password"),
    ],
)
def test_a_url_that_gives_nothing_leaves_the_others_alone(
    s3: Any, options: str, store: Store, tmp_path: Path, url: str, expected: str
) -> None:
    (tmp_path / "good.log").write_text(bench(64))
    bad, good = ingest([url.format(options), str(tmp_path / "good.log")], store)
    assert (bad.state, good.state) == ("failed", "new")
    assert expected in bad.error
    assert "secret" not in bad.error


def test_file_urls_are_local_paths(tmp_path: Path) -> None:
    log = tmp_path / "with space_7.log"
    log.write_text(bench(64))
    files, *_ = find_inputs([f"file://{tmp_path}/*.log", f"file://{tmp_path}/with%20space_7.log", str(tmp_path)])
    assert files == {str(log): log.stat().st_size}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.sampled_from(["", "?region=eu-1&scheme=http"]))
def test_urls_split_and_join(path: str, query: str) -> None:
    assert split_url(join_url("s3://bucket", "/" + path, query)) == ("s3://bucket", "/" + path, query)


# ------------------------------------------------------------------------------------------------------------ store


@pytest.fixture
def remote(s3: Any, options: str) -> Store:
    return open_store(f"s3://logs/team/store{options}", create=True)


def test_a_store_in_a_bucket_is_a_store(remote: Store, tmp_path: Path, s3: Any) -> None:
    (tmp_path / "run_1.log").write_text(bench(64, 32, 64))
    assert states(ingest([str(tmp_path / "run_1.log")], remote, run="one")) == ["new"]
    again = open_store(remote.url)
    assert counts(again) == {64: 2, 32: 1}
    assert query(remote.url, "select sum(count) as n from calls").to_pylist() == [{"n": 3}]
    with (tmp_path / "run_1.log").open("a") as sink:
        sink.write(bench(16))
    assert states(ingest([str(tmp_path / "run_1.log")], remote)) == ["grown"]
    check_conservation(again)
    remote.write_findings(remote.findings())
    assert remote.findings().empty
    left = [key for key in keys(s3) if key.endswith((".part", "/"))]
    assert left == [], "no half-written files"
    assert remote.forget("one") == [str(tmp_path / "run_1.log")]
    assert again.sources().empty
    assert not [key for key in keys(s3) if key.endswith(".parquet") and "/findings/" not in key]


def test_logs_of_a_bucket_into_a_store_of_the_bucket_by_several_workers(
    remote: Store, s3: Any, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logparse.executors.local._WORTH", 0)
    for number in range(3):
        s3.put_object(Bucket="logs", Key=f"team/{number}.log", Body=bench(number + 1).encode())
    results = ingest([f"s3://logs/team{options}"], remote, jobs=2)
    assert states(results) == ["new"] * 3
    assert counts(remote) == {1: 1, 2: 1, 3: 1}


def test_one_of_many_writers_creates_an_object(s3: Any, options: str) -> None:
    url = f"s3://logs/x{options}"
    together = threading.Barrier(8)

    def write(number: int) -> bool:
        put = put_if_absent(url, resolve(url)[0])
        together.wait()
        return put("logs/x/row", b"%d" % number)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(write, range(8)))
    assert made.count(True) == 1
    assert s3.get_object(Bucket="logs", Key="x/row")["Body"].read() == b"%d" % made.index(True)


def test_without_boto3_a_look_comes_before_the_write(
    s3: Any, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    store = open_store(f"s3://logs/s{options}", create=True)
    (tmp_path / "run.log").write_text(bench(64))
    for _ in range(2):
        ingest([str(tmp_path / "run.log")], store)
    assert counts(store) == {64: 1}
    put = put_if_absent(store.url, resolve(store.url)[0])
    assert [put("logs/row", b"a"), put("logs/row", b"b")] == [True, False]
    assert s3.get_object(Bucket="logs", Key="row")["Body"].read() == b"a"
    assert not [key for key in keys(s3) if key.endswith(".part")]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://no-such-bucket/store{}", "no-such-bucket"),
        ("s3://logs/store?endpoint_override=127.0.0.1:1&scheme=http", "127.0.0.1:1"),
        ("s3://logs/empty{}", "ingest a log first"),
    ],
)
def test_a_store_out_of_reach_is_reported(s3: Any, options: str, url: str, expected: str) -> None:
    with pytest.raises(StoreError, match=expected):
        open_store(url.format(options), create="empty" not in url)


def test_a_damaged_store_file_is_reported(s3: Any, remote: Store) -> None:
    for damaged in (b"", b"[]", b"{}", b"\xff\xfe"):
        s3.put_object(Bucket="logs", Key="team/store/logparse-store.json", Body=damaged)
        with pytest.raises(StoreError, match="damaged"):
            open_store(remote.url)


# ------------------------------------------------------------------- services that are not here: gs:// and hdfs://


@pytest.mark.parametrize(
    ("url", "type_name", "inner"),
    [
        ("gs://bucket/a/b.log", "gcs", "bucket/a/b.log"),
        ("gs://anonymous@bucket/a/", "gcs", "bucket/a"),
        ("gs://bucket/with%20space.log?retry_limit_seconds=3", "gcs", "bucket/with space.log"),
        ("gs://bucket/a?endpoint_override=127.0.0.1:1&scheme=http", "gcs", "bucket/a"),
    ],
)
def test_a_url_of_google_storage_is_understood(url: str, type_name: str, inner: str) -> None:
    filesystem, path = resolve(url)
    assert (filesystem.type_name, path) == (type_name, inner)
    assert InputFile(url).name == inner.rsplit("/", 1)[-1]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("gs://anonymous@bucket/a.log?endpoint_override=127.0.0.1:1&scheme=http&retry_limit_seconds=1", "onnect"),
        ("gs://user:secret@bucket/a", "password"),
        ("gs://bucket/a?no_such_option=1", "no_such_option"),
        ("hdfs://user:secret@namenode:8020/logs", "password"),
        ("hdfs://namenode:port/logs", "port"),
    ],
)
def test_what_cannot_be_reached_is_reported_by_its_whole_url(url: str, expected: str, store: Store) -> None:
    (result,) = ingest([url], store)
    assert (result.path, result.state) == (url, "failed")
    assert expected in result.error
    assert "\n" not in result.error
    assert "secret" not in result.error


def test_hdfs_names_what_is_missing() -> None:
    if os.environ.get("JAVA_HOME") or os.environ.get("HADOOP_HOME"):
        pytest.skip("this machine has Java")
    with pytest.raises(InputError, match=r"^hdfs://namenode:8020/logs: Unable to load lib(jvm|hdfs)"):
        resolve("hdfs://namenode:8020/logs")


@pytest.mark.parametrize(
    ("url", "seconds"),
    [("gs://b/a", 30), ("gs://b/a?scheme=http", 30), ("gs://b/a?retry_limit_seconds=7", 7)],
)
def test_google_storage_is_tried_for_half_a_minute_where_the_url_sets_no_time(url: str, seconds: int) -> None:
    _, (options,) = resolve(url)[0].__reduce__()  # pyarrow shows its options nowhere else
    assert options["retry_time_limit"].total_seconds() == seconds


# ------------------------------------------------------------------------------------------------------------- disks


def test_a_disk_without_hard_links_gets_whole_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(location.os, "link", refuse)
    put = put_if_absent(str(tmp_path), pafs.LocalFileSystem())
    assert [put(f"{tmp_path}/row", b"a"), put(f"{tmp_path}/row", b"b")] == [True, False]
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("row", b"a")]


def test_errors_of_a_disk_are_not_taken_for_its_lack_of_links(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        put_if_absent(str(tmp_path), pafs.LocalFileSystem())(f"{tmp_path}/gone/row", b"a")


def test_what_is_no_url() -> None:
    with pytest.raises(InputError, match="not a valid URL"):
        split_url("://x")
    with pytest.raises(
        InputError, match=r"^http://a/b\.log: logparse reads only s3://, gs://, hdfs:// and file:// URLs"
    ):
        resolve("http://a/b.log")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    replace_file(pafs.LocalFileSystem(), f"{tmp_path}/row", b"old")
    with pytest.raises(TypeError):
        replace_file(pafs.LocalFileSystem(), f"{tmp_path}/row", "text")  # type: ignore[arg-type]
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("row", b"old")]
