"""Fused-MoE configurations of vLLM and SGLang: names of the tables of Triton tiles, and log lines about missing ones.

::

    E=128,N=1024,device_name=AMD_Instinct_MI325X,dtype=fp8_w8a8.json
    {"triton_version": "3.4.0", "1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1,
     "num_warps": 4, "num_stages": 2}, "64": {…}}

    WARNING 05-03 17:42:23 [fused_moe.py:668] Using default MoE config. Performance might be sub-optimal! Config file
        not found at /…/configs/E=16,N=1536,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json
    INFO 05-03 17:42:23 [fused_moe.py:655] Using configuration from /…/E=8,N=3584,device_name=….json for MoE layer.

A table is looked up by its *name*: experts, width, device, type, block.  A batch takes the entry whose number of tokens
is nearest.  ``benchmarks/kernels/benchmark_moe.py --tune`` (vLLM) and ``benchmark/kernels/fused_moe_triton/`` (SGLang)
make the tables.  Servers read them from ``VLLM_TUNED_CONFIG_FOLDER``, ``SGLANG_MOE_CONFIG_DIR`` or the packages' own
folders.  Lines about block-scaled 8-bit products have the same form and name ``N=…,K=…`` tables.

Because the name lacks the hidden size, a table is no problem.  Because an entry lacks its time, it is no measurement.
``lint``, ``coverage`` and ``verify`` read tables (``rules.py``).  Lines of a log become messages.  Their function is
the table's name without ``.json``, their text ``not found``, ``fallback`` or ``found``.
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
"""Texts of messages: no table was found, a table of another Triton version, or the table itself."""

NAME = regex(r"(?:E=\d+,)?N=\d+,(?:K=\d+,)?device_name=[^/\s'\"]+?(?=\.json)")
"""A table's name without ``.json``.  SGLang's ``block_shape=[128, 128]`` has a blank, which ``_names`` removes."""
_FIELD = regex(r"(?:^|,)(\w+)=(\[[\d,]*\]|[^,]*)")
_SPACED = regex(r"(block_shape=\[\d+), (\d+\])")
_TABLE = regex(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:triton_version"\s*:\s*"[^"]*"\s*,\s*"\d+|\d+)"\s*:\s*\{\s*"[A-Za-z_]+"')
_FOUND = regex(r"Using (?:configuration|[\w ]*config) from ")
_PID = regex(WORKER)


def recognise(head: Head) -> bool:
    """Return True for an object of token counts with tiles.

    The tiles are Triton's, or FlyDSL's, which vLLM 0.25 reads.
    """
    return _TABLE.match(head.data) is not None and (b'"BLOCK_SIZE_M"' in head.data or b'"tile_m"' in head.data)


# ------------------------------------------------------------------------------------------------ log lines


def read_line(text: str) -> Outcome:
    """Return the outcome of one line: a message per table that it names.

    A warning that names no table is a message, too.
    """
    names = _names(text)
    if not names:
        start = text.find("Using default MoE ")
        if start < 0:
            return FOREIGN
        return Outcome("message", [Message(category=CATEGORY, text=text[start : start + 300])])
    found = _FOUND.search(text) is not None and "not found" not in text
    what = FOUND if found else FALLBACK if "allback" in text else MISSING
    return Outcome("message", [Message(category=CATEGORY, function=name, text=what) for name in names])


def fields(name: str) -> dict[str, str]:
    """Return the fields of a table's name: E, N, K, device_name, dtype, block_shape."""
    return dict(_FIELD.findall(name))


def is_name(text: str) -> bool:
    """Return True if a table may have this name (without ``.json``)."""
    match = NAME.match(f"{text}.json")
    return match is not None and match.end() == len(text)


def _names(text: str) -> list[str]:
    """Return the tables that a text names, each once and without the blank in SGLang's names."""
    return list(dict.fromkeys(NAME.findall(_SPACED.sub(r"\1,\2", text))))


def process(text: str) -> int | None:
    """Return the process that the engine's prefix names, or None."""
    match = _PID.match(text)
    return int(match["pid"]) if match else None


LOG = LineFormat(
    name="moe-config-log",
    about="lines of vLLM and SGLang about MoE configurations that were found or are missing",
    markers=(b",device_name=", b"Using default MoE "),
    start=rb"^[^\n]*?(?:,device_name=|Using default MoE )",
    read=read_line,
    process=process,
    seen="vLLM 0.8.5 and later, SGLang 0.4",
    example="Using default MoE config. … Config file not found at …",
    gives="messages: found, missing",
    how="a server's lines about tables that were found or are missing",
)
FORMATS = (LOG,)
