"""TunableOp's list of untuned products (``tunableop_untuned0.csv``): calls for which a job had no tuned row.

::

    GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096
    GemmAndBiasTunableOp_float_TN,tn_200_100_20_ld_20_20_200,BLAS_PARAMS: - { function: matmul, M: 200, … }

PyTorch writes the file with ``PYTORCH_TUNABLEOP_ENABLED=1 PYTORCH_TUNABLEOP_TUNING=0
PYTORCH_TUNABLEOP_RECORD_UNTUNED=1`` (2.6 and later).  Each process writes a key once.  So a line means that the call
happened, but not how often (``count`` is ``None``).  Source: pytorch/pytorch aten/src/ATen/cuda/tunable/Tunable.cpp,
torch/cuda/tunable.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from logparse.errors import EmissionError
from logparse.libraries.kinds.format import Emission, FileFormat, Head, Outcome, Source, Writer
from logparse.libraries.kinds.patterns import regex
from logparse.libraries.tunableop import signature
from logparse.libraries.tunableop.results import BOM, key_of, lines_of
from logparse.model import Call, GemmProblem, Override, Reject
from logparse.quoting import Shell

FILE_NAME = "tunableop_untuned0.csv"
CATEGORY = "untuned"
_BEGIN = regex(rf"{signature.OP_TEXT}[^,\n]*,[^,\n]*(?:,BLAS_PARAMS:.*)?\r?(?:\n|\Z)")


def recognise(head: Head) -> bool:
    """Return True if a file is TunableOp's list of products that were not tuned yet.

    The first line of such a list is the key of a product, alone or followed by ``BLAS_PARAMS``.
    """
    return _BEGIN.match(head.data.decode("utf-8", "replace").removeprefix(BOM).lstrip("\r\n")) is not None


def read(source: Source) -> Iterator[Outcome]:
    """Read TunableOp's list of matrix products that were not tuned yet, one product per line.

    The list does not state how often a product was called.  A line that cannot be read is reported as an error.
    """
    for at, text in lines_of(source):
        record = row(text)
        if not text:
            yield Outcome("blank")
        else:
            yield Outcome("call" if isinstance(record, Call) else "reject", [record], at=at)


def row(text: str) -> Call | Reject:
    """Parse one line of TunableOp's list of products that were not tuned yet.  ``text`` has no line end."""
    op, comma, rest = text.partition(",")
    params, _, extra = rest.partition(",")
    if not comma:
        return Reject("the line has fewer than two fields", 0, len(text.encode()))
    try:
        problem = signature.problem(op, params)
    except signature.SignatureError as error:
        start = len(op.encode()) + 1 if error.part else 0
        return Reject(str(error), start, len((op, params)[error.part].encode()))
    if extra.startswith("BLAS_PARAMS:"):
        problem = signature.with_blas_params(problem, extra)
    elif extra:
        return Reject(
            "the line is not a row of TunableOp's untuned CSV, because its third field is not BLAS_PARAMS",
            len(f"{op},{params},".encode()),
            len(extra.encode()),
        )
    return Call(problem=problem, category=CATEGORY, count=None)


FORMAT = FileFormat(
    "tunableop-untuned",
    "PyTorch's TunableOp untuned CSV: the GEMMs that a job called and that are not tuned",
    recognise,
    read,
    seen="PyTorch 2.9 and 2.11",
    example="GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_…",
    gives="calls without a count",
    how="`PYTORCH_TUNABLEOP_ENABLED=1 PYTORCH_TUNABLEOP_TUNING=0 PYTORCH_TUNABLEOP_RECORD_UNTUNED=1` (torch "
    "2.6 and later)",
)


# ---------------------------------------------------------------------------------------------------------------- write

SCRIPT_NAME = "tune_tunableop.py"

_SCRIPT = '''\
"""Tune the GEMMs of tunableop_untuned0.csv on this GPU.  Needs PyTorch 2.6 or later and nothing else.

    python tune_tunableop.py [UNTUNED_CSV [RESULTS_NAME]]

Writes RESULTS_NAME with the device's number before the last dot (tunableop_tuned.csv: tunableop_tuned0.csv).
One key that PyTorch cannot rebuild does not stop the others; keys without a result are listed at the end.
"""

import os
import sys
import tempfile

import torch
from torch.cuda import tunable


def main(untuned, results):
    with open(untuned, encoding="utf-8") as file:
        lines = list(dict.fromkeys(line.strip() for line in file if "TunableOp_" in line))
    tunable.set_filename(results, True)
    tunable.enable(True)
    tunable.tuning_enable(True)
    wanted = [tuple(line.split(",")[:2]) for line in lines]
    for number, (line, key) in enumerate(zip(lines, wanted), start=1):
        with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as one:
            one.write(line + "\\n")
        try:
            tunable.tune_gemm_in_file(one.name)
            torch.cuda.synchronize()
            print(f"{number}/{len(lines)} {','.join(key)}", flush=True)
        except (AssertionError, RuntimeError, ValueError) as error:
            print(f"{number}/{len(lines)} {','.join(key)}: {type(error).__name__}: {error}", flush=True)
        finally:
            os.unlink(one.name)
    if hasattr(tunable, "write_file"):  # up to 2.9; later versions write each result at once
        tunable.write_file()
    tuned = {tuple(row[:2]) for row in tunable.get_results()}
    lost = [key for key in wanted if key not in tuned]
    print(f"{len(wanted) - len(lost)} of {len(wanted)} keys tuned")
    for key in lost:
        print("no result for", ",".join(key), "(run the job itself with PYTORCH_TUNABLEOP_TUNING=1 for these)")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] + ["tunableop_untuned0.csv", "tunableop_tuned.csv"][len(sys.argv) - 1 :])))
'''

_USE = Shell("""\
cd {folder} && python tune_tunableop.py
# Times every candidate of every key (minutes to hours) and writes tunableop_tuned0.csv.  To keep all the times,
# which `logparse ingest` reads:
#   PYTORCH_TUNABLEOP_VERBOSE=3 PYTORCH_TUNABLEOP_VERBOSE_FILENAME=tunableop_verbose.log python tune_tunableop.py
""")


def accepts(override: Override) -> bool:
    """Return True if TunableOp can tune this matrix product.  Which kernel the override names does not matter."""
    gemm = override.problem
    return isinstance(gemm, GemmProblem) and gemm.kind == "gemm" and signature.has_op(gemm)


def write(overrides: Sequence[Override], target: Mapping[str, str]) -> list[Emission]:
    """Write a list of products that TunableOp must tune, and a script that tunes them without the job.

    Each key is written once, in the order of the overrides (most valuable first).

    Raises EmissionError in these cases:

    * It is unknown how the target's PyTorch spells keys, or a field of a key is unknown.
    * PyTorch is older than 2.6.
    * TunableOp has nothing to choose from except ``Default`` on the target (CUDA before 2.14).
    """
    signature.refuse_untunable(target)
    torch = signature.torch_version(target)
    if torch is not None and torch < (2, 6):
        raise EmissionError(f"TunableOp: PyTorch {torch[0]}.{torch[1]} cannot tune from a file, but 2.6 and later can")
    keys = dict.fromkeys(key_of(override, target) for override in overrides)
    data = "".join(f"{key}\n" for key in keys).encode()
    return [Emission(FILE_NAME, data, _USE), Emission(SCRIPT_NAME, _SCRIPT.encode(), Shell())]


WRITER = Writer(
    FORMAT.name,
    "TunableOp's untuned CSV, with a script that tunes its GEMMs offline",
    accepts,
    signature.key,
    write,
    file="`tunableop_untuned0.csv` and a script",
    read_when="you run the script. It tunes the GEMMs that the CSV file lists, and does not need the job",
)
