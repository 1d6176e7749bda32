"""Tests of MIOpen's perf-db, its file of tuned parameters: logparse predicts the parameters that the real library uses.

The files are generated at random and then edited.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any, TypeAlias

from analyzers.overrides.look_up import look_up
from logparse.libraries.kinds.reading import Reading
from logparse.libraries.miopen.perf_db import perf_key_of
from logparse.libraries.miopen.perf_db_rules import OVERRIDE_FORMAT
from logparse.libraries.miopen.solvers import SOLVERS
from logparse.model import ConvProblem
from tests.conformance.mutations import Words, mutated
from tests.conformance.report import Difference, compared
from tests.conformance.rocm import CrashError, Rocm
from tests.conformance.test_miopen_files import Asked, call
from tests.conftest import sized

FILE = "gfx90a68.HIP.3_5_1_.udb.txt"
TARGET = {"arch": "gfx90a", "cu_count": "104", "backend": "HIP", "miopen_version": "3.5.1", "miopen_tweak": ""}
SETTINGS = {
    "VGPU_ARCH": "gfx90a:sramecc+:xnack-",
    "VGPU_CUS": "104",
    "MIOPEN_DISABLE_CACHE": "1",
    "MIOPEN_LOG_LEVEL": "1",  # MIOpen complains about edited files in hundreds of lines
    "MIOPEN_DEBUG_GCN_ASM_KERNELS": "0",
    "MIOPEN_DEBUG_CONV_WINOGRAD": "0",  # Debian has no assembler sources
}
PREFIX = "ConvHipImplicitGemm"
KINDS = {
    "F": ["V4R1Fwd", "V4R4Fwd", "ForwardV4R4Xdlops", "ForwardV4R4Xdlops_Padded_Gemm", "ForwardV4R5Xdlops"],
    "B": ["BwdDataV1R1"],
    "W": ["V4R1WrW", "V4R4WrW", "WrwV4R4Xdlops", "WrwV4R4Xdlops_Padded_Gemm"],
}
"""Solvers with tunable parameters that this build of MIOpen can compile."""
SHAPES = [([128, 64, 28, 28, 64, 3, 3], 1, 1, 1), ([64, 128, 14, 14, 256, 1, 1], 0, 1, 1)]
NUMBERS = {name: number for number, name in SOLVERS.items()}
WORDS = Words(
    separator=",",
    texts=["-1", "0", "1", "16", "256", "abc", "0.5", "FooBar:1,0", f"{PREFIX}V4R4Fwd:256,128,128,16,4,4"],
    lines=["comment", "=", "a=b", "key=S:1,0,A", "# x=y"],
)

Pair: TypeAlias = tuple[ConvProblem, str]
Tried: TypeAlias = tuple[int, str]
"""Parameters that were tried: the number of a pair (convolution, solver), and the parameters as text."""


def shipped(rocm: Rocm) -> dict[str, list[str]]:
    """Return real parameters for each solver, from the file of tuned parameters that MIOpen ships for this GPU.

    Some may not fit a convolution.
    """
    item = re.compile(rf"({PREFIX}\w+):([-0-9,]+)")
    found: dict[str, dict[str, None]] = {PREFIX + name: {} for names in KINDS.values() for name in names}
    with open(rocm.folder / "root/usr/share/miopen/db/gfx90a68.db.txt", encoding="utf-8") as file:
        for solver, parameters in item.findall("".join(islice(file, 4000))):
            if solver in found:
                found[solver][parameters] = None
    return {solver: list(texts)[:12] for solver, texts in found.items()}


def generated(seed: int, pairs: Sequence[Pair], texts: Mapping[str, Sequence[str]]) -> str:
    """Return a random perf-db (MIOpen's file of tuned parameters).

    The file has lines for some convolutions, each with parameters of some solvers in any order.
    """
    random_ = random.Random(seed)
    records: dict[str, list[str]] = {}
    for problem, solver in random_.sample(pairs, random_.randrange(3, len(pairs))):
        item = f"{solver}:{random_.choice(texts[solver])}"
        records.setdefault(str(perf_key_of(problem)), []).append(item)
    lines = [f"{key}={';'.join(items)}" for key, items in records.items()]
    return "\n".join([*lines, lines[0]] if random_.random() < 0.1 else lines) + "\n"


def plain(pairs: Sequence[Pair], given: Mapping[int, str]) -> bytes:
    """Return a correct perf-db (MIOpen's file of tuned parameters) with the given parameters.

    ``given`` maps an index into ``pairs`` to parameters. A pair is a convolution and a solver.
    """
    records: dict[str, list[str]] = {}
    for number, parameters in given.items():
        problem, solver = pairs[number]
        records.setdefault(str(perf_key_of(problem)), []).append(f"{solver}:{parameters}")
    return "".join(f"{key}={';'.join(items)}\n" for key, items in records.items()).encode("utf-8", "surrogateescape")


def parameters_of(reading: Reading[Any], pair: Pair) -> str | None:
    """Look up the solver parameters for a pair (convolution, solver) in a perf-db as logparse does. May return None.

    A perf-db is MIOpen's file of tuned parameters.
    """
    problem, solver = pair
    row = look_up(OVERRIDE_FORMAT, reading, problem, has=lambda solution: solution.id == solver).row
    return None if row is None else row.text.partition(":")[2]


def ends(reading: Reading[Any], pairs: Sequence[Pair]) -> bool:
    """Return True if logparse warns that MIOpen may crash because of solver parameters in a file.

    Other convolutions and solvers than the ones in ``pairs`` (convolution, solver) are ignored.
    """
    for problem, solver in pairs:
        for row in reading.by_key.get(str(perf_key_of(problem)), ()):
            crashes = any(breach.note.rule == "crash" for breach in row.breaches)
            if crashes and not row.dead and row.solution is not None and row.solution.id == solver:
                return True
    return False


def built(
    ask: Callable[[bytes], Sequence[str | None]], pairs: Sequence[Pair], tried: set[Tried]
) -> dict[Tried, str | None]:
    """Ask MIOpen which kernel it compiles if a file tells it to use certain solver parameters.

    ``tried`` has the texts of parameters to ask about.
    """
    # Each question uses a new file that has only one text for each convolution and solver, so that other lines cannot
    # have an effect.
    found: dict[Tried, str | None] = {}
    queues = [sorted(text for number, text in tried if number == at) for at in range(len(pairs))]
    while any(queues):
        given = {number: queue.pop() for number, queue in enumerate(queues) if queue}
        answers = ask(plain(pairs, given))
        found |= {(number, text): answers[number] for number, text in given.items()}
    return found


def test_miopen_builds_with_the_parameters_that_the_reader_finds(rocm: Rocm, tmp_path: Path) -> None:
    asked: list[tuple[Asked, str]] = []
    for direction, shape in product("FBW", SHAPES):
        asked += [((direction, "f32_r", *shape), PREFIX + name) for name in KINDS[direction]]
    pairs = [(call(one), solver) for one, solver in asked]
    for name in ("empty", "db"):
        (tmp_path / name).mkdir()
    folders = {"MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "empty"), "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    texts = shipped(rocm)
    assert all(texts.values())
    files = {}
    for seed in range(sized(300, 3_000)):
        lines = generated(seed, pairs, texts)
        files[f"seed {seed}"] = lines.encode() if seed % 12 == 0 else mutated(seed, lines, WORDS)
    readings = {name: OVERRIDE_FORMAT.reader(FILE, data, TARGET) for name, data in files.items()}
    found = {name: [parameters_of(reading, pair) for pair in pairs] for name, reading in readings.items()}
    with rocm.driver("miopen_perf_lookup", SETTINGS | folders) as driver:
        assert driver.ask([(one, NUMBERS[solver]) for one, solver in asked]) == TARGET["miopen_version"]

        def ask(data: bytes) -> Sequence[str | None]:
            (tmp_path / "db" / FILE).write_bytes(data)
            answer: list[str | None] = driver.ask(["folder", str(tmp_path / "db")])
            return answer

        own = ask(b"")
        alone = built(ask, pairs, {(n, x) for texts in found.values() for n, x in enumerate(texts) if x is not None})
        different, hits = [], 0
        for name, data in files.items():
            try:
                answers = ask(data)
            except CrashError as crash:
                hits += 1
                if not ends(readings[name], pairs):
                    different.append(Difference(name, data, "all calls", f"{crash}", "answers"))
                continue
            for number, (pair, used, text) in enumerate(zip(pairs, answers, found[name], strict=True)):
                hits += used != own[number]
                if used != (own[number] if text is None else alone[number, text]):
                    where = f"{pair[1]} of {perf_key_of(pair[0])}"
                    different.append(Difference(name, data, where, f"{used}", f"parameters {text}"))
    compared("MIOpen user perf-db", len(files), len(files) * len(pairs), hits, different)
