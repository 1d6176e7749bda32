"""Fused-MoE tables of vLLM and SGLang: file names, and log lines about tables that were found or are missing.

A table holds the tile sizes of a Triton kernel per number of tokens.

::

    E=128,N=1024,device_name=AMD_Instinct_MI325X,dtype=fp8_w8a8.json
    {"triton_version": "3.4.0", "1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1,
     "num_warps": 4, "num_stages": 2}, "64": {…}}

    WARNING 05-03 17:42:23 [fused_moe.py:668] Using default MoE config. Performance might be sub-optimal! Config file
        not found at /…/configs/E=16,N=1536,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json
    INFO 05-03 17:42:23 [fused_moe.py:655] Using configuration from /…/E=8,N=3584,device_name=….json for MoE layer.

A server looks for a table by its *file name*: experts, width, device, type, block.  For a batch it takes the entry with
the nearest number of tokens.  ``benchmarks/kernels/benchmark_moe.py --tune`` (vLLM) and
``benchmark/kernels/fused_moe_triton/`` (SGLang) make the tables.  Servers read them from ``VLLM_TUNED_CONFIG_FOLDER``,
``SGLANG_MOE_CONFIG_DIR`` or the packages' own folders.  Lines about block-scaled 8-bit products have the same form and
name ``N=…,K=…`` tables.

A table is not read as problems, because its name lacks the hidden size.  An entry is not read as a measurement, because
it has no time.
``lint``, ``coverage`` and ``verify`` read tables (``rules.py``).  Lines of a log become messages.  The function of a
message is the table's name without ``.json``.  Its text is ``not found``, ``fallback`` or ``found``.
Source: vllm-project/vllm vllm/model_executor/layers/fused_moe/fused_moe.py (``get_moe_configs``,
``get_config_file_name``), sgl-project/sglang python/sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py.
"""

from __future__ import annotations

from logparse.libraries.kinds.format import FOREIGN, Head, LineFormat, Outcome
from logparse.libraries.kinds.line_prefixes import WORKER
from logparse.libraries.kinds.patterns import regex
from logparse.model import Message

CATEGORY = "moe-config"
MISSING, FALLBACK, FOUND = "not found", "fallback", "found"
"""Results of a server's search for a fused-MoE table, as the texts of messages.

* ``not found``: the server found no table.
* ``fallback``: the server used a table of another Triton version.
* ``found``: the server used the table.
"""

NAME = regex(r"(?:E=\d+,)?N=\d+,(?:K=\d+,)?device_name=[^/\s'\"]+?(?=\.json)")
"""Pattern of the file name of a fused-MoE table, without ``.json``.

SGLang's ``block_shape=[128, 128]`` has a blank, which ``_names`` removes first.
"""
_FIELD = regex(r"(?:^|,)(\w+)=(\[[\d,]*\]|[^,]*)")
_SPACED = regex(r"(block_shape=\[\d+), (\d+\])")
_TABLE = regex(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:triton_version"\s*:\s*"[^"]*"\s*,\s*"\d+|\d+)"\s*:\s*\{\s*"[A-Za-z_]+"')
_FOUND = regex(r"Using (?:configuration|[\w ]*config) from ")
_PID = regex(WORKER)


def recognise(head: Head) -> bool:
    """Return True if a file is a fused-MoE table: a JSON object with kernel settings for several numbers of tokens.

    The settings may be for Triton, or for FlyDSL, which vLLM 0.25 reads.
    """
    return _TABLE.match(head.data) is not None and (b'"BLOCK_SIZE_M"' in head.data or b'"tile_m"' in head.data)


def advice(head: Head) -> str | None:
    """Tell what a fused-MoE table is, and which command reads it. Return None for any other file."""
    if not recognise(head):
        return None
    told = (
        "the file is a fused-MoE table of vLLM or SGLang. It has settings of kernels, but no calls and no times, so "
        "there is nothing to ingest"
    )
    return told + "; `logparse lint` checks the table" * (b'"BLOCK_SIZE_M"' in head.data)


# ------------------------------------------------------------------------------------------------ log lines


def read_line(text: str) -> Outcome:
    """Read a log line in which a server says whether it found its tables of fused-MoE kernels.

    Returns one message per table in the line.
    """
    names = _names(text)
    if not names:
        start = text.find("Using default MoE ")
        if start < 0:
            return FOREIGN
        # A warning that the server uses its default configuration gives a message even if it names no table.
        return Outcome("message", [Message(category=CATEGORY, text=text[start : start + 300])])
    found = _FOUND.search(text) is not None and "not found" not in text
    what = FOUND if found else FALLBACK if "allback" in text else MISSING
    return Outcome("message", [Message(category=CATEGORY, function=name, text=what) for name in names])


def fields(name: str) -> dict[str, str]:
    """Split the name of a fused-MoE table into its parts: E, N, K, device_name, dtype and block_shape."""
    return dict(_FIELD.findall(name))


def is_name(text: str) -> bool:
    """Return True if the text may be the file name of a fused-MoE kernel table, without ``.json``."""
    match = NAME.match(f"{text}.json")
    return match is not None and match.end() == len(text)


def _names(text: str) -> list[str]:
    """Return the names of fused-MoE tables in a text, each once.

    SGLang's names contain a blank, which is removed.
    """
    return list(dict.fromkeys(NAME.findall(_SPACED.sub(r"\1,\2", text))))


def process(text: str) -> int | None:
    """Return the process number in the prefix of a server's log line, or None if the line has no such prefix."""
    match = _PID.match(text)
    return int(match["pid"]) if match else None


LOG = LineFormat(
    name="moe-config-log",
    about="lines in which vLLM and SGLang report MoE configurations that they found or missed",
    markers=(b",device_name=", b"Using default MoE "),
    start=rb"^[^\n]*?(?:,device_name=|Using default MoE )",
    read=read_line,
    process=process,
    seen="vLLM 0.8.5 and later, SGLang 0.4",
    example="Using default MoE config. … Config file not found at …",
    gives="messages: found, missing",
    how="save the log of a vLLM or SGLang server: it has lines about the tables that the server found or missed",
)
FORMATS = (LOG,)
