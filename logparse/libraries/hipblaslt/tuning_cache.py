"""hipBLASLt's runtime tuning cache: its rows in a tuning file, and the lines that the library prints about the cache.

The library writes the cache with ``HIPBLASLT_TUNING_MODE=tune HIPBLASLT_TUNING_CACHE_PATH=FILE``.  ``hipblaslt-bench``
of the same versions writes it with ``HIPBLASLT_TUNING_FILE`` (hipBLASLt's documentation of offline tuning, 1.5).  An
entry is a header line that begins with ``schema_version``, and a line of 61 values::

    schema_version,git_version,transA,transB,m,n,k,batch_count,a_type,…,solution_index,kernel_name,…,us,complete,…
    1,4f1c2d9a,T,N,2048,1024,2048,1,f16_r,…,247670,Cijk_Alik_Bljk_HHS_BH_…,0,21.9,1,…

The reader of the cache compares all columns of the problem with a call.  It takes the index only if the index still
names the same kernel.  Readers of tuning files up to ROCm 7.2 (hipBLASLt 1.2.2) drop such rows, because the columns
have another order.  No column states β.

With a log level, the library prints to standard error (as Info lines)::

    tuning-cache: mode=tune path=tuning.txt load=not-found loaded=0
    tuning-cache: summary shapes=12 matched=1 fellback=11 tuned=1 invalidated=7

Source: ROCm/rocm-libraries ``projects/hipblaslt``, ``TuningCacheStore.cpp``: ``formatTuningRow`` and
``problemFromEntries``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from logparse.libraries.hipblaslt.arguments import problem_of_row
from logparse.libraries.hipblaslt.enums import EPILOGUES
from logparse.libraries.kinds.format import FOREIGN, LineFormat, Outcome
from logparse.model import GemmProblem, Message

SINCE = 100_500
"""First hipBLASLt version that may read rows of the runtime tuning cache in a tuning file."""
SCHEMA = "schema_version"

_EPILOGUES = {
    1: "DEFAULT",
    2: "RELU",
    4: "BIAS",
    6: "RELU_BIAS",
    32: "GELU",
    36: "GELU_BIAS",
    130: "RELU_AUX",
    134: "RELU_AUX_BIAS",
    136: "DRELU",
    152: "DRELU_BGRAD",
    160: "GELU_AUX",
    164: "GELU_AUX_BIAS",
    192: "DGELU",
    208: "DGELU_BGRAD",
    256: "BGRADA",
    512: "BGRADB",
}
"""The name of each epilogue for the library's number (``hipblasLtEpilogue_t``)."""


def is_header(names: Sequence[str] | None) -> bool:
    """Return True if these are the column names of hipBLASLt's runtime tuning cache."""
    return names is not None and SCHEMA in {name.strip() for name in names}


def problem(cells: Mapping[str, str]) -> GemmProblem:
    """Return the matrix product in a row of hipBLASLt's runtime tuning cache.

    ``cells`` maps the names of the columns to texts. Raises ValueError if a column is missing or a number cannot be
    read.
    """
    names = ("transA", "transB", "m", "n", "k", "batch_count", "lda", "ldb", "ldc", "ldd", "epilogue", "compute_type")
    missing = [x for x in (*names, "a_type", "b_type", "c_type", "d_type", "solution_index", "us") if not cells.get(x)]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    made = problem_of_row({**{x: y for x, y in cells.items() if x not in ("bias_type", "scaleA", "scaleB")}})
    assert made is not None, "the columns lack grouped_gemm"
    epilogue = EPILOGUES.get(_EPILOGUES.get(int(cells["epilogue"]), ""))
    fields: dict[str, Any] = vars(made) | (epilogue._asdict() if epilogue else {})
    fields = {name: value for name, value in fields.items() if name in GemmProblem.__dataclass_fields__}
    for x in "ab":  # The scale is a number of the library's own enumeration.
        fields[f"scale_{x}"] = "none" if cells.get(f"scale{x.upper()}") == "0" else None
        own = fields[f"{x}_type"] if cells.get(f"compute_input_type_{x}") == "0" else None
        fields[f"compute_input_{x}_type"] = own
    fields["scale_alpha_vector"] = {"0": False, "1": True}.get(cells.get("scaleAlphaVec", ""))
    fields["sm_count"] = int(cells.get("sm_count_target") or 0)
    fields["batch_mode"] = {"0": "strided", "1": "pointer"}.get(cells.get("batch_mode", ""))
    return GemmProblem(**fields)


_FALLEN_BACK = re.compile(r"\b(?:fellback|invalidated)=[1-9]")


def read_line(text: str) -> Outcome:
    """Read a line that hipBLASLt prints about its runtime tuning cache, and keep it as a message.

    If the cache lacked some calls (``fellback=11``), the message has the category ``info``, so that reports show it.
    """
    text = text.strip()
    if not text.startswith("tuning-cache: "):
        return FOREIGN
    category = "info" if _FALLEN_BACK.search(text) else "hipblaslt_tuning_cache"
    return Outcome("message", [Message(category=category, function="tuning-cache", text=text)])


LOG = LineFormat(
    name="hipblaslt-tuning-cache-log",
    about="lines in which hipBLASLt reports on its runtime tuning cache (HIPBLASLT_TUNING_MODE)",
    markers=(b"tuning-cache: ",),
    start=rb"^tuning-cache: ",
    read=read_line,
    seen="what its documentation prints",
    example="tuning-cache: summary shapes=12 matched=1 …",
    gives="messages",
)
FORMATS = (LOG,)
