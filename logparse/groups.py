"""Sort items into lists by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def in_groups(members: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Sort items into lists by a key.  Return a dictionary from each key to its list.

    Keys and items keep their order.
    """
    out: dict[K, list[T]] = {}
    for x in members:
        out.setdefault(key(x), []).append(x)
    return out
