"""The architecture: imports point one way, and the program starts without heavy modules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.conftest import LONGEST

ROOT = Path(__file__).parents[1]
FILES = sorted(p for package in ("logparse", "analyzers") for p in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}
PROGRAM = ("logparse.cli", "logparse.api")
"""The verbs, for the shell and for Python: these import all, and nothing imports them."""


@cache
def imports(path: Path) -> frozenset[str]:
    """Our own modules that a file imports, also inside functions; imports for type checking only are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return frozenset(name for name in found if name in MODULES)


FORMATS_MAY = {"logparse", *(f"logparse.{x}" for x in ("model", "errors", "target", "devices", "groups"))}


def test_imports_point_the_right_way() -> None:
    """As logparse ← analyzers ← the program, with the model below all and nouns alone below the formats."""
    wrong = []
    for name, path in MODULES.items():
        for used in imports(path):
            up = name not in PROGRAM and name.startswith("logparse") and used.startswith("analyzers")
            up |= name.startswith("logparse.model") and not used.startswith("logparse.model")
            up |= name.startswith("logparse.formats") and not (
                used.startswith("logparse.formats") or used in FORMATS_MAY
            )
            up |= name not in (*PROGRAM, "logparse.__main__") and used in PROGRAM
            wrong += [f"{name} imports {used}"] * up
    assert wrong == []


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """A circle of the graph as a path; empty without one."""
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        found = next((x for other in sorted(graph.get(name, ())) if (x := visit(other, (*trail, name)))), [])
        done.add(name)
        return found

    return next((found for name in sorted(graph) if (found := visit(name, ()))), [])


def test_no_import_circles() -> None:
    graph = {name: set(imports(path) - {name}) for name, path in MODULES.items()}
    for name, used in graph.items():  # a package's __init__ lists its members and is imported with each of them
        used -= {other for other in used if name.startswith(other + ".")}
    assert not circle(graph)


def test_no_circles_between_members_of_a_folder() -> None:
    """Of every folder the files and folders in it, each folder taken as one, import each other in one direction."""
    floors: dict[str, dict[str, set[str]]] = {}
    for name, path in MODULES.items():
        if name in PROGRAM:  # which alone may look up to analyzers
            continue
        for used in imports(path):
            here, there = name.split("."), used.split(".")
            depth = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            if depth is not None:
                rooms = floors.setdefault(".".join(here[:depth]), {})
                rooms.setdefault(here[depth], set()).add(there[depth])
    assert {folder: found for folder, rooms in floors.items() if (found := circle(rooms))} == {}


DRAWN = re.compile(r"^<!-- imports begin -->\n```text\n(.*?)^```\n<!-- imports end -->$", re.MULTILINE | re.DOTALL)
SHARED = ("model", "target", "devices", "errors", "text", "links", "location", "groups", "output")
"""Modules of ``logparse/`` that every folder may import: the drawing leaves them out."""
QUESTIONS = ("lookup", "sql")


def place(name: str) -> str:
    """The place of a module in the drawing: its folder, or for the few of a package's root their purpose."""
    package, *rest = name.split(".")
    if not rest or (package == "logparse" and rest[0] in (*SHARED, "__main__")):
        return package
    if name == "analyzers.analyzer":
        return "analyzers/analyzer.py"
    if package == "analyzers" and len(rest) == 1 and MODULES[name].name != "__init__.py":
        return "analyzers/<finding>.py"
    if package == "logparse" and rest[0] in QUESTIONS:
        return "logparse/" + "|".join(QUESTIONS)
    return f"{package}/{rest[0]}"


def test_the_drawing_in_contributing_is_true() -> None:
    """Every import between folders is drawn, every drawn one is there, and none points up."""
    (text,) = DRAWN.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    drawn: dict[str, set[str]] = {}
    for line in text.splitlines():
        folder, _, others = line.partition("─▶")
        drawn.setdefault(folder.strip() or list(drawn)[-1], set()).update(others.split())
    found: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if name in (*PROGRAM, "logparse.__main__"):  # which import all
            continue
        here = place(name)
        found.setdefault(here, set()).update(there for used in imports(path) if (there := place(used)) != here)
    roots = {"logparse", "analyzers"}
    assert drawn == {here: there - roots for here, there in found.items() if here not in roots}
    floor = {folder: number for number, folder in enumerate(drawn)}
    assert {(here, there) for here in drawn for there in drawn[here] if floor[there] <= floor[here]} == set()


def test_the_roots_hold_only_the_listed_modules() -> None:
    """``analyzers/`` holds what an analyzer is and the analyzers, each named as its finding."""
    from analyzers import ANALYZERS

    named = {analyzer.name.replace("-", "_") for analyzer in ANALYZERS}
    assert {path.stem for path in (ROOT / "analyzers").glob("*.py")} == {"__init__", "analyzer", *named}
    assert len(list((ROOT / "logparse").glob("*.py"))) <= 14


def test_the_tests_that_begin_exist() -> None:
    assert not [x for x in LONGEST if x.endswith(".py") and not (ROOT / x).is_file()]


def imported(*words: str, own: bool = False) -> set[str]:
    """The top-level modules, and those of pyarrow, that ``logparse WORD…`` imports; or all ``own`` ones of ours."""
    code = f"""
import contextlib, io, sys
sys.argv = ["logparse", *{words!r}]
from logparse.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print([m for m in sys.modules if "." not in m or m.startswith(("pyarrow.", "logparse.", "analyzers."))])"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    found = set(ast.literal_eval(out.stdout))
    ours = {x for x in found if x.partition(".")[0] in ("logparse", "analyzers")}
    return ours if own else {x for x in found if x not in ours or "." not in x}


HEAVY = {"pandas", "duckdb", "plotly", "torch", "dash", "rich", "pydantic", "analyzers", "asyncio", "multiprocessing"}


def test_help_imports_nothing_heavy() -> None:
    assert not {*HEAVY, "pyarrow", "numpy", "xxhash", "logging"} & imported("--help")
    assert not {*HEAVY, "pyarrow", "numpy", "xxhash", "logging"} & imported("ingest", "--help")


def test_an_ingest_imports_nothing_that_only_others_need(tmp_path: Path) -> None:
    log = "sample_logs/hipblaslt/hipblaslt_rank0_4242.log"
    used = imported("ingest", log, "--store", str(tmp_path / "store"))
    assert "pyarrow.parquet" in used, "it has read the log"
    assert not {*HEAVY, "sqlite3", "secrets", "boto3", "pyarrow.dataset", "pyarrow.compute"} & used


def test_a_question_to_a_store_imports_no_format() -> None:
    code = "import sys, logparse.lookup, logparse.sql; print([x for x in sys.modules if x.startswith('logparse')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    used = set(ast.literal_eval(out.stdout))
    assert "logparse.formats.format" in used, "what a format is, of which the store has the units"
    assert not {"logparse.formats.all_formats", "logparse.formats.hipblaslt", "logparse.ingest"} & used


def test_a_merge_of_find_dbs_imports_no_pandas(tmp_path: Path) -> None:
    key = "256-28-28-3x3-256-56-56-64-1x1-2x2-1x1-0-NCHW-FP16-W"
    file = tmp_path / "gfx942130.HIP.3_4_0_a1b2c3.ufdb.txt"
    file.write_text(f"{key}=ConvDirectNaiveConvWrw:2.5,0,miopenConvolutionBwdWeightsAlgoDirect\n", encoding="utf-8")
    used = imported("merge", str(file), str(file), "--out", str(tmp_path / "merged"))
    assert (tmp_path / "merged" / file.name).read_bytes() == file.read_bytes()
    assert "pandas" not in used


def test_a_comparison_of_two_runs_imports_no_pandas(tmp_path: Path) -> None:
    log = next((ROOT / "sample_logs/hipblaslt").glob("*.log"))
    store = str(tmp_path / "store")
    imported("ingest", str(log), "--store", store)
    assert "pandas" not in imported("diff", store, store)


def test_a_recommendation_imports_only_the_formats_that_it_writes(tmp_path: Path) -> None:
    samples = [str(ROOT / "sample_logs/hipblaslt" / x) for x in ("hipblaslt_rank0_4242.log", "bench_output.txt")]
    samples.append(str(ROOT / "sample_logs/miopen/gfx942130.HIP.fdb.txt"))
    store = str(tmp_path / "store")
    imported("ingest", *samples, "--store", store)
    used = imported("recommend", "--store", store, "--out", str(tmp_path / "out"), own=True)
    assert "logparse.formats.hipblaslt.tuning_rules" in used, "it has written a file"
    assert not {f"logparse.formats.{x}" for x in ("all_formats", "moe", "rocblas", "miopen.perf_db_rules")} & used
    assert len(used) <= 123
