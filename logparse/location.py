"""Folders, files and URLs: their file systems, and the atomic and durable creation of files. ::

    logparse-store                                              a folder of this machine (also file:///…)
    s3://bucket/logs                                            Amazon S3 or a server with the same protocol
    s3://bucket/logs?endpoint_override=minio:9000&scheme=http   that server, named in the URL …
    AWS_ENDPOINT_URL=http://minio:9000 logparse … s3://bucket   … or in the environment
    gs://bucket/logs      hdfs://namenode:8020/logs             through pyarrow.fs, with the options of its URLs
                                                                (gs: retry_limit_seconds, 30 if not given)

The library of each service finds the credentials where it always does:

* S3: ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, ``~/.aws``, or the instance's role.
* GS: ``GOOGLE_APPLICATION_CREDENTIALS``.
* HDFS: Hadoop's own configuration.

A URL that holds a password is refused, because the URL is printed, and stored as the path of a source.  ``region=…`` in
an S3 URL, or ``AWS_DEFAULT_REGION``, saves a request that asks for the bucket's region.

Put-if-absent creates a file only if none has its name.  Such a creation makes the rows of an input file valid (a
commit).  Put-if-absent is exact on disks with hard links, and on S3 (``If-None-Match: *``) if boto3 is installed (the
extra ``s3``).  Elsewhere a check comes before the write.  So two ingests that put *one* file into one store at the same
moment may both report a commit.  The later row then replaces the earlier row, with all of its parts.  So nothing is
counted twice and nothing is lost.

On a disk a file survives a power cut once the file and the folders above it are flushed (``flush``).  Elsewhere it
survives once its stream is closed.  Every change of a disk goes through ``os`` in this module, so that a test can
repeat the changes and stop after any of them.
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
"""Name of the file that shows that a folder is a store."""

PutIfAbsent: TypeAlias = Callable[[str, bytes], bool]
"""Type of functions that create a file with the given bytes, but only if its path does not exist.

The file is created in one step that cannot be half done.  The function returns False if the path exists already.
"""

OBJECT_STORES = frozenset({"s3", "gcs"})
"""File systems that have no folders, under the names in pyarrow's ``type_name``."""

# A `?` in the path of a URL may be a wildcard.  It begins a query only if options follow.
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<place>[^/?]*)(?P<path>.*?)(?P<query>\?\w+=[^&]*(?:&\w+=[^&]*)*)?\Z", re.DOTALL
)
_GS_SECONDS = 30
"""How long a failed request to Google's storage is repeated, in seconds.

The library's own default is a quarter of an hour.
"""
_UNQUOTED = "/=+:@,~"
_DISK = pafs.LocalFileSystem()
_THERE_ALREADY, _IN_FLIGHT, _NOT_OFFERED = 412, 409, 501
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS})  # errors of FAT, some network and FUSE systems
# Some of the same file systems give these errors if a folder is flushed.
_NO_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
_FLUSHED_TOGETHER = 16  # files that are flushed at the same time share one commit of the file system's journal
_FEW = 4  # Threads flush more paths than this.  Fewer paths are flushed in turn, because starting threads takes longer.


def split_url(url: str) -> tuple[str, str, str]:
    """Split a URL into ``scheme://place``, its path, and its query.

    Percent codes in the path are decoded.  The query begins with ``?`` or is empty.  Raises InputError if the text is
    not a URL.
    """
    match = _URL.match(url)
    if match is None:
        raise InputError(f"{url!r} is not a valid URL")
    place, path = f"{match['scheme']}://{match['place']}", match["path"]
    return place, unquote(path), match["query"] or ""


def join_url(place: str, path: str, query: str) -> str:
    """Join the three texts that ``split_url`` returns into a URL."""
    return place + quote(path, safe=_UNQUOTED, errors="replace") + query


def make_absolute(url: str) -> str:
    """Return an absolute path to the same folder or file, for a process with another working directory.

    A URL is returned unchanged.
    """
    return url if "://" in url else os.path.abspath(url)


def resolve(url: str) -> tuple[pafs.FileSystem, str]:
    """Return the pyarrow file system of a folder, file or URL, and the path within this file system.

    Raises InputError if the URL has an unknown scheme or option or a password, a library is missing, or the path is not
    UTF-8.
    """
    place, path, query = split_url(url) if "://" in url else ("file://", url, "")
    if place == "file://":
        full = str(Path(path).absolute())
        try:
            # Pyarrow, DuckDB and tables hold no paths that are not UTF-8.
            full.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{full}: a path must be UTF-8; rename it, or set PYTHONUTF8=1 if the locale is not UTF-8"
            ) from None
        return pafs.LocalFileSystem(), full
    user, at, _ = place.partition("://")[2].rpartition("@")
    if at and ":" in user:
        raise InputError(
            f"{place.partition('://')[0]}://…@…: a URL must not contain a password; pass it in the environment"
        )
    if place.startswith(("gs://", "gcs://")) and "retry_limit_seconds=" not in query:
        query += f"{'&' if query else '?'}retry_limit_seconds={_GS_SECONDS}"
    try:
        filesystem, inner = pafs.FileSystem.from_uri(join_url(place, path, query))
    except (pa.ArrowException, OSError) as error:
        why = _first_line(error)
        if why.startswith("Unrecognized filesystem"):
            why = (
                "logparse reads only s3://, gs://, hdfs:// and file:// URLs; download the file first, or pipe it "
                "to `logparse ingest -`"
            )
        raise InputError(f"{url}: {why}") from error
    return filesystem, inner.rstrip("/")


@contextlib.contextmanager
def explain_os_errors(url: str, what: type[Exception]) -> Iterator[None]:
    """Context in which an OSError becomes an error of the type ``what``, whose message names the URL.

    For example, a bucket does not exist, a permission is missing, or the network fails.
    """
    try:
        yield
    except OSError as error:
        raise what(f"{url}: {error.strerror or _first_line(error)}") from error


def make_folder(filesystem: pafs.FileSystem, path: str) -> None:
    """Create a folder, unless the file system has no folders.

    An object store such as S3 has no folders.  There the call would create an empty object instead.
    """
    if isinstance(filesystem, pafs.LocalFileSystem):
        os.makedirs(path, exist_ok=True)
    elif filesystem.type_name not in OBJECT_STORES:
        filesystem.create_dir(path, recursive=True)


def write_file(filesystem: pafs.FileSystem, path: str, data: Any) -> None:
    """Create a file with the bytes of ``data`` (any buffer).

    On a disk, the file survives a power cut only after ``flush`` was called.
    """
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
    """Delete a file.  Raises FileNotFoundError if it does not exist."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        os.unlink(path)
    else:
        filesystem.delete_file(path)


def flush(filesystem: pafs.FileSystem, root: str, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Write files and folders from memory to the disk, so that they survive a power cut.

    Every folder between ``root`` and these paths is written, too. Nothing is done if the file system is not a local
    disk.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    known = [*files]
    above = {root, *folders, *map(os.path.dirname, known)}
    for folder in [*above]:
        while len(folder := os.path.dirname(folder)) > len(root):
            above.add(folder)
    for paths in (known, sorted(above)):
        # A file that no longer exists is skipped.
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
    """Return a function that writes a new file to this file system, but never replaces an existing file.

    On some file systems two processes may both create the same file (see the module's docstring).
    """
    if isinstance(filesystem, pafs.LocalFileSystem):
        return _link_new
    if filesystem.type_name == "s3":
        with contextlib.suppress(ImportError):
            return _conditional_put(url, filesystem)
    return lambda path, data: _look_then_write(filesystem, path, data)


def replace_file(filesystem: pafs.FileSystem, path: str, data: bytes) -> None:
    """Create or replace a file in one step.

    Readers see either the old bytes or the new bytes.  After a power cut, too, the disk has either the old or the new
    bytes.
    """
    if filesystem.type_name in OBJECT_STORES:
        # An object appears when its stream is closed.  All its bytes are in memory by then, so only a request can fail,
        # and a request that fails makes closing fail as well.  (`move` would be a copy and a deletion.)
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
        os.link(temporary, path)  # atomic; fails if the name is taken
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
    """Return a function that creates an S3 object, but never replaces an existing one.

    It uses S3's own check, which pyarrow does not offer.  Raises ImportError without boto3.
    """
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
    """Translate the options in a pyarrow URL for S3 into options of boto3.

    All other options are read from the environment, by both libraries.
    """
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
