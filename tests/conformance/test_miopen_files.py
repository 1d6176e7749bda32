"""Tests of MIOpen's user find-db, its file of measured solvers: logparse predicts which solver the real library uses.

The files are generated at random and then edited.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from analyzers.overrides.merge import merge
from logparse.errors import InputError
from logparse.ingest.stated_target import target_from
from logparse.libraries.kinds.reading import Reading, parse_whole_number
from logparse.libraries.miopen.find_db_rules import OVERRIDE_FORMAT
from logparse.libraries.miopen.perf_db_rules import OVERRIDE_FORMAT as PERF_DB
from logparse.libraries.miopen.problem_key import key_of, problem_from_key
from logparse.libraries.miopen.solvers import ALGORITHMS, algorithm_name, known_algorithm
from logparse.model import ConvProblem, Problem, Solution
from tests.conformance.look_ups import Library, differences
from tests.conformance.mutations import Words, mutated
from tests.conformance.report import compared
from tests.conformance.rocm import HERE, Rocm
from tests.conftest import sized

FILE = "gfx942130.HIP.3_5_1_.ufdb.txt"
TARGET = {"arch": "gfx942", "cu_count": "304", "backend": "HIP", "miopen_version": "3.5.1", "miopen_tweak": ""}
SETTINGS = {
    "VGPU_ARCH": "gfx942:sramecc+:xnack-",
    "VGPU_CUS": "304",
    "MIOPEN_DEBUG_GCN_ASM_KERNELS": "0",
    "MIOPEN_DEBUG_CONV_WINOGRAD": "0",  # Debian has no assembler sources
}
TYPES = {"f16_r": "FP16", "f32_r": "FP32", "bf16_r": "BF16"}
NAIVE = {"F": "ConvDirectNaiveConvFwd", "B": "ConvDirectNaiveConvBwd", "W": "ConvDirectNaiveConvWrw"}
SOLVERS = {
    "F": ["GemmFwd1x1_0_1", "GemmFwdRest", "ConvOclDirectFwd", "GemmFwd1x1_0_2"],
    "B": ["GemmBwd1x1_stride1", "GemmBwdRest", "GemmBwd1x1_stride2"],
    "W": ["GemmWrw1x1_stride1", "GemmWrwUniversal", "ConvAsmBwdWrW1x1"],
}
WORDS = Words(
    separator=",",
    texts=[*ALGORITHMS, "miopenConvolutionFwdAlgoFoo", "-1", "0", "nan", "inf", "abc", "0.5", "1e-5", "FooBar:1,0"],
    lines=["comment", "=", "a=b", "key=S:1,0,A", "# x=y"],
)

Asked = tuple[str, str, list[int], int, int, int]


def asked() -> list[Asked]:
    """Return the convolutions of the test, each as (direction, type, [n, c, h, w, k, y, x], pad, stride, groups)."""
    shapes = [([16, 32, 28, 28, 48, 1, 1], 0, 1, 1), ([16, 32, 28, 28, 48, 3, 3], 1, 1, 1)]
    shapes += [([16, 32, 28, 28, 48, 3, 3], 1, 1, 2), ([8, 64, 14, 14, 32, 1, 1], 0, 2, 1)]
    shapes += [([8, 64, 14, 14, 32, 3, 3], 0, 2, 1), ([16, 32, 14, 14, 48, 5, 5], 2, 1, 1)]
    return [(direction, kind, *shape) for kind, direction, shape in product(TYPES, "FBW", shapes)]


def call(given: Asked) -> ConvProblem:
    direction, kind, (n, c, h, w, k, y, x), pad, stride, groups = given
    image = [c, h, w]
    out = [k, (h + 2 * pad - y) // stride + 1, (w + 2 * pad - x) // stride + 1]
    first, last = (image, out) if direction == "F" else (out, image)
    words = [*first, f"{y}x{x}", *last, n, f"{pad}x{pad}", f"{stride}x{stride}", "1x1", 0, "NCHW", TYPES[kind]]
    return problem_from_key("-".join(map(str, [*words, direction])) + (f"_g{groups}" if groups > 1 else ""))


def item(solver: str, direction: str, ms: float) -> str:
    return f"{solver}:{ms:g},0,{algorithm_name(known_algorithm(solver) or 'Direct', direction)}"


def generated(seed: int, calls: Sequence[ConvProblem]) -> str:
    """Return random lines of a find-db (MIOpen's file of solver times) for some of the convolutions.

    Some solvers can run the convolution and some cannot. They are not sorted by time.
    """
    random_ = random.Random(seed)
    lines = []
    for problem in random_.sample(calls, random_.randrange(4, 16)):
        direction = problem.direction
        solvers = [NAIVE[direction], *random_.sample(SOLVERS[direction], random_.randrange(0, 3))]
        random_.shuffle(solvers)
        items = [item(x, direction, round(random_.uniform(0.001, 9), 4)) for x in solvers]
        lines.append(f"{key_of(problem)}={';'.join(items)}")
        if random_.random() < 0.1:
            lines.append(f"{key_of(problem)}={item(NAIVE[direction], direction, 0.5)}")
    return "\n".join(lines) + "\n"


def expected(reading: Reading[Any], call: Problem) -> str | None:
    """Return a known reason why MIOpen may not use the solver that logparse predicts, or None.

    For example, the reason may be "negative time".
    """
    # logparse predicts what MIOpen's "Find" mode does, which looks for the fastest solver. But the test can only run
    # MIOpen's "immediate" mode, which treats some faulty lines of a file in another way.
    rows = reading.by_key.get(OVERRIDE_FORMAT.key(call, TARGET) or "", ())
    whys = [breach.note.message for row in rows for breach in row.breaches]
    names = {
        "this solver's algorithm is": "other family's algorithm",
        "uses another solver with a time": "negative time",
        "more than the memory of any GPU": "workspace beyond memory",
    }
    found = [name for words, name in names.items() if any(words in why for why in whys)]
    workspaces = [row.text.split(",")[1:2] for row in rows]
    if any(x.isdigit() and x.isascii() and parse_whole_number(x, 65) is None for (x,) in filter(None, workspaces)):
        found.append("workspace above 64 bits")
    return next(iter(found), None)


GEMM, DIRECT = 0, 1
"""Numbers of the algorithms in miopenConvFwdAlgorithm_t."""
FOUND = {
    "GemmFwdRest:-0.1,0,miopenConvolutionFwdAlgoGEMM": (DIRECT, 0.5),
    f"GemmFwdRest:0.1,{10**17},miopenConvolutionFwdAlgoGEMM": (DIRECT, 0.5),
    f"GemmFwdRest:0.1,{10**22},miopenConvolutionFwdAlgoGEMM": (DIRECT, 0.5),
    "GemmFwdRest:0.1,0,miopenConvolutionFwdAlgoDirect": (GEMM, 0.1),
}
"""Entries of a find-db line (MIOpen's solver times), with the algorithm and the time in ms that Find then reports.

The line also has the naive solver with 0.5 ms. Find runs in a hybrid mode.
"""


def test_find_ignores_impossible_entries(rocm: Rocm, tmp_path: Path) -> None:
    """If an entry of a find-db has a negative time, or more workspace than any GPU has, MIOpen's Find ignores it.

    A find-db is MIOpen's file of solver times. Find does not check the algorithm of an entry.
    """
    (one,) = [x for x in asked() if x[:2] == ("F", "f32_r") and x[2][5] == 3 and x[4] == 1 and x[5] == 1]
    (tmp_path / "empty").mkdir()
    (tmp_path / "db").mkdir()
    more = {"MIOPEN_FIND_MODE": "3", "MIOPEN_LOG_LEVEL": "2", "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    settings = SETTINGS | more | {"MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "empty")}
    naive = item(NAIVE["F"], "F", 0.5)
    with rocm.driver("miopen_find", settings) as driver:
        assert driver.ask(one) == TARGET["miopen_version"]
        for text, (algorithm, ms) in FOUND.items():
            (tmp_path / "db" / FILE).write_text(f"{key_of(call(one))}={naive};{text}\n", encoding="utf-8")
            (best, *_) = driver.ask(["folder", str(tmp_path / "db"), {}])
            assert best == [algorithm, pytest.approx(ms)], text


NAMES = {
    FILE: True,
    "gfx942130.HIP.3_5_1.ufdb.txt": False,  # no underscore behind the version
    "gfx942130.HIP.3_5_1_.ufdb": False,
    "gfx942_304.HIP.3_5_1_.ufdb.txt": False,  # more than 64 CUs are written in hexadecimal
    "gfx942130.HIP.3_5_1_abc.ufdb.txt": False,
    "gfx942130.HIP.3_5_0_.ufdb.txt": False,
    "gfx942e4.HIP.3_5_1_.ufdb.txt": False,
    "gfx942130.OpenCL.3_5_1_.ufdb.txt": False,
    "gfx942130.HIP.ufdb.txt": False,
    "gfx942130.HIP.3_5_1_.fdb.txt": False,
    "gfx942.HIP.3_5_1_.ufdb.txt": False,
    FILE.upper(): False,
    FILE.replace(".ufdb", ".fusion.ufdb"): False,  # only for fusion plans
}
"""File names for a user find-db: {name: True if MIOpen on this GPU opens it}."""


def test_file_names_that_miopen_does_not_open_are_refused(rocm: Rocm, tmp_path: Path) -> None:
    """logparse refuses a file of solver times if MIOpen would not open the file because of its name.

    The name must state the right GPU and MIOpen version, as in ``gfx942130.HIP.3_5_1_.ufdb.txt``. MIOpen ignores other
    files without a message.
    """
    one = asked()[0]
    data = f"{key_of(call(one))}={item(NAIVE['F'], 'F', 0.5)}\n".encode()
    (tmp_path / "empty").mkdir()
    folders = {"MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "empty"), "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    with rocm.driver("miopen_lookup", SETTINGS | folders) as driver:
        driver.ask([one])
        for name, opened in NAMES.items():
            folder = tmp_path / name
            folder.mkdir()
            (folder / name).write_bytes(data)
            ((_, ms),) = driver.ask(["folder", str(folder)])
            assert (ms == pytest.approx(0.5)) is opened, name
            assert OVERRIDE_FORMAT.reader(name, data, TARGET).accepted is opened, name


def test_the_number_in_the_name_of_an_rdna_device(rocm: Rocm, tmp_path: Path) -> None:
    """The number in the name of a find-db file is the number of compute units that HIP reports.

    For a Radeon RX 9070 XT with 64 compute units HIP reports 32, so MIOpen opens ``gfx1201_32``.
    """
    one = asked()[0]
    data = f"{key_of(call(one))}={item(NAIVE['F'], 'F', 0.5)}\n".encode()
    (tmp_path / "empty").mkdir()
    device = {"VGPU_ARCH": "gfx1201", "VGPU_CUS": "32", "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    folders = {"MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "empty")}
    target = target_from(["arch=gfx1201", "cu_count=64", "miopen_version=3.5.1", "miopen_tweak=", "backend=HIP"])
    with rocm.driver("miopen_lookup", SETTINGS | device | folders) as driver:
        driver.ask([one])
        for name, opened in {"gfx1201_32.HIP.3_5_1_.ufdb.txt": True, "gfx1201_64.HIP.3_5_1_.ufdb.txt": False}.items():
            folder = tmp_path / name
            folder.mkdir()
            (folder / name).write_bytes(data)
            ((_, ms),) = driver.ask(["folder", str(folder)])
            assert (ms == pytest.approx(0.5)) is opened, name
            assert OVERRIDE_FORMAT.reader(name, data, target).accepted is opened, name


def test_databases_of_fusions_and_batch_normalisations(rocm: Rocm, tmp_path: Path) -> None:
    """logparse does not check files that MIOpen writes for fused operations and for batch normalisations.

    One kind of entry is an exception: the parameters of a fusion's solver.
    """
    # MIOpen writes them into the file for convolutions, so they are read like entries of convolutions.
    device, norms = "gfx906_60.HIP.3_5_1_", "batchnorm_gfx906_60.HIP.3_5_1_.udb.txt"
    settings = SETTINGS | {"VGPU_ARCH": "gfx906:sramecc+:xnack-", "VGPU_CUS": "60"}
    settings |= {"MIOPEN_USER_DB_PATH": str(tmp_path), "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    settings |= {"MIOPEN_FIND_MODE_FUSION": "1", "MIOPEN_FIND_ENFORCE": "3"}
    for what in ("plan", "norm"):
        command = [str(rocm.launcher), str(HERE / "drivers/miopen_fusion.py"), what]
        subprocess.run(command, env=rocm.environment(settings), check=True, timeout=300)
    kept = {f"{device}.fusion.ufdb.txt": OVERRIDE_FORMAT, norms: PERF_DB, f"{device}.udb.txt": PERF_DB}
    assert {x.name for x in tmp_path.glob("*.txt")} == set(kept)
    for name, format in kept.items():
        data = (tmp_path / name).read_bytes()
        assert data.count(b"=") == 1
        judged = format.inspect(name, data, {})
        if name.startswith(f"{device}.udb"):
            assert [row.live for row in judged.rows] == [True]
            assert merge([str(tmp_path / name)] * 2).files[0].data == data
            continue
        assert (len(judged.rows), [note.severity for note in judged.notes]) == (0, ["info"])
        with pytest.raises(InputError, match="cannot be merged"):
            merge([str(tmp_path / name)] * 2)


MODES = [("", ""), ("1", ""), ("2", ""), ("3", ""), ("5", ""), ("5", "1"), ("5", "2"), ("3", "3")]
"""Pairs of values for the variables MIOPEN_FIND_MODE and MIOPEN_FIND_ENFORCE. "" leaves a variable unset."""


def test_some_find_modes_ignore_the_file(rocm: Rocm, tmp_path: Path) -> None:
    """In some modes, MIOpen does not use the user's file of measured solvers: it measures again and overwrites it.

    MIOpen does so in the find mode NORMAL (1), and if MIOPEN_FIND_ENFORCE is 2 or more.
    """
    # In all other cases MIOpen uses the line of a convolution.
    (one,) = [x for x in asked() if x[:2] == ("F", "f32_r") and x[2][5] == 3 and x[4] == 1 and x[5] == 1]
    for name in ("empty", "db"):
        (tmp_path / name).mkdir()
    path, row = tmp_path / "db" / FILE, f"{key_of(call(one))}={item(NAIVE['F'], 'F', 0.5)}\n"
    settings = {"MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "empty"), "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    taken = []
    with rocm.driver("miopen_find", SETTINGS | settings | {"MIOPEN_LOG_LEVEL": "2"}) as driver:
        driver.ask(one)
        for mode, enforced in MODES:
            path.write_text(row, encoding="utf-8")
            pairs = {"MIOPEN_FIND_MODE": mode, "MIOPEN_FIND_ENFORCE": enforced}
            answers = driver.ask(
                ["folder", str(tmp_path / "db"), {name: value for name, value in pairs.items() if value}]
            )
            used = any(ms == pytest.approx(0.5) for _, ms in answers)
            assert used == (path.read_text(encoding="utf-8") == row)
            taken.append(used)
    assert taken == [mode != "1" and enforced in ("", "1") for mode, enforced in MODES]


def test_miopen_takes_what_the_reader_takes(rocm: Rocm, tmp_path: Path) -> None:
    every = asked()
    calls = [call(x) for x in every]
    (tmp_path / "empty").mkdir()
    (tmp_path / "db").mkdir()
    own_folders = {"MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "empty"), "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    with rocm.driver("miopen_lookup", SETTINGS | own_folders) as driver:
        assert driver.ask(every) == TARGET["miopen_version"]

        def found(data: bytes) -> list[tuple[int, float] | None]:
            (tmp_path / "db" / FILE).write_bytes(data)
            return [x and (x[0], x[1]) for x in driver.ask(["folder", str(tmp_path / "db")])]

        own = found(b"")

        def ask(data: bytes) -> list[int | str]:
            """Return the number of the solver that MIOpen uses for each convolution if it reads this file.

            "own" in place of a number means that MIOpen behaves in the same way as without the file.
            """
            return ["own" if x is None or x == y else x[0] for x, y in zip(found(data), own, strict=True)]

        def plain(given: Mapping[int, Sequence[Solution]]) -> bytes:
            lines = []
            for number, solutions in given.items():
                items = [item(x.id, calls[number].direction, 0.001 * at) for at, x in enumerate(solutions, start=1)]
                lines.append(f"{key_of(calls[number])}={';'.join(items)}\n")
            return "".join(lines).encode()

        files = {}
        for seed in range(sized(400, 4_000)):
            text = generated(seed, calls)
            files[f"seed {seed}"] = text.encode() if seed % 12 == 0 else mutated(seed, text, WORDS)
        good = [Solution("miopen", NAIVE[x.direction]) for x in calls]
        library = Library(OVERRIDE_FORMAT, TARGET, calls, ask, plain, good, name=FILE, expected=expected)
        different, hits = differences(library, files)
    compared("MIOpen user find-db", len(files), len(files) * len(every), hits, different)
