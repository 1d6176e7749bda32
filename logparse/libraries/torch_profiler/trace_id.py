"""Identify a trace by its events, so that a copy is recognised even if its JSON is laid out in another way.

The text of a copy may differ: white space, order of keys, order of events, line ends. The identity is a hash of the
events themselves, in any order:

| trace | hash of |
|---|---|
| with kernels | each kernel's start, duration, device, stream, correlation and name |
| without kernels | each operator's, runtime call's and copy's start, duration and name, and the thread or the device |

The rank in the header is a part of it, so traces of two ranks always differ. Traces of two steps differ, because no two
steps run at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from logparse.libraries.torch_profiler.records import Columns

_Words: TypeAlias = npt.NDArray[np.uint64]
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def trace_id(columns: Columns, header: Mapping[str, Any]) -> str | None:
    """Return the identity of a trace, 32 hexadecimal digits. None if the trace has no event whose times are known."""
    names = np.array([_hash(name) for name in columns.names], dtype=np.uint64)
    hashes = list(_of_kernels(columns, names) if len(columns.kernel_id) else _of_host(columns, names))
    if not sum(map(len, hashes)):
        return None
    distributed = header.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    digest = hashlib.blake2b(repr(rank).encode("utf-8", "backslashreplace"), digest_size=16)
    for each in hashes:
        digest.update(np.sort(each).astype("<u8").tobytes())
    return digest.hexdigest()


def _of_kernels(columns: Columns, names: _Words) -> Iterator[_Words]:
    places = columns.kernel_device, columns.kernel_stream, columns.kernel_correlation
    yield _hash_events(names, columns.kernel_name, columns.kernel_start, columns.kernel_us, *places)


def _of_host(columns: Columns, names: _Words) -> Iterator[_Words]:
    threads = np.array([_hash("\0".join(each)) for each in columns.threads], dtype=np.uint64)
    operators = np.array([names[name] for name, _, _ in columns.kinds], dtype=np.uint64)
    of_thread = (_taken(threads, each) for each in (columns.op_thread, columns.call_thread))
    yield _hash_events(operators, columns.op_kind, columns.op_start, columns.op_us, next(of_thread))
    yield _hash_events(names, columns.call_name, columns.call_start, columns.call_us, next(of_thread))
    yield _hash_events(names, columns.copy_name, columns.copy_start, columns.copy_us, columns.copy_device)


def _hash_events(texts: _Words, index: Sequence[int], *values: Sequence[float] | _Words) -> _Words:
    """Return a hash for each event. ``index`` gives the place of the event's text in ``texts``, as hashes.

    Each value is mixed in by the finalizer of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014).
    """
    out = _taken(texts, index)
    for value in values:
        column = np.array(value)
        out ^= column.view(np.uint64) if column.itemsize == 8 else column.astype(np.int64).view(np.uint64)
        out ^= out >> _SHIFTS[0]
        out *= _MULTIPLIERS[0]
        out ^= out >> _SHIFTS[1]
        out *= _MULTIPLIERS[1]
        out ^= out >> _SHIFTS[2]
    return out


def _taken(hashes: _Words, index: Sequence[int]) -> _Words:
    out: _Words = hashes[np.array(index, dtype=np.int64)] if len(index) else np.zeros(0, dtype=np.uint64)
    return out


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
