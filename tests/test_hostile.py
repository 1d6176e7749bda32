"""Tests that no text from a log is ever run as code, although it may contain code of a shell, Python or a browser.

logparse has two barriers, which are tested separately:

* When a log is read, texts that a field cannot have are rejected. ``hostile_files`` puts code into the fields of logs
  of every format.
* When a file is written, all texts are quoted. For this test the first barrier is switched off, because a user may get
  a store (Parquet folder) from another person. Shells, Python, a browser, a reader of Markdown and a terminal must then
  take the code as plain text.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analyzers.actions import ActionResult, padded_output, tf32
from analyzers.actions.action import Application
from analyzers.evidence.runs import tables_of
from analyzers.evidence.tables import Settings
from analyzers.overrides import write as overrides_write
from analyzers.overrides.export import export, select
from analyzers.overrides.write import write_files
from analyzers.recommend import documents, screen, verb
from analyzers.recommend.ranking import Recommendation
from logparse.ingest import ingest, stream, worker
from logparse.libraries.kinds.format import Outcome
from logparse.model import (
    ConvProblem,
    Evidence,
    Finding,
    GemmProblem,
    OperatorProblem,
    Override,
    Problem,
    Record,
    Solution,
)
from logparse.model.grammar import LAYOUT, LIBRARY, NAME, SOLUTION, TYPE, VALIDATOR, VALUE
from logparse.output import Answer, show
from logparse.quoting import Python
from logparse.store import Store, open_store
from tests.conftest import SAMPLE_FILES, SAMPLES, sized
from tests.waiting import PATIENCE_S

CANARY = "CANARY"
RUN = f"touch${{IFS}}{CANARY}"
TERMINAL = f"\x1b[2J\x9b31m\u202e{CANARY}"
BLIND = (  # in one line without a blank or comma, which many formats take for the end of a field
    f";{RUN};#",
    f"$({RUN})",
    f"`{RUN}`",
    f"';{RUN};'",
    f'";{RUN};"',
    f"|{RUN}&",
    f"//;1e{RUN}#",
    f"'+__import__('os').system('{RUN}')+'",
    f"<script>{CANARY}()</script><img/src=x/onerror={CANARY}()>",
    f"](javascript:{CANARY}())",
    "@files@{path}@settings@",
    TERMINAL,
    f"../../{CANARY}",
)
LINES = (
    f"\ntouch {CANARY}\n",
    f"\nEND_OF_DATA\ntouch {CANARY}\n",
    f"\r{RUN}",
    f"\n```\n<img src=x onerror={CANARY}()>\n",
)
SHELLS = [found for shell in ("sh", "dash", "bash", "zsh") if (found := shutil.which(shell))]
if len(SHELLS) > 1 and SHELLS[1].endswith("dash") and Path(SHELLS[0]).samefile(SHELLS[1]):
    del SHELLS[1]  # dash does the same under both names


# ------------------------------------------------------------------------------------------------- where files are read


def texts_of(noun: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each text field of a record, also within objects that the record contains."""
    if isinstance(noun, str):
        yield name, noun
    elif is_dataclass(noun):
        for field in fields(noun):
            yield from texts_of(getattr(noun, field.name), f"{type(noun).__name__}.{field.name}")
    elif isinstance(noun, tuple):
        for item in noun:
            yield from texts_of(item, name)


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def hostile_files(path: Path, records: Sequence[Record]) -> Iterator[bytes]:
    """Yield copies of a log in which code is appended to the value of a text field, for one field after another."""
    data, met = content(path), set[str]()
    for name, value in (pair for record in records for pair in texts_of(record)):
        field = f"{name}:{value.partition(':')[0]}" if name == "Fact.name" else name
        place = value.encode("utf-8", "replace")
        if field in met or len(place) < 2 or place not in data or name in ("Reject.reason", "Message.text"):
            continue
        met.add(field)
        codes = (*BLIND, *LINES)
        for code in codes[len(met) % 3 :: sized(6, 1)]:
            text = json.dumps(code)[1:-1] if data.lstrip()[:1] in (b"{", b"[") else code
            yield data.replace(place, place + text.encode())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store (Parquet folder) with the samples, and with copies of them in which text fields contain code."""
    folder, nouns, count = tmp_path_factory.mktemp("hostile"), list[Record](), 0

    def spied(outcome: Outcome) -> Outcome:
        nouns.extend(outcome.records)
        return outcome

    for path in SAMPLE_FILES:
        if path.stat().st_size > LARGEST or path.suffix == ".db":
            continue
        nouns.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker, "storable", spied)
            patch.setattr(stream, "storable", spied)
            patch.setattr(stream, "_outcomes", {})  # all lines are read again
            ingest([str(path)], open_store(tmp_path_factory.mktemp("one") / "store", create=True), run="x", jobs=1)
        for data in hostile_files(path, nouns):
            place = folder / f"{count:05d}" / path.name.removesuffix(".gz")
            place.parent.mkdir()
            place.write_bytes(data)
            count += 1
    assert count > 400, "a law over few files is none"
    store = open_store(tmp_path_factory.mktemp("store") / "store", create=True)
    results = ingest([str(SAMPLES), str(folder)], store, run=NAMED, jobs=1)
    assert [x for x in results if x.state == "failed"] == []
    return store


LARGEST = 1 << 17
NAMED = f"'\"<script>{CANARY}()</script><img/src=x onerror={CANARY}()>$({RUN})`{RUN}`;{RUN}"
"""Name of a run that contains code. It is possible, because a run may be named after a file."""
KINDS = {
    "select a_type || b_type || c_type || d_type || compute_type || activation from gemm_problems": TYPE,
    "select replace(dtype, '-', '') || direction from conv_problems where direction <> 'B+W'": TYPE,
    "select layout from conv_problems": LAYOUT,
    "select library from measurements": LIBRARY,
    "select solution from measurements where library <> 'kernel'": SOLUTION,
    "select value from facts where name in ('arch', 'pytorch_version') or starts_with(name, 'validator:')": VALUE,
    "select split_part(name, ':', 1) from facts": NAME,
}
ANYTHING = ("text", "error", "reason", "path")
"""Columns that may contain any text, for example a message from a log. logparse only displays these texts."""


def test_a_field_holds_what_its_kind_may_hold(hostile: Store) -> None:
    with hostile.connect() as con:
        for query, kind in KINDS.items():
            texts = [str(text) for (text,) in con.execute(query).fetchall() if text is not None]
            assert texts, query
            assert [text for text in texts if not kind.fullmatch(text)] == [], query
        columns = "select table_name, column_name from information_schema.columns where data_type = 'VARCHAR'"
        for table, column in con.execute(columns).fetchall():
            query = f"select distinct {column} from {table} where contains({column}, '{CANARY}')"
            texts = [str(text) for (text,) in con.execute(query).fetchall()]
            assert column in ANYTHING or [x for x in texts if not x.isprintable()] == [], f"{table}.{column}"
        (rejects,) = con.execute("select count(*) from rejects where contains(reason, 'cannot be')").fetchall()[0]
    assert rejects > 100


def test_nothing_of_a_hostile_file_runs(hostile: Store, tmp_path: Path) -> None:
    found = verb.advise(hostile, Settings())
    assert {x.solution.library for x in found.overrides} >= {"miopen", "hipblaslt"}
    everything(found, hostile, tmp_path / "out")
    nothing_ran(tmp_path)


# ---------------------------------------------------------------------------------------------- where nouns are written


class Group:
    """Puts dangerous code into one kind of text, for example into the texts of matrix products.

    Tests then check that logparse never runs it. A subclass adds ``code`` to the texts in its method ``problem`` or
    ``field``.
    """

    def __init__(self, code: str) -> None:
        self.code = code

    def noun(self, noun: Any) -> Any:
        if isinstance(noun, (GemmProblem, ConvProblem, OperatorProblem)):
            return self.problem(noun)
        if isinstance(noun, Mapping):
            return {self.noun(name): self.noun(value) for name, value in noun.items()}
        if isinstance(noun, tuple | list):
            return type(noun)(map(self.noun, noun))
        if isinstance(noun, (Finding, Evidence, Override, Solution, ActionResult)):
            values = {x.name: self.field(noun, x.name, getattr(noun, x.name)) for x in fields(noun)}
            return replace(noun, **values)
        return noun

    def problem(self, problem: Problem) -> Problem:
        return problem

    def field(self, noun: Any, name: str, value: Any) -> Any:
        return self.noun(value)


class Types(Group):
    def problem(self, problem: Problem) -> Problem:
        names = [x for x in vars(problem) if x in ("activation", "compute_type") or x.startswith("scale_")]
        return replace(problem, **{x: y + self.code for x in names if isinstance(y := getattr(problem, x), str)})


class Layouts(Group):
    def problem(self, problem: Problem) -> Problem:
        names = [x for x in vars(problem) if x.endswith("_layout")]
        return replace(problem, **{x: y + self.code for x in names if isinstance(y := getattr(problem, x), str)})


class Solutions(Group):
    def field(self, noun: Any, name: str, value: Any) -> Any:
        return value + self.code if isinstance(noun, Solution) and name in ("id", "raw") else self.noun(value)


class Facts(Group):
    def field(self, noun: Any, name: str, value: Any) -> Any:
        if isinstance(value, Mapping) and name in ("target", "versions"):
            # values that are neither a file's name nor a number
            builds = ("hipblaslt_revision", "rocblas_version", "pytorch_version")
            known = {x: y + self.code * (x in builds) for x, y in value.items()}
            return known | {f"{VALIDATOR}A{self.code}": "1"} if name == "target" else known
        return self.noun(value)


class Sentences(Group):
    def field(self, noun: Any, name: str, value: Any) -> Any:
        shown = isinstance(noun, Finding | Evidence) and name in ("message", "advice", "file", "reasons")
        if isinstance(noun, ActionResult) and name == "word":
            return value + self.code
        return value + self.code if shown and isinstance(value, str) else self.noun(value)


class Keys(Group):
    def field(self, noun: Any, name: str, value: Any) -> Any:
        keyed = isinstance(noun, Override) and name in ("key_text", "parameters")
        return value + self.code if keyed and isinstance(value, str) else self.noun(value)


GROUPS = (Types, Layouts, Solutions, Facts, Sentences, Keys)


@pytest.fixture(scope="module")
def found(samples: Store) -> Recommendation:
    return verb.advise(samples, Settings())


@pytest.mark.parametrize("group", GROUPS)
def test_code_in_stored_records_never_runs(
    group: type[Group], found: Recommendation, samples: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If stored data contain code, the files that logparse writes from them do not run it."""
    # A user may get a store (Parquet folder) from another person. So code may be in it, although logparse rejects such
    # texts when it reads logs.
    monkeypatch.setattr(overrides_write, "fault", lambda noun: None)
    application = Application(line="", settings=tf32.SETTINGS, model=(Python("model = pad_output(model, 5, 8)"),))
    program = ActionResult(
        action=padded_output.ACTION, application=application, parts=(), steps=4.0,
        now_us=20_000.0, then_us=10_000.0, low_us=9_900.0, high_us=10_100.0,
    )  # fmt: skip
    codes = [*BLIND[GROUPS.index(group) % 5 :: sized(5, 1)], TERMINAL, *LINES[:: sized(2, 1)]]
    for number, code in enumerate(codes):
        change = group(code)
        wrong = replace(
            found,
            findings=change.noun(found.findings),
            remarks=change.noun(found.remarks),
            actions=change.noun((*found.actions, program)),
        )
        everything(wrong, samples, tmp_path / str(number), change)
        nothing_ran(tmp_path)


# ------------------------------------------------------------------------------------------------------ what is written


def everything(found: Recommendation, store: Store, out: Path, change: Group | None = None) -> None:
    """Write all files and print all texts of a recommendation, and pass each to the program that reads it.

    These programs are shells, Python, a browser's HTML parser, a reader of Markdown and a terminal.
    """
    made, _ = verb.write(found, Settings(), out)
    names = {str(x.path.relative_to(out)) for x in made if x.path is not None}
    assert change is None or "apply.py" in names
    assert any(name.endswith("/apply.sh") for name in names) or isinstance(change, Solutions)
    assert {str(x.relative_to(out)) for x in out.rglob("*") if x.is_file() and x.name[0] != "."} == names
    assert not list(out.parent.glob(f"*{CANARY}*")), "no path leads out"
    problems = [x.problem for x in found.findings if x.problem]
    problems += [] if change else select(tables_of(store, None))
    for tool in ("bench", "driver", "untuned"):
        text = io.StringIO()
        with redirect_stdout(text):
            show(write_files(export(problems, tool, {"pytorch_version": "2.9.1"}), [], out / tool))
        plain(text.getvalue())
    text = io.StringIO()
    with redirect_stdout(text):
        show(Answer([*screen.screen(found, screen.Written(out, made, store.url), None)]))
        show(Answer(documents.report(found, []).split("\n")))
    plain(text.getvalue())
    for path in sorted(out.rglob("*")):
        if path.suffix == ".sh":
            run(path)
        elif path.name == "apply.py":
            literals_alone(path.read_text(encoding="utf-8"))
        elif path.name == "report.md":
            no_markup(path.read_text(encoding="utf-8"))


STUB = '#!/bin/sh\nprintf \'%s\\n\' "$@" >> "$SEEN"\n'


def run(path: Path) -> None:
    """Run a written script with each of the shells. The tools that it calls are replaced by fakes."""
    # A script that asks Python for the GPU and the library versions is run twice: with fakes that report nothing, and
    # with fakes that report what the script expects.
    tools = path.parent.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("MIOpenDriver", "hipblaslt-bench"):
        (tools / name).write_text(STUB)
        (tools / name).chmod(0o755)
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    wanted = text.partition("<< 'END_OF_DATA'\n")[2].partition("\nEND_OF_DATA\n")[0]
    facts = "".join(f"{x.removeprefix('fact ')}\n" for x in wanted.splitlines() if x.startswith("fact "))
    (tools / "facts").write_text(facts, encoding="utf-8", errors="surrogateescape")
    env = {"PATH": f"{tools}:/usr/bin:/bin", "SEEN": str(tools / "seen"), "FACTS": str(tools / "facts")}
    for shell in SHELLS:
        for known in (False, True) if "python" in text else (True,):
            for python in ("python", "python3"):
                (tools / python).write_text('#!/bin/sh\ncat "$FACTS"\n' if known else "#!/bin/sh\nexit 1\n")
                (tools / python).chmod(0o755)
            how = [shell, "-c", '. "$1"', shell, f"./{path.name}"] if path.name == "apply.sh" else [shell, path.name]
            done = subprocess.run(how, cwd=path.parent, env=env, capture_output=True, check=False, timeout=PATIENCE_S)
            said = done.stderr.decode("utf-8", "backslashreplace")
            assert done.returncode == 0 or (path.name == "apply.sh" and "not applied" in said), f"{shell}: {said}"
            assert not known or done.returncode == 0, f"{shell} does not find its own facts: {said}"
            plain(said)
    nothing_ran(path.parent)


def nothing_ran(folder: Path) -> None:
    assert [x for x in folder.rglob("*") if x.name == CANARY or x.name.startswith(f"{CANARY} ")] == []


def plain(text: str) -> None:
    """Check that a text has no control characters, because these could change a terminal's behaviour."""
    odd = [line for line in text.split("\n") if not line.isprintable()]
    assert odd == []


def literals_alone(text: str) -> None:
    """Check that code from the tests appears in ``apply.py`` only within string literals, so that it is never run."""
    for node in ast.walk(ast.parse(text)):
        names = [x for x in vars(node).values() if isinstance(x, str)] if not isinstance(node, ast.Constant) else []
        assert not [x for x in names if CANARY in x]
    assert "__import__" not in {x.id for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Name)}


def no_markup(text: str) -> None:
    """Check that Markdown text has HTML tags and links only within blocks of code, and that all blocks end."""
    blocks = re.compile(r"^(`{3,})\w*\n.*?^\1$", re.MULTILINE | re.DOTALL)
    rest = blocks.sub("", text)
    assert "```" not in re.sub(r"\\`", "", rest), "a block of code does not end"
    assert not re.search(r"<\w", rest)
    assert "](" not in rest


# ---------------------------------------------------------------------------------------------------------- the browser


class Page(HTMLParser):
    """Reads an HTML page to test if it contains code: counts its tags, and collects attributes that contain code."""

    def __init__(self) -> None:
        super().__init__()
        self.tags = Counter[str]()
        self.code = list[tuple[str, str | None]]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.code += [x for x in attrs if x[0].startswith("on") or (x[1] or "").lstrip().startswith("javascript:")]


def test_a_page_of_hostile_files_holds_only_its_own_tags(hostile: Store, tmp_path: Path) -> None:
    from analyzers.explore.report import write_report

    out = tmp_path / "report.html"
    made = write_report(hostile, out, top=200)
    assert CANARY in made.text, "it shows them"
    page = Page()
    page.feed(out.read_text(encoding="utf-8"))
    assert page.code == []
    assert page.tags["script"] == 5, "two programs, and three blocks of data"
    assert page.tags["a"] == 1, "the frame's own link to the table"
    assert not page.tags.keys() & {"img", "iframe", "object", "embed", "svg", "form"}


# ------------------------------------------------------------------------------------------------------ the named cases


def test_logs_that_once_ran_code_are_rejected(tmp_path: Path) -> None:
    """Logs whose texts were run as code by an earlier version are now rejected."""
    # The code in these logs creates a file. It ran when a user ran or sourced one of the scripts that logparse had
    # written (apply.sh, driver.sh and tune_miopen.sh).
    results = (SAMPLES / "tunableop/tunableop_results0.csv").read_text()
    named = f"Validator,A//;1e touch {CANARY} #,1\n{results}"
    facts = json.dumps({"arch": "gfx942", "cu_count": "304", "pytorch_version": f"2.9.1\ntouch {CANARY}"})
    log = (SAMPLES / "miopen/miopen_cmd_4242.log").read_text().replace(" -m conv", f" --in_layout NHWC;{RUN} -m conv")
    table = f"direction,n,c,h,w,k,filter_h,filter_w,in_layout,in_type,calls\nF,1,2,3,4,5,1,1,NHWC;{RUN},FP16,3\n"
    table += "F,1,2,3,4,5,1,1,NHWC,FP16$(id),3\n"
    for name, text in (
        ("tunableop_results0.csv", named),
        ("facts.json", facts),
        ("miopen.log", log),
        ("table.csv", table),
    ):
        (tmp_path / name).write_text(text)
        store = open_store(tmp_path / f"{name}.store", create=True)
        ingest([str(tmp_path / name)], store, run="x")
        sources = store.sources()
        assert sources["reject_lines"].sum() >= (2 if name == "table.csv" else 1), name
        with store.connect() as con:
            assert not con.execute(f"select * from facts where contains(name || value, '{CANARY}')").fetchall()
