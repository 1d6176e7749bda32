"""Tests of the files ``findings.json`` and ``report.md``, which ``logparse recommend`` writes.

Both must have the right content, and ``findings.json`` must fit the JSON schema that logparse ships.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import numpy as np
import pytest

from analyzers.evidence.tables import Settings, Tables
from analyzers.recommend import documents, verb
from analyzers.recommend.documents import document, earlier_files, report
from analyzers.recommend.override_files import TargetFiles
from analyzers.recommend.ranking import Recommendation, recommend
from analyzers.recommend.verdict import verdict
from logparse.ingest import ingest
from logparse.ingest.stated_target import target_from
from logparse.libraries.kinds.format import Emission
from logparse.output import Answer
from logparse.quoting import Shell
from logparse.store import Store
from tests.analyzers.build import tables
from tests.analyzers.example import everything
from tests.analyzers.findings import test_host_bound
from tests.analyzers.recommend.test_confidence import FAST, confirmed
from tests.conftest import ROOT, SAMPLES

SCHEMA: dict[str, Any] = json.loads((files("analyzers.recommend") / "findings.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GIVEN = {
    "everything": everything(),
    "nothing": tables(),
    "confirmed": confirmed(*FAST),
    "a trace": test_host_bound.planted(),
}


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_documents_are_valid_and_plain_json(given: Tables) -> None:
    text = document(
        recommend(given, Settings()),
        Settings(),
        [TargetFiles({"arch": "gfx942"}, [Emission("f", b"", Shell())], ["n"], "x")],
    )
    made = json.loads(text, parse_constant=pytest.fail)
    VALIDATOR.validate(made)


def names(value: object, open_: frozenset[str]) -> Iterator[str]:
    """Yield the names of all fields in a JSON value, also of nested ones.

    The fields in ``open_`` may have any content, so the names in them are left out.
    """
    if isinstance(value, list):
        for x in value:
            yield from names(x, open_)
    if isinstance(value, dict):
        for name, x in value.items():
            yield name
            if name not in open_:
                yield from names(x, open_)


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_every_field_of_findings_json_is_documented(given: Tables) -> None:
    """Every field that ``logparse recommend`` writes to ``findings.json`` is described in docs/findings.md.

    Some fields contain fields with other names in each finding or on each machine. These names are not in the document.
    """
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").partition("## `findings.json`")[2]
    own = frozenset({"evidence", "facts", "environment", "left_out", "versions"})
    made = json.loads(document(recommend(given, Settings()), Settings(), []))
    of_gaps = set(made["gpu_time"]["gaps"]["us"] if made["gpu_time"] and made["gpu_time"]["gaps"] else ())
    assert {x for x in names(made, own) if f"`{x}`" not in text} == of_gaps


def test_numbers_of_numpy_and_numbers_that_are_not_finite_are_plain_json() -> None:
    found = recommend(GIVEN["confirmed"], Settings())
    details = {
        "a": np.int64(2),
        "b": np.float32("nan"),
        "c": (math.inf, np.bool_(True)),
        "d": {1: MappingProxyType({})},
    }
    [one] = found.findings
    odd = replace(one, evidence=replace(one.evidence, details=details))
    made = json.loads(document(replace(found, findings=(odd,)), Settings(), []), parse_constant=pytest.fail)
    shown = made["findings"][0]["evidence"]
    assert [shown[name] for name in details] == [2, None, [None, True], {"1": {}}]


def test_html_in_the_name_of_a_step_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTML in the name of a step does not become HTML in the report.

    The name comes from a trace. In an earlier version, the line about the possible saving contained it unchanged.
    """
    found = recommend(GIVEN["everything"], Settings())
    conclusion = replace(verdict(found), word="optimizer<script>f()</script>", unit="step")
    assert conclusion.gains
    monkeypatch.setattr(documents, "verdict", lambda _: conclusion)
    text = report(found, [])
    assert "Add up what can be done together (" in text
    assert "<script>" not in text


def test_the_schema_notices_what_is_wrong() -> None:
    made: dict[str, Any] = json.loads(document(recommend(GIVEN["confirmed"], Settings()), Settings(), []))
    for change in ({"version": 1}, {"ceiling": {}}, {"left_out": {"x": 0}}, {"findings": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(made | change)
    [finding] = made["findings"]
    for change in ({"confidence": "sure"}, {"pre_us": "12"}, {"p": 1.5}, {"kind": None}):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(made | {"findings": [finding | change]})


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs/findings.md").read_text(encoding="utf-8").partition("## `findings.json`")[2]
    told = set(re.findall(r"`(\w+)`", text))
    properties = SCHEMA["properties"]
    names = {*properties, *properties["findings"]["items"]["properties"], *properties["tests"]["properties"]}
    names |= {*properties["ceiling"]["properties"]}
    assert names <= told


def test_a_tested_finding_states_all_of_it() -> None:
    [finding] = json.loads(document(recommend(GIVEN["confirmed"], Settings()), Settings(), []))["findings"]
    assert (finding["confidence"], finding["interval_from"], finding["action"]) == (
        "measured alone",
        "processes",
        "use hipblaslt:9",
    )
    assert finding["per_call_low_us"] <= finding["per_call_us"] <= finding["per_call_high_us"]
    assert finding["saving_us"] == pytest.approx(10 * finding["per_call_us"])
    assert finding["pre_us"] - finding["post_us"] == pytest.approx(finding["per_call_us"])
    assert finding["evidence"]["versions"]["hipblaslt_version"] == "1201"


def test_the_report() -> None:
    found = recommend(everything(), Settings())
    text = report(
        found, [TargetFiles({"arch": "gfx942"}, [Emission("apply.sh", b"", Shell("source it"))], ["a | b"], "gfx942")]
    )
    first, _, second = text.partition("## Findings")
    titles = [x.title for x in verdict(found).todo]
    assert re.findall(r"^\| (\d) \| ([\w ]+) \|", first, re.MULTILINE) == [("1", titles[0]), ("2", titles[1])]
    rows = [line for line in second.splitlines() if line.startswith("| ")]
    assert len(rows) == len(found.findings) + 1
    assert {line.count(" | ") for line in rows} == {9}
    for word in (
        "ceiling (greatest possible saving):",
        "```sh\nsource it\n```",
        "a \\| b",
    ):
        assert word in text
    nothing = report(recommend(tables(), Settings()), [])
    assert "**no verdict: the run holds no calls" in nothing
    assert "| |" not in nothing


def test_a_log_cannot_break_the_report() -> None:
    found = recommend(everything(), Settings())
    evil = replace(found.findings[0], message="a\n# b | <script>")
    text = report(replace(found, findings=(evil,)), [])
    assert "\n# b" not in text
    assert "a # b \\| &lt;script>" in text


def test_the_samples_through_the_store(store: Store, tmp_path: Path) -> None:
    ingest([str(SAMPLES / "hipblaslt"), str(SAMPLES / "miopen"), str(SAMPLES / "tunableop")], store)
    settings = Settings(target=target_from([str(SAMPLES / "tunableop/tunableop_results0.csv")]))
    written, notes = verb.write(verb.advise(store, settings), settings, tmp_path)
    made = json.loads((tmp_path / "findings.json").read_text(encoding="utf-8"))
    VALIDATOR.validate(made)
    [target] = made["targets"]
    assert {x.path.name for x in written} == {*target["files"], "report.md", "findings.json"}
    assert sorted(notes) == sorted(f"{target['name']}: {note}" for note in target["notes"])
    assert "apply.sh" in target["files"]
    assert all(x["p"] is None for x in made["findings"])
    assert {x.path.name for x in written if x.applied} >= {"hipblaslt_tuning.txt", "tunableop_results0.csv"}


def test_what_an_earlier_recommend_wrote_is_not_applied_unawares(tmp_path: Path) -> None:
    found, settings = recommend(everything(), Settings()), Settings()
    written, _ = verb.write(found, settings, tmp_path)
    [script] = [x.path for x in written if x.path.name == "apply.sh"]
    own = script.with_name("mine.csv")
    own.write_text("kept")
    again, notes = verb.write(found, settings, tmp_path)
    assert ([x.path for x in again], [x for x in notes if ".old" in x]) == ([x.path for x in written], [])
    _, notes = verb.write(found, replace(settings, confirmed_only=True), tmp_path)
    assert not script.exists()
    assert script.with_name("apply.sh.old").exists()
    assert own.read_text() == "kept"
    assert any(note.endswith("renamed to apply.sh.old") for note in notes)
    for damaged in ("", "[]", '{"schema": "logparse-findings", "targets": [{"name": "..", "files": ["../x"]}]}'):
        (tmp_path / "findings.json").write_text(damaged)
        assert earlier_files(tmp_path) == []


@pytest.mark.parametrize("run", ["b", "exp/lr=3", "x" * 300])
def test_each_run_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    """A recommend for another run leaves the files in place that the printed commands of the first run name."""
    monkeypatch.chdir(tmp_path)
    assert verb.choose_folder("a") == Path("overrides")
    verb.write(replace(recommend(everything(), Settings()), run="a"), Settings(), Path("overrides"))
    assert verb.choose_folder("a") == Path("overrides")
    folder = verb.choose_folder(run)
    assert folder.parent == Path()
    assert folder.name.startswith("overrides-")
    verb.write(replace(recommend(everything(), Settings()), run=run), Settings(), folder)
    assert verb.choose_folder(run) == folder
    assert not list(Path("overrides").rglob("*.old"))


def answered(found: Recommendation, store: Store, out: Path | None = None) -> Answer:
    return verb.answer(found, Settings(), out, 1, [], n=None, explain=None, verbose=False, store=store)


def test_a_run_with_nothing_to_do_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """Without anything to apply, search or do, files are written only into a folder that the user names."""
    monkeypatch.chdir(tmp_path)
    nothing, work = (recommend(x, Settings()) for x in (tables(), everything()))
    assert not answered(nothing, store).errors
    assert list(tmp_path.glob("overrides*")) == []
    answered(nothing, store, Path("named"))
    assert Path("named/report.md").exists()
    answered(replace(work, run="a"), store)
    assert Path("overrides/report.md").exists(), "a run with findings has a report"
    other = answered(replace(nothing, run="b"), store)
    assert ([*other.notes()], [x.name for x in tmp_path.glob("overrides*")]) == ([], ["overrides"])
    other = answered(replace(work, run="b"), store)
    assert [*other.notes()] == ["the files are in overrides-b, because overrides has the files of another run"]
    answered(replace(nothing, run="a"), store)
    assert not list(Path("overrides").rglob("apply.sh")), "files that are no longer recommended are set aside"
