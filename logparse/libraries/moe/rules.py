"""Rules for fused-MoE tables of vLLM and SGLang: does a server find a table, and which entries can it run?

A server builds the table's name from the experts, the width per GPU, the device, the type and the block.  It opens the
file of that name.  If the name of a file differs by one letter, the file is never read.  The server applies
``json.load`` to the whole file and ``int()`` to every name except ``triton_version``.  If a name is no number,
``int()`` raises and the server ends.  For a batch the server takes the entry with the nearest number of tokens.  If two
entries are equally near, it takes the first.  An entry's members are arguments of a Triton kernel.  Block sizes must be
powers of two.  If Triton's backend does not know an option, the launch fails.

Tables of block-scaled products (``N=…,K=…``, no experts) are read in the same way, but with two differences:
``triton_version`` is no exception, and only the server's own folder is searched.  The kernel of such products loads
one scale per step along K, so a step must not be longer than a block.
Source: vllm-project/vllm vllm/model_executor/layers/fused_moe/fused_moe.py (``get_config_file_name``,
``get_moe_configs``, ``invoke_fused_moe_kernel``), sgl-project/sglang
python/sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py; ``get_w8a8_block_fp8_configs`` and
``_w8a8_block_fp8_matmul`` of vLLM's ``fp8_utils.py`` and SGLang's ``fp8_kernel.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from logparse.devices import device_of
from logparse.errors import InputError
from logparse.libraries.kinds.format import Emission, Head
from logparse.libraries.kinds.json_members import Member, members_of
from logparse.libraries.kinds.override_format import Merging, OverrideFormat, Report, cut_members
from logparse.libraries.kinds.reading import Note, Offer, Reading, Rule, Table
from logparse.libraries.moe import config as moe_config
from logparse.model import OperatorProblem, Problem, Solution
from logparse.quoting import Shell
from logparse.target import Facts, arch

_VERSION = "triton_version"
_TUNE = (
    "tune the table on the target with benchmark_moe.py or benchmark_w8a8_block_fp8.py (vLLM), or benchmark/kernels "
    "(SGLang)"
)
_BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
_AMD = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
_KNOWN = {*_BLOCKS, "GROUP_SIZE_M", "SPLIT_K", "num_warps", "num_stages", "num_ctas", "USE_TMA", *_AMD}
_BLOCK = re.compile(r"\[\d+,(\d{1,9})\]")
_INTEGER = re.compile(r"\s*[+-]?\d{1,18}(?:_\d{1,18})*\s*\Z", re.ASCII)
"""Pattern of the texts that Python's ``int()`` accepts."""


@dataclass(frozen=True)
class Tile:
    """One entry of a fused-MoE table: the kernel settings for a number of tokens.

    * ``key`` is the table's name.
    * ``words`` holds the settings by name.  It is ``None`` if the entry is no JSON object.
    * ``member`` is the entry in the file.
    """

    key: str
    tokens: int
    words: Mapping[str, object] | None
    member: Member
    time_us: float | None = None

    @property
    def line(self) -> int:
        return self.member.line

    @property
    def problem(self) -> OperatorProblem:
        return OperatorProblem(self.key, ())

    @property
    def solution(self) -> Solution | None:
        words = ",".join(f"{name}={word}" for name, word in (self.words or {}).items())
        return Solution("triton", f"M={self.tokens},{words}") if words else None

    @property
    def text(self) -> str:
        return f'"{self.tokens}": {json.dumps(self.words)}'


@dataclass(frozen=True)
class _Context:
    name: str
    """Name of the fused-MoE table, without ``.json``."""
    version: str
    last: Mapping[int, Tile]
    """The entry that the server uses for each number of tokens, which is the last one in the file."""

    def field(self, name: str) -> str:
        return moe_config.fields(self.name).get(name, "")

    @property
    def scaled(self) -> int | None:
        """Number of elements along K that share one scale factor, in a table for block-scaled products.

        None for any other table.
        """
        block = None if _has_experts(self.name) else _BLOCK.fullmatch(self.field("block_shape"))
        return int(block[1]) if block else None


# ----------------------------------------------------------------------------------------------- rules about entries


def _later(entry: Tile, context: _Context) -> str | None:
    other = context.last[entry.tokens]
    return None if other is entry else f"line {other.line} also has {entry.tokens} tokens, and the later entry is used"


def _repeated(entry: Tile, context: _Context) -> str | None:
    return entry.member.ambiguous


def _negative(entry: Tile, context: _Context) -> str | None:
    return f"the entry is never used, because no batch has {entry.tokens} tokens" if entry.tokens < 1 else None


def _no_tile(entry: Tile, context: _Context) -> str | None:
    if entry.words is None:
        return "the entry is not a JSON object with the kernel's block sizes (such as BLOCK_SIZE_M)"
    needed = [*_BLOCKS, "GROUP_SIZE_M"]
    if context.field("dtype") in ("int4_w4a16", "int8_w8a16"):
        # The kernel chooses the other sizes for these types.
        needed = ["BLOCK_SIZE_M", "GROUP_SIZE_M"]
    missing = [name for name in needed if name not in entry.words]
    return f"the entry lacks {', '.join(missing)}, so the kernel cannot be launched" if missing else None


def _odd_size(entry: Tile, context: _Context) -> str | None:
    wrong = []
    for name in (*_BLOCKS, "num_warps", "GROUP_SIZE_M", "num_stages", "SPLIT_K"):
        value = (entry.words or {}).get(name, 1)
        least = 0 if name == "num_stages" else 1
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
        power = name in _BLOCKS or name == "num_warps"
        if not isinstance(value, int) or not whole or (power and value & (value - 1)):
            wrong.append(f"{name} {value!r}")
    return (
        f"the entry has {', '.join(wrong)}, but Triton takes only whole numbers, and for sizes only powers of two"
        if wrong
        else None
    )


def _unknown_word(entry: Tile, context: _Context) -> str | None:
    names = [name for name in entry.words or () if name not in _KNOWN]
    return (
        f"the entry has {', '.join(names)}, which logparse does not know as an argument of the kernel"
        if names
        else None
    )


def _of_amd(entry: Tile, context: _Context) -> str | None:
    names = [name for name in _AMD if name in (entry.words or ())]
    if not names or not context.field("device_name").startswith("NVIDIA_"):
        return None
    return (
        f"the entry has AMD's options {', '.join(names)}, with which the launch fails on {context.field('device_name')}"
    )


def _one_scale(entry: Tile, context: _Context) -> str | None:
    step, block = (entry.words or {}).get("BLOCK_SIZE_K"), context.scaled
    if not isinstance(step, int) or block is None or step <= block:
        return None
    return (
        f"BLOCK_SIZE_K {step} spans several blocks of {block}, but the kernel scales them all by the first "
        "block's scale"
    )


_RULES: tuple[Rule[Tile, _Context], ...] = (
    Rule("duplicate", "warning", "read", _later, "remove the earlier entry", fault=False),
    Rule("repeated", "warning", None, _repeated, "keep one of them, and remove the others"),
    Rule("tokens", "error", "matched", _negative, "remove the entry"),
    Rule("tile", "error", "honoured", _no_tile, _TUNE),
    Rule("size", "error", "honoured", _odd_size, _TUNE),
    Rule(
        "word",
        "warning",
        None,
        _unknown_word,
        ("remove this argument from the entry, unless you know that the kernel of your server has such an argument"),
    ),
    Rule("backend", "error", "honoured", _of_amd, _TUNE),
    Rule(
        "scale",
        "error",
        None,
        _one_scale,
        "set BLOCK_SIZE_K to at most the number of values along K that share one scale",
    ),
)


# ------------------------------------------------------------------------------------------------------- the file


def read(name: str, data: bytes, target: Facts) -> Reading[Table[Tile, _Context]]:
    """Read a fused-MoE table as a server reads it, and return its entries with remarks."""
    # SGLang writes ``block_shape=[128, 128]`` with a blank behind the comma.
    table = name.removesuffix(".json").replace(", ", ",")
    refusals, members = _members(data)
    entries = [_entry(table, member) for member in members if _is_entry(member)]
    versions = [member for member in members if member.name == _VERSION]
    version = str(versions[-1].value) if versions else ""
    refusals += _of_names(table, members)
    refusals += _of_device(table, target)
    if not refusals and not entries:
        refusals.append(
            Note(None, "error", "empty", "the table has no entries, so the server uses its default settings", _TUNE)
        )
    last = {entry.tokens: entry for entry in entries}
    notes = [*_notes(table, version, target), *_find_repeats(versions), *_ladder(entries)]
    parsed = Table(entries, _Context(table, version, last), _RULES, notes)
    return parsed.reading(
        "the server (vLLM or SGLang) does not read this table",
        refusals=refusals,
        certain="device" in target,
        facts=_facts(table),
        target=target,
    )


def _members(data: bytes) -> tuple[list[Note], list[Member]]:
    """Parse the JSON text of a fused-MoE table. Return the errors, and the members of its JSON object."""
    try:
        return [], members_of(data)
    # A byte order mark, or a text that is not UTF-8, is an error too, because the server cannot read it either.
    except ValueError as error:
        message = f"the file is not a table in JSON ({error}), so the server ends when it looks up the table"
        return [Note(None, "error", "json", message, _TUNE)], []


def _of_names(table: str, members: Iterable[Member]) -> list[Note]:
    out = []
    if not moe_config.is_name(table):
        message = f"a server looks for E=…,N=…,device_name=….json, never for {table[:80]}.json"
        out.append(
            Note(
                None,
                "error",
                "name",
                message,
                "rename the table to the name that the server's log states. It logs this name if it finds no table",
            )
        )
    for member in members:
        if (member.name != _VERSION or not _has_experts(table)) and not _is_entry(member):
            name = member.name[:40]
            message = f"the key {name!r} is not a number of tokens, so int() raises an error and the server ends"
            out.append(Note(member.line, "error", "keys", message, "remove the entry"))
    return out


def _has_experts(table: str) -> bool:
    return table.startswith("E=")


def _facts(table: str) -> dict[str, str]:
    device = moe_config.fields(table).get("device_name")
    return {"device": device.replace("_", " ")} if device else {}


def _of_device(table: str, target: Facts) -> list[Note]:
    """Return an error if the name of a fused-MoE table shows that it is for another GPU than the target machine's.

    If the target machine's GPU is not known, there is no error.
    """
    own = _facts(table)
    if not own or not ("device" in target or arch(target)):
        return []
    mine, theirs = device_of(own), device_of(target)
    if "device" not in target:
        other = mine is not None and mine.arch != arch(target)
    elif mine is not None and theirs is not None:
        other = mine != theirs
    else:
        other = _plain(own["device"]) != _plain(target["device"])
    if not other:
        return []
    name = target.get("device") or target["arch"]
    message = f"the table is for {own['device']}: on {name} the server looks for another name"
    return [Note(None, "error", "device", message, _TUNE)]


def _plain(device: str) -> str:
    """Return a GPU's name as the file names of fused-MoE tables spell it, with ``_`` instead of blanks.

    All H200 variants have the same name there, because vLLM treats them alike.
    """
    words = device.replace(" ", "_")
    return "NVIDIA_H200" if "H200" in words.split("_") else words


def _notes(table: str, version: str, target: Facts) -> Iterator[Note]:
    own, theirs = _facts(table).get("device", ""), target.get(_VERSION, "")
    if own.endswith(" OAM"):
        message = (
            f"vLLM names AMD's devices by their PCI id, and no such name ends in OAM, so {own} is never looked for"
        )
        plain = own.removesuffix(" OAM").removesuffix("X").replace(" ", "_")
        yield Note(None, "warning", "device", message, f"write {plain}X in the table's name")
    if own and "device" in target and _plain(own) != _plain(target["device"]) and not _of_device(table, target):
        message = (
            f"the table's name states the device {own}, but on the target this device is called {target['device']}. "
            "The server looks only for a table with its own name of the device"
        )
        yield Note(
            None,
            "warning",
            "device",
            message,
            "compare the table's name with the name in the server's log line about its table",
        )
    if version and theirs and version.split(".")[:2] != theirs.split(".")[:2]:
        message = (
            f"the table was tuned with Triton {version}, but the target has {theirs}, which makes other code from the "
            "same tiles"
        )
        yield Note(None, "warning", "triton", message, _TUNE)


def _find_repeats(versions: Iterable[Member]) -> Iterator[Note]:
    for member in versions:
        if member.unused:
            yield Note(member.line, "warning", "duplicate", member.unused, "remove the earlier member")


def _ladder(entries: Sequence[Tile]) -> Iterator[Note]:
    """Warn about a fused-MoE table whose entries are too far apart, or whose entries are mostly copies of each other.

    The table has one entry per number of tokens.
    """
    held = sorted({x.tokens: x for x in entries if x.tokens > 0}.items())
    sizes = [1, *(tokens for tokens, _ in held), _PREFILL]
    # A server takes the nearest entry, even if it is far, and never the default. For example, a table that only had
    # entries for up to 8 tokens made a prefill of 2,048 tokens 2.35 % slower (vllm-project/vllm#52192).
    far = [f"{low:,} to {high:,}" for low, high in pairwise(sizes) if held and high > _FAR * low]
    if far:
        message = (
            f"for batches of {' and '.join(far)} tokens the server uses the nearest entry, which is far, not its "
            "default"
        )
        yield Note(None, "warning", "ladder", message, _TUNE)
    same = [b.tokens for (_, a), (_, b) in pairwise(held) if a.words and a.words == b.words]
    if len(same) * 2 > len(held) > 2:
        message = (
            f"{len(same)} of {len(held)} entries have the same tile as the entry before them, so they were copied "
            "and not tuned"
        )
        yield Note(None, "info", "copied", message, _TUNE)


_FAR = 16
"""Largest allowed ratio of two neighbouring numbers of tokens in a table.  A larger ratio is reported as a gap.

In the lists that the tuning programs use, the ratio is at most 2.
"""
_PREFILL = 8192
"""Typical number of tokens in a prefill batch: vLLM's default of ``max_num_batched_tokens`` on large GPUs."""


def _entry(table: str, member: Member) -> Tile:
    return Tile(table, int(member.name), member.value if isinstance(member.value, dict) else None, member)


def _is_entry(member: Member) -> bool:
    return _INTEGER.match(member.name) is not None


def key(problem: Problem, target: Facts) -> str | None:
    """Return the name of the table in which a server looks for the kernel settings of a fused-MoE call.

    The name of the call (``problem``) is this name.  Returns None for any other kind of call.
    """
    named = isinstance(problem, OperatorProblem) and moe_config.is_name(problem.name)
    return problem.name if named and isinstance(problem, OperatorProblem) else None


def find_reports(name: str, reading: Reading[Any], messages: Iterable[tuple[str, str]]) -> dict[str, Report]:
    """Return which fused-MoE tables the servers looked for when they started, and which of them they found.

    ``messages`` are pairs of function and text from the logs.  The result maps the text of a fused-MoE call to a
    report.
    """
    out: dict[str, Report] = {}
    for table, text in messages:
        if text in (moe_config.MISSING, moe_config.FALLBACK, moe_config.FOUND):
            found = text == moe_config.FOUND
            out[OperatorProblem(table, ()).text] = Report(table, found)
    return out


def recognise(head: Head) -> bool:
    """Return True if a file is a table of Triton kernels for fused MoE.

    A table of FlyDSL kernels gives False, because logparse has no rules for it.
    """
    return moe_config.recognise(head) and b'"BLOCK_SIZE_M"' in head.data


# ------------------------------------------------------------------------------------------------------------- merged


def _header(name: str, data: bytes) -> list[tuple[str, str]]:
    """Return what two fused-MoE tables must have in common before they are merged: the name and the Triton version.

    Raises InputError if vLLM and SGLang would not read the file.
    """
    reading = read(name, data, {})
    if reading.refusals:
        raise InputError(reading.refusals[0].message)
    return [("table", reading.parsed.context.name), (_VERSION, reading.parsed.context.version)]


def _merge_rows(rows: Iterable[Offer], name: str, agreed: Mapping[str, str], gpus: int) -> list[Emission]:
    version = [f'"{_VERSION}": {json.dumps(agreed[_VERSION])}'] if agreed[_VERSION] else []
    members = [*version, *(row.text for row in sorted(rows, key=_tokens))]
    data = "{\n    " + ",\n    ".join(members) + "\n}\n"
    use = Shell("export VLLM_TUNED_CONFIG_FOLDER={folder}") if _has_experts(agreed["table"]) else _OWN_FOLDER
    return [Emission(f"{agreed['table']}.json", data.encode(), use)]


_OWN_FOLDER = Shell(
    "# no environment variable sets the folder of such a table; copy the table to "
    "vllm/model_executor/layers/quantization/utils/configs"
)


def _tokens(row: Offer) -> int:
    return int(row.text.split('"')[1])


OVERRIDE_FORMAT = OverrideFormat(
    name="moe-config",
    order="if several entries have the same number of tokens, the server uses the last entry",
    kinds=frozenset(),
    recognise=recognise,
    reader=read,
    accepted_if="the GPU that the file's name states",
    key=key,
    reported=find_reports,
    cut=cut_members(_is_entry),
    merging=Merging(
        header=_header,
        write=_merge_rows,
        slot=lambda row: f"{row.key} {_tokens(row):018d}",
        several=True,
        in_order=True,
        note=(
            "the tables have no times, so if several files have an entry for the same number of tokens, the first "
            "file's entry is kept"
        ),
    ),
)
