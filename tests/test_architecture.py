"""Tests of the architecture: modules import each other in one direction only, and the program starts quickly."""

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
"""Modules that contain logparse's subcommands: one for the shell and one for Python.

These two modules may import all other modules, and no other module imports them.
"""
HANDED_OUT = {("logparse", "logparse.api"), ("logparse.ingest", "logparse.api")}
"""The only imports that may break the order of the folders: ``logparse`` offers functions of its Python interface.

The package ``logparse.ingest`` is one of these functions. The imports happen when the functions are first used.
"""


@cache
def imports(path: Path, *, types: bool = False) -> frozenset[str]:
    """Return logparse's own modules that a Python file imports, including imports inside functions.

    Imports under ``if TYPE_CHECKING`` count only if ``types`` is true.
    """
    # A string such as "package.module" or "package.module:NAME" also counts, because such strings name modules that are
    # imported at their first use.
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node.body = node.body if types else []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = path.parent.relative_to(ROOT).parts
            above = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            found.add(node.value.partition(":")[0])
    return frozenset(name for name in found if name in MODULES)


FORMATS_MAY = {
    "logparse",
    *(f"logparse.{x}" for x in ("model", "errors", "target", "devices", "groups", "lazy", "quoting", "roofline")),
}


def test_imports_point_the_right_way() -> None:
    """``logparse`` never imports ``analyzers``, only the other way round. The program itself may import both.

    The modules in ``logparse.model`` import nothing else of logparse. The modules that read log formats may use only a
    few shared modules.
    """
    wrong = []
    for name, path in MODULES.items():
        for used in imports(path):
            up = name not in PROGRAM and name.startswith("logparse") and used.startswith("analyzers")
            up |= name.startswith("logparse.model") and not used.startswith("logparse.model")
            up |= name.startswith("logparse.libraries") and not (
                used.startswith("logparse.libraries") or used in FORMATS_MAY
            )
            up |= name not in (*PROGRAM, "logparse.__main__") and used in PROGRAM and (name, used) not in HANDED_OUT
            wrong += [f"{name} imports {used}"] * up
    assert wrong == []


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return a cycle of the graph as a path, for example ``[a, b, a]``. Returns an empty list if there is no cycle."""
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
        used -= {other for other in used if name.startswith(other + ".") or (name, other) in HANDED_OUT}
    assert not circle(graph)


def test_the_package_hands_out_only_the_functions_for_notebooks() -> None:
    assert imports(MODULES["logparse"]) == {"logparse", "logparse.lazy", "logparse.api", "logparse.ingest"}
    code = "import sys, logparse; print([x for x in sys.modules if x.startswith(('logparse', 'numpy', 'pandas'))])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(ast.literal_eval(out.stdout)) == {"logparse", "logparse.lazy"}


def test_modules_of_the_store_import_in_one_direction() -> None:
    """The modules in ``logparse.store`` do not import each other in a circle, not even for type checking."""
    store = {name: path for name, path in MODULES.items() if name.startswith("logparse.store.")}
    graph = {name: {*imports(path, types=True)} & {*store} for name, path in store.items()}
    assert sum(map(len, graph.values())) > 30
    assert not circle(graph)


def test_no_import_circles_within_a_folder() -> None:
    """In every folder, the files and subfolders do not import each other in a circle.

    All files of a subfolder are taken together as one member of the folder.
    """
    floors: dict[str, dict[str, set[str]]] = {}
    for name, path in MODULES.items():
        if name in PROGRAM:  # only the program may import analyzers from below
            continue
        for used in imports(path):
            here, there = name.split("."), used.split(".")
            depth = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            if depth is not None:
                rooms = floors.setdefault(".".join(here[:depth]), {})
                rooms.setdefault(here[depth], set()).add(there[depth])
    assert {folder: found for folder, rooms in floors.items() if (found := circle(rooms))} == {}


DRAWN = re.compile(r"^<!-- imports begin -->\n```text\n(.*?)^```\n<!-- imports end -->$", re.MULTILINE | re.DOTALL)
SHARED = (
    "model",
    "target",
    "devices",
    "errors",
    "text",
    "quoting",
    "links",
    "location",
    "groups",
    "lazy",
    "roofline",
    "output",
)
"""Modules of ``logparse/`` that all folders may import, so that the drawing in CONTRIBUTING.md leaves them out."""
QUESTIONS = ("lookup", "sql")


def place(name: str) -> str:
    """Return the name of a module in the drawing of imports in CONTRIBUTING.md.

    For example, modules in the folder ``analyzers/tune`` have this name.
    """
    # Modules that all folders may import have the name of their package. A package and a module
    # share the name logparse/lookup|sql.
    package, *rest = name.split(".")
    if not rest or (package == "logparse" and rest[0] in (*SHARED, "__main__")):
        return package
    if package == "logparse" and rest[0] in QUESTIONS:
        return "logparse/" + "|".join(QUESTIONS)
    return f"{package}/{rest[0]}"


def test_the_drawing_in_contributing_is_true() -> None:
    """CONTRIBUTING.md's drawing of which folder imports which is complete and right.

    Every import between folders is drawn, every drawn import exists, and every import goes from a folder to one further
    down.
    """
    (text,) = DRAWN.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    drawn: dict[str, set[str]] = {}
    for line in text.splitlines():
        folder, _, others = line.partition("─▶")
        drawn.setdefault(folder.strip() or list(drawn)[-1], set()).update(others.split())
    found: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if name in (*PROGRAM, "logparse.__main__"):  # these import all modules
            continue
        here = place(name)
        used = (x for x in imports(path) if (name, x) not in HANDED_OUT)
        found.setdefault(here, set()).update(there for x in used if (there := place(x)) != here)
    roots = {"logparse", "analyzers"}
    assert drawn == {here: there - roots for here, there in found.items() if here not in roots}
    floor = {folder: number for number, folder in enumerate(drawn)}
    assert {(here, there) for here in drawn for there in drawn[here] if floor[there] <= floor[here]} == set()


CODE = {"Shell", "Python", "Html"}
"""Names of the classes in ``logparse/quoting.py`` that mark a text as code which a program, such as a shell, runs."""
PACKAGED = {"get_plotlyjs()"}
"""Calls that return code from an installed package. Such code is allowed, although it is not from logparse."""


def test_code_comes_only_from_logparse_itself() -> None:
    """In written files, only text from logparse itself is written as code.

    Such text is a literal in logparse's source, or a file that logparse ships. All other text, for example from logs,
    must be quoted by a function of ``logparse/quoting.py``.
    """
    wrong, seen = [], 0
    for path in FILES:
        if module_name(path) == "logparse.quoting":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CODE:
                seen += 1
                wrong += [f"{path}:{node.lineno}: {ast.unparse(x)}" for x in node.args if not is_own(x)]
    assert wrong == []
    assert seen > 30


def is_own(node: ast.expr) -> bool:
    """Tell whether a text in the source code comes from logparse itself, not from a user's log.

    The text does if it is a literal, a stripped literal, or the content of a file that logparse ships.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip":
        node = node.func.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "asset" or ast.unparse(node) in PACKAGED
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


TEMPLATES = sorted(path for package in ("logparse", "analyzers") for path in (ROOT / package).rglob("*.in"))
PLACE = re.compile(r"@([a-z_]+)@")


def test_only_one_function_fills_templates() -> None:
    """Only ``quoting.fill_template`` reads template files (``*.in``), and it gets a value for each placeholder in
    them.
    """
    assert {x.name for x in TEMPLATES} >= {"apply.sh.in", "apply.py.in", "tune_miopen.sh.in", "page.html.in"}
    literals: dict[Path, set[str]] = {}
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        literals[path] = {x.value for x in ast.walk(tree) if isinstance(x, ast.Constant) and isinstance(x.value, str)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and re.search(r"read_text\(|open\(", text := ast.unparse(node)):
                assert not re.search(r"\.in['\"]|_TEMPLATE", text), f"{path}:{node.lineno}: quoting.asset reads it"
    for template in TEMPLATES:
        places = set(PLACE.findall(template.read_text(encoding="utf-8")))
        assert places, template
        beside = [x for path, x in literals.items() if path.is_relative_to(template.parents[1])]
        assert any(places <= x for x in beside), f"no module has values for {places} of {template}"


WRITES = {"write_text", "write_bytes", "touch"}
MAY_WRITE: Mapping[str, str] = {
    "logparse.output.files": "the one way into a folder of the user's",
    "analyzers.explore.page.serve": "the page that leads the browser there, in a folder of its own",
    "logparse.output.program": "the null device",
    "logparse.lookup.problems_in_text": "a scratch folder",
    "logparse.capture.in_job.logparse_in_job.record": "imports nothing of ours, as it runs in the user's job; renames",
    "logparse.capture.in_job.logparse_in_job.profiler": "as record",
    "logparse.capture.in_job.logparse_in_job.turns": "as record",
    "analyzers.overrides.bisect": "outputs of checks, while they run",
    "analyzers.tune.verb": "a log of what libraries print, while they print",
    "analyzers.tune.side_by_side": "signals to processes in a scratch folder; renames",
    "analyzers.explore.load.child": "a scratch folder of the page",
    "analyzers.explore.load.job": "a scratch folder of the page",
}
"""Modules that may write files themselves instead of by the module ``output.files``: {module: reason}."""


def test_files_of_the_users_are_written_in_one_way() -> None:
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and is_write(node):
                found.add(module_name(path))
    assert found == set(MAY_WRITE), "write by logparse.output.files, or say here why not"


def is_write(call: ast.Call) -> bool:
    """Tell whether a call in the source code opens a file for writing or writes a file."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    modes = [x.value for x in (*call.args, *(k.value for k in call.keywords)) if isinstance(x, ast.Constant)]
    opens = name == "open" and any(isinstance(x, str) and re.fullmatch("[wxa]b?[+]?|[ar]b?[+]b?", x) for x in modes)
    return opens or name in WRITES


def test_folders_contain_only_the_listed_modules() -> None:
    """Three folders of the project contain only the modules that belong there.

    * ``analyzers/findings/`` has one module for each kind of analysis, named after it, and ``finding.py``.
    * ``analyzers/`` has only packages.
    * ``logparse/`` has at most 16 modules.
    """
    from analyzers.findings import ANALYZERS

    named = {analyzer.name.replace("-", "_") for analyzer in ANALYZERS}
    assert {path.stem for path in (ROOT / "analyzers/findings").glob("*.py")} == {"__init__", "finding", *named}
    assert {path.stem for path in (ROOT / "analyzers").glob("*.py")} == {"__init__"}
    assert len(list((ROOT / "logparse").glob("*.py"))) <= 16


def test_the_tests_that_begin_exist() -> None:
    assert not [x for x in LONGEST if x.endswith(".py") and not (ROOT / x).is_file()]


def imported(*words: str, own: bool = False) -> set[str]:
    """Return the names of the top-level modules, and of pyarrow's modules, that ``logparse WORD…`` imports.

    With ``own=True``, return the names of logparse's own modules that the command imports.
    """
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
    asked = "logparse.lookup.one_problem, logparse.lookup.contents, logparse.sql"
    code = f"import sys, {asked}; print([x for x in sys.modules if x.startswith('logparse')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    used = set(ast.literal_eval(out.stdout))
    assert "logparse.libraries.kinds.format" in used, "what a format is, of which the store has the units"
    assert not {"logparse.libraries.all_formats", "logparse.libraries.hipblaslt", "logparse.ingest"} & used


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
    assert "logparse.libraries.hipblaslt.tuning_rules" in used, "it has written a file"
    unused = (
        "all_formats",
        "moe.rules",
        "rocblas.rules",
        "rocblas.logs",
        "rocblas.bench_output",
        "miopen.perf_db_rules",
    )
    assert not {f"logparse.libraries.{x}" for x in unused} & used
