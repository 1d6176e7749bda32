"""Test whether PyTorch's own reader of TunableOp files reads what ``tunableop.results_rules`` predicts. Run by hand.

    pip download --no-deps --dest wheels torch==2.15.0 "nvidia-cuda-runtime<14,>=13"
    PYTHONPATH=. python benchmarks/torch_reader.py wheels benchmarks/results/tunableop_reader_torch2.15.json

It needs neither a GPU nor an installed torch.  Both wheels are unpacked into a temporary folder (1.5 GB).  The other
libraries that ``libtorch_cuda.so`` wants are replaced by empty ones, because no function of them is called.
``torch_reader.cpp`` is compiled against PyTorch's headers.  The files come from ``gpu_tunableop.py``: its edits, and
mutations of several seeds, with one validator and with five.  The record holds every disagreement.  The exit code is 1
if there is any.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import gpu_tunableop as made

SEEDS = range(20, 30)
ROCM = {
    "ROCM_VERSION": "7.2.53211-e1a6bc5663",
    "GCN_ARCH_NAME": "gfx942:sramecc+:xnack-",
    "ROCBLAS_VERSION": "5.2.0.4f6b2c1",
    "HIPBLASLT_VERSION": "100202-fa4e",
}
"""Validators (version lines of a TunableOp file) that a build for AMD writes in addition to PT_VERSION."""


def unpacked(wheels: Path, folder: Path) -> str:
    """Unpack the libraries and headers of the wheels into ``folder``, and return torch's version."""
    (torch,) = wheels.glob("torch-*.whl")
    for wheel in (torch, *wheels.glob("nvidia_cuda_runtime-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [
                x
                for x in archive.namelist()
                if re.search(r"torch/include/|lib/lib(torch(_cpu|_cuda)?\.|c10|gomp|cudart)", x)
            ]
            archive.extractall(folder, names)
    for library in folder.rglob("libcudart.so*"):
        library.rename(folder / "torch/lib" / library.name)
    return torch.name.split("-")[1]


def built(folder: Path) -> Path:
    """Compile a C++ program that lets PyTorch's own code read a TunableOp file, and return its path.

    NVIDIA's libraries that are not installed are replaced by empty ones.
    """
    libraries = folder / "torch/lib"
    for library in ("libtorch_cuda.so", "libtorch_cpu.so", "libc10_cuda.so"):
        dynamic = subprocess.run(["readelf", "-d", libraries / library], capture_output=True, text=True, check=True)
        for name in re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl|torch_nv)[^]]*)\]", dynamic.stdout):
            if not (libraries / name).exists():
                empty = ["g++", "-shared", "-x", "c++", "/dev/null", f"-Wl,-soname,{name}", "-o", libraries / name]
                subprocess.run(empty, check=True)
    source, program = Path(__file__).with_suffix(".cpp"), folder / "reader"
    options = ["-std=c++20", "-O1", f"-I{folder}/torch/include", f"-L{libraries}"]
    options += ["-ltorch_cuda", "-ltorch_cpu", "-lc10", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run(["g++", source, *options, "-o", program], check=True)
    return program


def files(running: dict[str, str]) -> dict[str, bytes]:
    head = "".join(f"Validator,{key},{value}\n" for key, value in running.items())
    valid = head + "".join(f"{row}\n" for row in (*made.OTHERS[:2], f"{made.KEY},Default,0.01", made.OTHERS[2]))
    found = {**made.edits(head, running["PT_VERSION"]), "a valid file": valid.encode()}
    for seed in SEEDS:
        made.SEED = seed
        found |= {f"seed {seed}: {name}": data for name, data in made.mutations(valid).items()}
    return found


def asked(program: Path, running: dict[str, str], texts: dict[str, bytes], folder: Path) -> list[dict[str, Any]]:
    """Let PyTorch read each file, and return whether it accepts the file, and which rows it reads."""
    paths = []
    for number, data in enumerate(texts.values()):
        paths.append(folder / f"{number}.csv")
        paths[-1].write_bytes(data)
    command = [program, *(f"{name}={value}" for name, value in running.items())]
    environment = os.environ | {"LD_LIBRARY_PATH": str(program.parent / "torch/lib")}
    lines = subprocess.run(
        command, input="\n".join(map(str, paths)).encode(), capture_output=True, env=environment, check=True
    ).stdout.split(b"\n")
    found = []
    for line in lines[:-1]:
        state, *cells = line.decode("utf-8", "surrogateescape").split("\x1f")
        rows = [[*cells[at : at + 3], float(cells[at + 3])] for at in range(0, len(cells), 4)]
        found.append({"accepted": state == "accepted", "rows": rows})
    return found


def compared(data: bytes, running: dict[str, str], seen: dict[str, Any]) -> str:
    """Describe how PyTorch's reading of a file differs from what we predicted. Empty if there is no difference."""
    accepted, rows = made.predict(data, running)
    mine = sorted(rows, key=lambda row: (row.op, row.params))
    theirs = sorted(seen["rows"], key=lambda row: (row[0], row[1]))
    if accepted != seen["accepted"]:
        return f"accepted: predicted {accepted}"
    same = len(mine) == len(theirs) and all(map(made.same_row, mine, theirs))
    return "" if same else f"rows: predicted {mine}, were {theirs}"


def main() -> int:
    wheels, record = map(Path, sys.argv[1:])
    different, counts = {}, Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        version = unpacked(wheels, folder)
        program = built(folder)
        for more in ({}, ROCM):
            running = {"PT_VERSION": version, **more}
            texts = files(running)
            for (title, data), seen in zip(texts.items(), asked(program, running, texts, folder), strict=True):
                counts["files"] += 1
                counts["accepted" if seen["accepted"] else "rejected"] += 1
                counts["rows"] += len(seen["rows"])
                what = compared(data, running, seen)
                if what:
                    different[f"{len(running)} validators, {title}"] = what
    answer = {"torch": version, "seeds": [*SEEDS], **counts, "disagreements": different}
    record.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(answer, indent=1)[:3000])
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
