"""How aiter looks up a matrix product in its tables of tuned kernels.

aiter reads each table with ``pandas.read_csv`` and turns it into a dictionary (``set_index(keys).to_dict("index")``).
The columns show which function of aiter (reader) a table is for.  Several readers have the same keys, ``gfx, cu_num, M,
N, K``.  For these the table's file name decides.

The table of grouped fused MoE (gfx1250) has columns of the same names, but its rows mean something else.  logparse has
no rules for this table.
Source: ROCm/aiter at e4048607 ``aiter/tuned_gemm.py``, ``aiter/ops/gemm_op_a8w8.py``, ``gemm_op_a4w4.py``,
``batched_gemm_op_a8w8.py``, ``batched_gemm_op_bf16.py``, ``aiter/fused_moe.py``, ``aiter/jit/core.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from logparse.libraries.aiter import tables as aiter


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """Description of one kind of table of tuned kernels: its columns, and how aiter looks up a call in it.

    * ``keys`` are the columns by which aiter looks up a call.  Columns in ``flags`` hold True or False, columns in
      ``words`` hold texts, and the others hold integers.
    * ``types`` are the columns in ``words`` that hold a torch type.
    * ``late`` lists keys that newer versions of aiter added, each with a sentence about the effect if the column is
      missing.
    * ``needed`` are other columns that must exist.
    * ``names`` are columns that must hold a kernel's name in every row.
    * ``backends`` are the libraries that a row may name.  ``backends_of`` lists further ones that only a table with a
      certain file name may name (see ``VARIABLES``).
    * ``keeps_first`` is True if the first of several rows with the same key is used.  Otherwise different rows with the
      same key raise an error, and equal rows do no harm.
    * ``compiled`` is True if aiter chooses kernels of Composable Kernel when it builds its module from the table, not
      at the call.
    """

    keys: tuple[str, ...]
    flags: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset({"gfx"})
    types: frozenset[str] = frozenset()
    late: Mapping[str, str]
    needed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    index: str = ""
    backends: frozenset[str] = frozenset()
    backends_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    keeps_first: bool = False
    compiled: bool = False

    @property
    def sizes(self) -> list[str]:
        return [x for x in self.keys if x not in self.flags | self.words]

    def has(self, backend: object, name: str) -> bool:
        """Return True if aiter accepts kernels of the library ``backend`` from a table with this file name.

        For a file name that is not one of aiter's own, the answer is True if aiter accepts them from any table.
        """
        table = stem(name)
        own = self.backends_of.items()
        return backend in self.backends or any(backend in more for of, more in own if table in (of, None))

    def present(self, columns: Collection[str]) -> list[str]:
        """Return which of a table's columns aiter compares with a call when it looks for the call's row.

        A column that only newer versions of aiter have is left out if the table lacks it.
        """
        return [x for x in self.keys if x in columns or x not in self.late]


_OLD = "the table is of an older aiter, and newer versions raise a KeyError when they read it"
_NO_GFX = {"gfx": "without this column aiter finds a row by cu_num alone, and several GPU models have the same cu_num"}
_DEVICE = ("gfx", "cu_num")
_BY_ID = ("kernelId", "splitK", "kernelName")
_COMPILED = frozenset({"ck", "cktile", "asm", "flydsl", "triton"})

BF16 = Lookup(
    keys=aiter.KEY_COLUMNS,
    flags=frozenset({"bias", "scaleAB", "bpreshuffle"}),
    words=frozenset({"gfx", "dtype", "outdtype"}),
    types=frozenset({"dtype", "outdtype"}),
    late={"gfx": _OLD, "bpreshuffle": _OLD},
    needed=("libtype", "solidx"),
    index="solidx",
    backends=aiter.BACKENDS,
)
_QUANTISED = Lookup(
    keys=(*_DEVICE, "M", "N", "K", "q_dtype_w"),
    words=frozenset({"gfx", "q_dtype_w"}),
    types=frozenset({"q_dtype_w"}),
    late=_NO_GFX,
    index="kernelId",
    needed=_BY_ID,
    backends=_COMPILED,
    compiled=True,
)
_BLOCKSCALE = Lookup(
    keys=(*_DEVICE, "M", "N", "K"),
    late=_NO_GFX,
    index="kernelId",
    needed=_BY_ID,
    backends=_COMPILED,
    backends_of={"a8w8_blockscale_bpreshuffle_tuned_gemm": frozenset({"opus"})},
)
_BATCHED = Lookup(
    keys=(*_DEVICE, "B", "M", "N", "K"),
    late={**_NO_GFX, "cu_num": "a table without this column is read only by the batched bf16 GEMM of an older aiter"},
    index="kernelId",
    needed=_BY_ID,
    names=("kernelName",),
    compiled=True,
)
_MXSCALE = Lookup(
    keys=("gfx", "b", "m", "n", "k"),
    late={},
    index="kernelId",
    needed=("libtype", *_BY_ID),
    backends=frozenset({"opus"}),
)
"""How aiter looks up batched 8-bit GEMMs whose scales are powers of two.

The function in aiter is ``lookup_mxscale_bmm_config`` (commit e4048607).  Later tables also have a column
``w_scale_block``.  logparse has no rules for such later tables.
"""
_MOE_SIZES = ("token", "model_dim", "inter_dim", "expert", "topk")
_MOE_TYPES = ("dtype", "q_dtype_a", "q_dtype_w")
FUSED_MOE = Lookup(
    keys=(*_DEVICE, *_MOE_SIZES, "act_type", *_MOE_TYPES, "q_type", "use_g1u1", "doweight_stage1"),
    flags=frozenset({"use_g1u1", "doweight_stage1"}),
    words=frozenset({"gfx", "act_type", *_MOE_TYPES, "q_type"}),
    late=_NO_GFX,
    needed=("block_m", "ksplit", "kernelName1", "kernelName2"),
    names=("kernelName1",),
    keeps_first=True,
)
"""How aiter looks up fused MoE.  Before commit 446260d1 (May 2026) two rows with the same key raised an error."""
_OTHER_MOE = frozenset({"preshuffle", "hidden_pad", "intermediate_pad", "tile_m"})
"""Columns that occur only in fused-MoE tables of another kind, such as the grouped one.

A table with such a column is not read by the rules of ``FUSED_MOE``.
"""
PASSED_OVER = "flydsl_fallback"
"""Value in the column ``_tag`` of fused-MoE rows that aiter skips (aiter/fused_moe.py, ``get_cfg_2stages``)."""

VARIABLES: Mapping[str, str] = {
    "a8w8_blockscale_bpreshuffle_tuned_gemm": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE",
    "a8w8_bpreshuffle_tuned_gemm": "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE",
    "a8w8_blockscale_tuned_gemm": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE",
    "a4w4_blockscale_tuned_gemm": "AITER_CONFIG_GEMM_A4W4",
    "batched_gemm_a8w8_blockscale_mxscale_tuned": "AITER_CONFIG_BATCHED_GEMM_A8W8_BLOCKSCALE_MXSCALE",
    "a8w8_tuned_batched_gemm": "AITER_CONFIG_A8W8_BATCHED_GEMM",
    "bf16_tuned_batched_gemm": "AITER_CONFIG_BF16_BATCHED_GEMM",
    "a8w8_tuned_gemm": "AITER_CONFIG_GEMM_A8W8",
    "bf16_tuned_gemm": "AITER_CONFIG_GEMM_BF16",
    "tuned_fmoe": "AITER_CONFIG_FMOE",
}
"""For each table of aiter, by its name without ``.csv``, the environment variable that holds the table's path.

aiter recognises its tables by these names.
"""


def stem(name: str) -> str | None:
    """Return which of aiter's tables a file is, for example ``bf16_tuned_gemm``, or None.

    Only the file's name is looked at.  It must contain one of the names in ``VARIABLES``.
    """
    return next((x for x in VARIABLES if x in name), None)


def table_of(columns: Sequence[str]) -> Lookup | None:
    """Recognise one of aiter's tables of tuned kernels by its column names, and return how aiter searches it.

    The result describes which columns aiter compares with a call.  Returns None if aiter has no table with these
    columns.
    """
    has = set(columns)
    if {"M", "N", "K", "libtype", "solidx"} <= has:
        return BF16
    if {"token", "model_dim", "inter_dim", "kernelName1"} <= has:
        return None if has & _OTHER_MOE else FUSED_MOE
    if {"b", "m", "n", "k", "kernelId"} <= has:
        return None if "w_scale_block" in has else _MXSCALE
    if not {"M", "N", "K", "kernelId"} <= has:
        return None
    return _BATCHED if "B" in has else _QUANTISED if "q_dtype_w" in has else _BLOCKSCALE
