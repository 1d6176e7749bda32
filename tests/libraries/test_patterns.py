"""Tests that regular expressions are compiled when they are first used, not when the program starts."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re

import pytest

import logparse
from logparse.libraries.kinds.patterns import _Pattern, regex


def test_it_is_the_compiled_pattern_in_all_but_its_class() -> None:
    lazy, compiled = regex(rb"a(?P<n>\d+)", re.IGNORECASE), re.compile(rb"a(?P<n>\d+)", re.IGNORECASE)
    for _ in range(2):  # the second time without compiling
        assert lazy.sub(rb"<\1>", b"A12 b") == compiled.sub(rb"<\1>", b"A12 b") == b"<12> b"
        assert lazy.match(b"xa1", 1) is not None
        assert (lazy.pattern, lazy.flags, lazy.groupindex) == (compiled.pattern, compiled.flags, compiled.groupindex)
    assert pickle.loads(pickle.dumps(lazy)).findall(b"a1 A2") == [b"1", b"2"]


def test_an_error_is_raised_at_the_first_use() -> None:
    broken = regex("(")
    with pytest.raises(re.error, match="unterminated"):
        broken.search("(")


def test_every_pattern_of_the_formats_compiles() -> None:
    names = [x.name for x in pkgutil.walk_packages(logparse.__path__, "logparse.") if ".libraries." in x.name]
    found = [
        value for name in names for value in vars(importlib.import_module(name)).values() if isinstance(value, _Pattern)
    ]
    assert len(found) > 100
    for pattern in found:
        assert isinstance(pattern.flags, int)
