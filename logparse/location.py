"""Folders, files and URLs: their file systems, and how a file is created there atomically and to last.

::

    logparse-store                                              a folder of this machine (also file:///…)
    s3://bucket/logs                                            Amazon S3 or a server with the same protocol
    s3://bucket/logs?endpoint_override=minio:9000&scheme=http   that server, named in the URL …
    AWS_ENDPOINT_URL=http://minio:9000 logparse … s3://bucket   … or in the environment
    gs://bucket/logs      hdfs://namenode:8020/logs             through pyarrow.fs, with the options of its URLs
                                                                (gs: retry_limit_seconds, 30 where not given)

Each service's library finds the credentials where it always does: for S3 in ``AWS_ACCESS_KEY_ID`` and
``AWS_SECRET_ACCESS_KEY``, ``~/.aws``, or the instance's role; for GS ``GOOGLE_APPLICATION_CREDENTIALS``; for HDFS
Hadoop's own configuration.  A URL that holds a password is refused: it would be printed, and stored as the path of a
source.  ``region=…`` in an S3 URL, or ``AWS_DEFAULT_REGION``, saves a request that asks for the bucket's region.

Put-if-absent, the commit of a source, is exact on disks with hard links and, with boto3 installed (the extra ``s3``),
on S3 (``If-None-Match: *``).  Elsewhere a check comes before the write.  Two ingests of *one* file into one store at
the same moment may then both report a commit; the later row replaces the earlier one, with all of its parts, so nothing
is counted twice and nothing is lost.

On a disk a file survives a power cut once it and the folders above it are flushed (``flush``); elsewhere it does once
its stream is closed.  Every change of a disk goes through ``os`` here, so that a test can replay the changes and cut
them anywhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, unquote

import pyarrow as pa
import pyarrow.fs as pafs

from logparse.errors import InputError

META = "logparse-store.json"
"""The file that marks a folder as a store."""

PutIfAbsent: TypeAlias = Callable[[str, bytes], bool]
"""Creates a path of one file system with these bytes, atomically; returns False when it exists already."""

OBJECT_STORES = frozenset({"s3", "gcs"})
"""``type_name`` of the file systems that have no folders."""

# A `?` in the path of a URL may also be a wildcard: it begins a query only if options follow.
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<place>[^/?]*)(?P<path>.*?)(?P<query>\?\w+=[^&]*(?:&\w+=[^&]*)*)?\Z", re.DOTALL
)
_GS_SECONDS = 30
"""How long a request to Google's storage is retried; the library's default is a quarter of an hour."""
_UNQUOTED = "/=+:@,~"
_DISK = pafs.LocalFileSystem()
_THERE_ALREADY, _IN_FLIGHT, _NOT_OFFERED = 412, 409, 501
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS})  # FAT, and some network and FUSE file systems
_NO_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})  # of a folder: some of the same
_FLUSHED_TOGETHER = 16  # several that wait for the disk at once share its journal's commits
_FEW = 4  # paths that are flushed one by one: threads take longer to start


def split_url(url: str) -> tuple[str, str, str]:
    """A URL as ``scheme://place``, its path with percent codes resolved, and its query with ``?`` (or empty)."""
    match = _URL.match(url)
    if match is None:
        raise InputError(f"{url!r} is not a URL")
    place, path = f"{match['scheme']}://{match['place']}", match["path"]
    return place, unquote(path), match["query"] or ""


def join_url(place: str, path: str, query: str) -> str:
    """The URL of these parts: the inverse of ``split_url``."""
    return place + quote(path, safe=_UNQUOTED, errors="replace") + query


def absolute(url: str) -> str:
    """The same folder, file or URL as an absolute path, for a process with another working directory."""
    return url if "://" in url else os.path.abspath(url)


def resolve(url: str) -> tuple[pafs.FileSystem, str]:
    """The file system and path of a folder, file or URL.

    Raises InputError for a URL with an unknown scheme, unknown options or a password, where the service's library is
    missing, and for a path that is not UTF-8: pyarrow, DuckDB and tables hold no other.
    """
    place, path, query = split_url(url) if "://" in url else ("file://", url, "")
    if place == "file://":
        full = str(Path(path).absolute())
        try:
            full.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{full}: a path must be UTF-8: rename it, or set PYTHONUTF8=1 in a locale without"
            ) from None
        return pafs.LocalFileSystem(), full
    user, at, _ = place.partition("://")[2].rpartition("@")
    if at and ":" in user:
        raise InputError(f"{place.partition('://')[0]}://…@…: a URL must not hold a password; use the environment")
    if place.startswith(("gs://", "gcs://")) and "retry_limit_seconds=" not in query:
        query += f"{'&' if query else '?'}retry_limit_seconds={_GS_SECONDS}"
    try:
        filesystem, inner = pafs.FileSystem.from_uri(join_url(place, path, query))
    except (pa.ArrowException, OSError) as error:
        why = _first_line(error)
        if why.startswith("Unrecognized filesystem"):
            why = "only s3://, gs://, hdfs:// and file:// are read; fetch it first, or pipe it to `logparse ingest -`"
        raise InputError(f"{url}: {why}") from error
    return filesystem, inner.rstrip("/")


@contextlib.contextmanager
def explained(url: str, what: type[Exception]) -> Iterator[None]:
    """Raises an OSError of the file system (no bucket, no permission, no network) as ``what``, with the URL."""
    try:
        yield
    except OSError as error:
        raise what(f"{url}: {error.strerror or _first_line(error)}") from error


def make_folder(filesystem: pafs.FileSystem, path: str) -> None:
    """Create a folder where the file system has folders (an object store would get an empty object for each)."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        os.makedirs(path, exist_ok=True)
    elif filesystem.type_name not in OBJECT_STORES:
        filesystem.create_dir(path, recursive=True)


def write_file(filesystem: pafs.FileSystem, path: str, data: Any) -> None:
    """Create a file of these bytes (any buffer).  On a disk it lasts from ``flush`` on."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        left = memoryview(data).cast("B")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
    else:
        with filesystem.open_output_stream(path) as sink:
            sink.write(data)


def delete_file(filesystem: pafs.FileSystem, path: str) -> None:
    """Delete a file.  Raises FileNotFoundError where there is none."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        os.unlink(path)
    else:
        filesystem.delete_file(path)


def flush(filesystem: pafs.FileSystem, root: str, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Return once a power cut leaves these files, and what the folders hold, with all names from ``root`` on.

    A file that is gone is passed over.  On other file systems than a disk nothing is left to do.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    known = [*files]
    above = {root, *folders, *map(os.path.dirname, known)}
    for folder in [*above]:
        while len(folder := os.path.dirname(folder)) > len(root):
            above.add(folder)
    for paths in (known, sorted(above)):
        if len(paths) <= _FEW:
            for path in paths:
                _flush(path)
        else:
            with ThreadPoolExecutor(_FLUSHED_TOGETHER) as flushing:
                for _ in flushing.map(_flush, paths):
                    pass


def _flush(path: str) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_FLUSH or not os.path.isdir(path):
            raise
    finally:
        os.close(file)


def put_if_absent(url: str, filesystem: pafs.FileSystem) -> PutIfAbsent:
    """Put-if-absent for the file system that ``url`` names; the module's docstring states where it is exact."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return _link_new
    if filesystem.type_name == "s3":
        with contextlib.suppress(ImportError):
            return _conditional_put(url, filesystem)
    return lambda path, data: _look_then_write(filesystem, path, data)


def replace_file(filesystem: pafs.FileSystem, path: str, data: bytes) -> None:
    """Create or replace ``path``; readers, and a disk after a power cut, see the old bytes or the new ones."""
    if filesystem.type_name in OBJECT_STORES:
        # An object appears when its stream is closed.  All bytes are at hand, so only a request can fail, and then
        # closing fails as well.  (`move` would be a copy and a deletion.)
        with filesystem.open_output_stream(path) as sink:
            sink.write(memoryview(data))
        return
    temporary, local = f"{path}.{os.urandom(4).hex()}.part", isinstance(filesystem, pafs.LocalFileSystem)
    try:
        write_file(filesystem, temporary, data)
        if local:
            _flush(temporary)
            os.replace(temporary, path)
            _flush(os.path.dirname(path))
        else:
            filesystem.move(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            delete_file(filesystem, temporary)
        raise


def _link_new(path: str, data: bytes) -> bool:
    temporary = f"{path}.{os.urandom(4).hex()}.part"
    try:
        write_file(_DISK, temporary, data)
        _flush(temporary)
        os.link(temporary, path)  # atomic, and fails where the name is taken
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            return False
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    return True


def _look_then_write(filesystem: pafs.FileSystem, path: str, data: bytes) -> bool:
    if filesystem.get_file_info(path).is_file:
        return False
    replace_file(filesystem, path, data)
    return True


def _conditional_put(url: str, filesystem: pafs.FileSystem) -> PutIfAbsent:
    """S3's own put-if-absent, which pyarrow does not offer.  Raises ImportError without boto3."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client("s3", **_client_options(url))

    def put(path: str, data: bytes) -> bool:
        bucket, _, key = path.partition("/")
        try:
            client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status == _THERE_ALREADY:
                return False
            if status == _IN_FLIGHT:  # a concurrent writer holds the key: S3 asks to retry
                return put(path, data)
            if status == _NOT_OFFERED:
                return _look_then_write(filesystem, path, data)
            raise OSError(f"s3://{path}: {error}") from error
        except BotoCoreError as error:
            raise OSError(f"s3://{path}: {error}") from error
        return True

    return put


def _client_options(url: str) -> dict[str, Any]:
    """The options of a pyarrow URL under boto3's names; for the others both libraries read the environment."""
    options = {name: values[-1] for name, values in parse_qs(split_url(url)[2].removeprefix("?")).items()}
    out: dict[str, Any] = {}
    if endpoint := options.get("endpoint_override"):
        out["endpoint_url"] = endpoint if "://" in endpoint else f"{options.get('scheme', 'https')}://{endpoint}"
    if region := options.get("region"):
        out["region_name"] = region
    if "endpoint_url" in out and "region_name" not in out and not os.environ.get("AWS_DEFAULT_REGION"):
        out["region_name"] = "us-east-1"  # pyarrow's default for a server that is not Amazon's
    return out


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
