"""Tests that logparse finds a library's modules without a list of names, for example modules that read its logs."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from logparse import cli
from logparse.libraries.all_backends import BACKENDS
from logparse.libraries.builds import BUILDS, facts_of_build, ids_are_names, same_build
from logparse.libraries.found import find_modules_called, find_modules_with, import_values
from logparse.model import FACTS
from logparse.target import machine


def test_a_new_room_is_found_by_a_line_of_its_module(tmp_path: Path) -> None:
    for name, text in {
        "new/__init__.py": '"""A room."""\n\nBUILD = Build("new", facts=("new_version",))\n',
        "new/table.py": "FORMAT: TableFormat = TableFormat()\n",
        "new/other.py": "FORMATS_OF_OTHERS = 1\nif True:\n    FORMAT = 1\n",
        "no_room/table.py": "FORMAT = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(find_modules_with("FORMAT", "FORMATS", folder=tmp_path)) == ["logparse.libraries.new.table"]
    assert list(find_modules_with("BUILD", folder=tmp_path)) == ["logparse.libraries.new"]


def test_modules_are_found_by_the_last_word_of_their_name(tmp_path: Path) -> None:
    """logparse finds some modules by their file names alone: ``table_rules.py`` is found, ``rules_old.py`` is not."""
    # So no file has to be opened, which saves time at each start of logparse recommend. A module whose name ends with
    # "rules" describes a format of files in which users choose kernels.
    (tmp_path / "new").mkdir()
    for name in ("rules.py", "table_rules.py", "myrules.py", "rules_old.py", "rules.txt"):
        (tmp_path / "new" / name).write_text("")
    (tmp_path / "rules.py").write_text("")
    room = "logparse.libraries.new"
    assert list(find_modules_called("rules", folder=tmp_path)) == [
        (room, f"{room}.rules"),
        (room, f"{room}.table_rules"),
    ]


def test_one_backend_is_the_default_of_replay() -> None:
    assert [backend.name for backend in BACKENDS if backend.default] == [BACKENDS[0].name]
    assert inspect.signature(cli.replay).parameters["backend"].default == BACKENDS[0].name


def test_each_library_that_replay_measures_states_how_its_builds_are_told_apart() -> None:
    assert {backend.name for backend in BACKENDS} <= set(BUILDS)
    assert len(list(import_values("BUILD"))) == len(BUILDS)
    assert all(build.facts for build in BUILDS.values())


def test_facts_of_builds_are_known_facts() -> None:
    """Every fact that identifies a library build, such as ``cudnn_version``, is in the list ``FACTS``."""
    # Facts that are missing in the list are refused by the option --target and dropped from what is known of a machine.
    # In an earlier version cudnn_version was missing, so no build of cuDNN could be stated.
    facts = {name: "1" for build in BUILDS.values() for name in build.facts}
    assert facts.keys() <= FACTS.keys()
    assert machine(facts) == facts


@pytest.mark.parametrize(("library", "by_name"), [("miopen", True), ("hipblaslt", False), ("nosuch", False)])
def test_ids_are_names_if_the_library_says_so(library: str, by_name: bool) -> None:
    assert ids_are_names(library) is by_name


def test_a_library_without_a_room_has_no_build() -> None:
    assert facts_of_build("nosuch") == ()
    assert same_build({"nosuch_version": "1"}, {"nosuch_version": "1"}, "nosuch") is None
