"""Test whether PyTorch reads TunableOp files as ``tunableop.results_rules`` predicts. Needs torch with a GPU.

    PYTHONPATH=. python benchmarks/gpu_tunableop.py benchmarks/results/tunableop_predictions.json

The program makes a valid results file with the validators of the running PyTorch.  It applies each edit of the reader's
table and 200 seeded one-edit mutations to that file.  For every file a fresh process calls
``torch.cuda.tunable.read_file``, ``get_results`` and one matmul whose key the file holds.  The verbose log shows
whether PyTorch found the row of that key.  The record holds every disagreement.  The exit code is 1 if there is any.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from logparse.libraries.tunableop import results_rules

MUTATIONS = 200
SEED = 20
# key of torch.nn.functional.linear with x 48×64 and w 96×64
OP, PARAMS = "GemmTunableOp_BFloat16_TN", "tn_96_48_64_ld_64_64_96"
KEY = f"{OP},{PARAMS}"
OTHERS = (
    "GemmTunableOp_float_NN,nn_80_48_64_ld_80_64_80,Default,0.00665",
    "GemmAndBiasTunableOp_BFloat16_TN,tn_96_48_64_ld_64_64_96,Default,0.0152",
    "GemmStridedBatchedTunableOp_Half_NN,nn_80_48_64_B_6_ld_80_64_80,Default,0.0067",
)
ALPHABET = 'Gemm_TN,0123456789.-*" \t\r\n#aDdefault:é'


def predict(data: bytes, running: Mapping[str, str]) -> tuple[bool, list[Any]]:
    """Predict whether PyTorch accepts a TunableOp file, and which of its rows it keeps.

    ``running`` are the validators (facts such as versions, which the file must contain) of the process that reads the
    file.
    """
    target = {f"validator:{name}": value for name, value in running.items()}
    # These are the validators of the process itself, so the set is complete.
    target |= {} if len(running) > 1 else {"backend": "CUDA"}
    reading = results_rules.read("results0.csv", data, target)
    pairs = zip(reading.parsed.entries, reading.rows, strict=True)
    return reading.accepted is True, [mine for mine, row in pairs if row.kept]


def predicted_call(rows: Sequence[Any], torch: tuple[int, int]) -> str:
    """Predict which kernel PyTorch runs for a matrix product, after it has read these rows of a TunableOp file.

    The product has the key ``KEY``, and the process knows only the kernel ``Default``:

    * "hit": PyTorch finds a row for the product, and the row names ``Default``.
    * "miss": there is no row for the product.
    * "default" or "raises": the row names an unknown kernel. The answer depends on the version of PyTorch.
    """
    names = [row.name for row in rows if row.key == KEY]
    unknown = "default" if torch >= (2, 14) else "raises"
    return "miss" if not names else "hit" if names == ["Default"] else unknown


# ------------------------------------------------------------------------------------------------------- the files


def edits(head: str, version: str) -> dict[str, bytes]:
    """Return variants of a valid TunableOp file, each with one deliberate edit. The keys are the names of the edits.

    ``head`` has the validators (version lines) of this PyTorch.
    """
    row = f"{KEY},Default,0.01\n"
    wrong, bom = "Validator,PT_VERSION,1.0.0\n", b"\xef\xbb\xbf"
    texts = {
        "ok": head + row,
        "three fields": head + f"{KEY},Default\n",
        "two fields": head + f"{KEY}\n",
        "five fields": head + f"{KEY},Default,0.01,x\n",
        "six fields, the last empty": head + f"{KEY},Default,0.01,x,\n",
        "a comment": head + "# text\n" + row,
        "a lone comma": head + ",\n" + row,
        "three commas": head + ",,,\n" + row,
        "a header row": head + "op,params,solution,time\n" + row,
        "blank lines": head + "\n\n" + row,
        "no final newline": head + row[:-1],
        "no validators": row,
        "empty file": "",
        "wrong version": wrong + row,
        "extra validator": head + "Validator,ROCM_VERSION,6.2\n" + row,
        "validator twice, wrong first": wrong + head + row,
        "validator twice, wrong last": head + wrong + row,
        "validators after the rows": row + head,
        "validator without a value": head + "Validator,PT_VERSION\n" + row,
        "validator with an empty value": head + "Validator,PT_VERSION,\n" + row,
        "validator with a fourth field": head.replace("\n", ",x\n") + row,
        "blank before the value": head.replace(version, f" {version}") + row,
        "blank behind the value": head.replace(version, f"{version} ") + row,
        "CRLF": (head + row).replace("\n", "\r\n"),
        "CRLF on a row": head + row.replace("\n", "\r\n"),
        "CRLF on three fields": head + f"{KEY},Default\r\n",
        "blank before the solution": head + f"{KEY}, Default,0.01\n",
        "unknown solution": head + f"{KEY},Gemm_Hipblaslt_42,0.01\n",
        "empty solution": head + f"{KEY},,0.01\n",
        "two rows, the first wins": head + row + f"{KEY},Gemm_Hipblaslt_1,0.5\n",
        "two rows, the unknown first": head + f"{KEY},Gemm_Hipblaslt_1,0.5\n" + row,
        "quoted": head + '"' + row.replace(",", '","', 2),
        "lower case": head + row.lower(),
        "without leading dimensions": head + row.replace("_ld_64_64_96", ""),
        "another leading dimension": head + row.replace("64_64_96,", "64_64_100,"),
        "glued": head + row[:-1] + f"{OTHERS[0]}\n",
    }
    texts |= {
        f"time {x!r}": head + f"{KEY},Default,{x}\n" for x in ("inf", "nan", "-1", "fast", "", " 2", "0x1p3", "1e999")
    }
    files = {name: text.encode() for name, text in texts.items()}
    return files | {"BOM": bom + (head + row).encode(), "BOM and validators": bom + (head + head + row).encode()}


def mutations(valid: str) -> dict[str, bytes]:
    """Return copies of a valid file with one random edit each.

    An edit replaces, inserts or deletes a character, or it repeats, moves, drops or cuts a line.
    """
    chance = random.Random(SEED)
    out = {}
    for number in range(MUTATIONS):
        at = chance.randrange(len(valid))
        lines = valid.splitlines(keepends=True)
        one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
        what = chance.choice(("replace", "insert", "delete", "repeat", "move", "drop", "cut"))
        letter = chance.choice(ALPHABET)
        if what == "replace":
            text = valid[:at] + letter + valid[at + 1 :]
        elif what == "insert":
            text = valid[:at] + letter + valid[at:]
        elif what == "delete":
            text = valid[:at] + valid[at + 1 :]
        elif what == "cut":
            text = valid[:at]
        else:
            line = lines[one] if what == "repeat" else lines.pop(one)
            if what != "drop":
                lines.insert(two, line)
            text = "".join(lines)
        out[f"{number} {what}"] = text.encode()
    return out


# ----------------------------------------------------------------------------------------------------- what torch does


def observe(path: str, folder: str, pipe: Connection) -> None:
    """Let PyTorch read a TunableOp file. Send a dict through ``pipe`` that says what PyTorch did.

    This function runs in a process of its own.
    """
    log = Path(folder, Path(path).stem + ".log")
    os.environ |= {
        "PYTORCH_TUNABLEOP_ENABLED": "1",
        "PYTORCH_TUNABLEOP_TUNING": "0",
        "PYTORCH_TUNABLEOP_VERBOSE": "3",
        "PYTORCH_TUNABLEOP_VERBOSE_FILENAME": str(log),
        "PYTORCH_TUNABLEOP_FILENAME": str(Path(folder, "none.csv")),
    }
    warnings.simplefilter("ignore")
    import torch
    from torch.cuda import tunable

    tunable.enable(True)
    tunable.tuning_enable(False)
    found: dict[str, Any] = {"validators": dict(tunable.get_validators())}
    if path:
        found["accepted"] = tunable.read_file(path)
        found["rows"] = [list(row) for row in tunable.get_results()]
        x, w = (torch.ones(n, 64, dtype=torch.bfloat16, device="cuda") for n in (48, 96))
        try:
            torch.nn.functional.linear(x, w)
            torch.cuda.synchronize()
            output = log.read_text(errors="replace")
            found["call"] = "hit" if f"ResultEntry found for {KEY}" in output else "miss"
        except RuntimeError as error:
            found["call"] = "raises" if "ops_.end()" in str(error) else f"error: {str(error)[:200]}"
    pipe.send(found)
    pipe.close()


def ask(path: str, folder: str) -> dict[str, Any]:
    # Forking saves a second per process, because torch is imported already. CUDA is not used before the fork.
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=observe, args=(path, folder, theirs))
    child.start()
    theirs.close()
    try:
        found: dict[str, Any] = mine.recv()
    except EOFError:
        found = {"call": "the process died"}
    child.join()
    return found


def same_row(mine: Any, theirs: list[Any]) -> bool:
    """Tell whether two rows of a TunableOp file have equal texts, and times that agree to the precision of float32."""
    if [mine.op, mine.params, mine.name] != theirs[:3]:
        return False
    a, b = mine.time_ms, theirs[3]
    return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-6)


def disagreements(data: bytes, running: dict[str, str], torch: tuple[int, int], seen: dict[str, Any]) -> list[str]:
    accepted, rows = predict(data, running)
    call = predicted_call(rows, torch)
    out = []
    if accepted != seen.get("accepted"):
        out.append(f"accepted: predicted {accepted}, was {seen.get('accepted')}")
    mine = sorted(rows, key=lambda row: (row.op, row.params))
    theirs = sorted(seen.get("rows", []), key=lambda row: (row[0], row[1]))
    if len(mine) != len(theirs) or not all(map(same_row, mine, theirs)):
        out.append(f"rows: predicted {[(x.op, x.params, x.name, x.time_ms) for x in mine]}, were {theirs}")
    if call != seen.get("call"):
        out.append(f"call: predicted {call}, was {seen.get('call')}")
    return out


def main(record: str) -> int:
    import torch

    version = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    major_minor = (int(version.split(".")[0]), int(version.split(".")[1]))
    with tempfile.TemporaryDirectory() as folder:
        running = ask("", folder)["validators"]
        head = "".join(f"Validator,{key},{value}\n" for key, value in running.items())
        valid = head + "".join(f"{row}\n" for row in (*OTHERS[:2], f"{KEY},Default,0.01", OTHERS[2]))
        files = {**edits(head, running["PT_VERSION"]), "a valid file": valid.encode(), **mutations(valid)}
        paths = {}
        for number, (name, data) in enumerate(files.items()):
            paths[name] = str(Path(folder, f"case{number}.csv"))
            Path(paths[name]).write_bytes(data)
        with ThreadPoolExecutor(8) as pool:
            seen = dict(zip(files, pool.map(lambda name: ask(paths[name], folder), files), strict=True))
    wrong = {n: d for n, data in files.items() if (d := disagreements(data, running, major_minor, seen[n]))}
    counts = {"accepted": 0, "rejected": 0, "hit": 0, "miss": 0, "raises": 0}
    for found in seen.values():
        counts["accepted" if found.get("accepted") else "rejected"] += 1
        counts[found["call"]] = counts.get(found["call"], 0) + 1
    result = {
        "torch": torch.__version__,
        "validators": running,
        "seed": SEED,
        "files": len(files),
        "edits": len(files) - MUTATIONS - 1,
        "mutations": MUTATIONS,
        "observed": counts,
        "disagreements": {name: {"file": files[name].decode(errors="replace"), "what": x} for name, x in wrong.items()},
    }
    Path(record).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=1, ensure_ascii=False))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
