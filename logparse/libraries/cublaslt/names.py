"""Translate the attributes of cuBLASLt's algorithms between numbers and names, and write them as one text.

A Trace line names an algorithm by attribute names and leaves out attributes at their default.  TunableOp's
``Gemm_Cublaslt_id_66_tile_209_…`` and the C API give the enum's numbers.  Both are converted to one text with the names
of the Trace line.  Below are the Trace line, TunableOp's name and this text::

    algo=[algoId=66 tile=MATMUL_TILE_192x192 stages=MATMUL_STAGES_64xAUTO customOption=4 clusterShape=CLUSTER_SHAPE_…]
    Gemm_Cublaslt_id_66_tile_209_stages_35_splitk_1_red_0_swizzle_0_custom_4_inner_0_cluster_3
    id=66,tile=192x192,stages=64xAUTO,custom=4,cluster=2x1x1

The values are those in ``cublasLt.h`` (``cublasLtMatmulTile_t``, ``cublasLtMatmulStages_t``,
``cublasLtReductionScheme_t``, ``cublasLtMatmulInnerShape_t``, ``cublasLtClusterShape_t``).  Values that CUDA 12 and 13
both have are equal.  For 50 algorithms of cuBLASLt 13.1 on an H200, the attributes read
through the API were compared with the Trace line of the launch.  The inner shape was 0 in all 50.  So it is not known
how a Trace line would print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_FIRST_TILES = (
    "UNDEFINED 8x8 8x16 16x8 8x32 16x16 32x8 8x64 16x32 32x16 64x8 32x32 32x64 64x32 32x128 64x64 128x32 64x128 128x64"
    " 64x256 128x128 256x64 64x512 128x256 256x128 512x64 64x96 96x64 96x128 128x160 160x128 192x128 128x192 128x96"
    " 32x256 256x32"
)
_LAST_TILES = ("256x512", "256x1024", "512x512", "512x1024")
_STAGES = (
    "UNDEFINED 16x1 16x2 16x3 16x4 16x5 16x6 32x1 32x2 32x3 32x4 32x5 32x6 64x1 64x2 64x3 64x4 64x5 64x6"
    " 128x1 128x2 128x3 128x4 128x5 128x6 32x10 8x4 16x10 8x5 16x80 64x80 8x3"
    " 8xAUTO 16xAUTO 32xAUTO 64xAUTO 128xAUTO 256xAUTO 768xAUTO"
)
_CLUSTERS = (
    "1x1x1 2x1x1 4x1x1 1x2x1 2x2x1 4x2x1 1x4x1 2x4x1 4x4x1 8x1x1 1x8x1 8x2x1 2x8x1 16x1x1 1x16x1"
    " 3x1x1 5x1x1 6x1x1 7x1x1 9x1x1 10x1x1 11x1x1 12x1x1 13x1x1 14x1x1 15x1x1 3x2x1 5x2x1 6x2x1 7x2x1"
    " 1x3x1 2x3x1 3x3x1 4x3x1 5x3x1 3x4x1 1x5x1 2x5x1 3x5x1 1x6x1 2x6x1 1x7x1 2x7x1"
    " 1x9x1 1x10x1 1x11x1 1x12x1 1x13x1 1x14x1 1x15x1"
)


def _tiles() -> Iterator[str]:
    """Yield the names of cuBLASLt's tile sizes, in the order in which the library's header numbers them.

    The header lists the historical names first.  Then it lists two grids of sizes, without names that it has listed
    before.  The first grid has rows in steps of 8 and columns in steps of 64, up to 192·256 elements.  The second grid
    has rows in steps of 64 and columns in steps of 8, up to 256·256 elements.
    """
    first = _FIRST_TILES.split()
    seen = set(first)
    yield from first
    for row_step, column_step, area in ((8, 64, 192 * 256), (64, 8, 256 * 256)):
        for rows in range(row_step, 769, row_step):
            for columns in range(column_step, 769, column_step):
                name = f"{rows}x{columns}"
                if rows * columns <= area and name not in seen:
                    seen.add(name)
                    yield name
    yield from _LAST_TILES


TILES: Mapping[int, str] = dict(enumerate(_tiles()))
STAGES: Mapping[int, str] = dict(enumerate(_STAGES.split()))
REDUCTIONS: Mapping[int, str] = {0: "NONE", 1: "INPLACE", 2: "COMPUTE_TYPE", 4: "OUTPUT_TYPE"}
INNER_SHAPES: Mapping[int, str] = {0: "UNDEFINED", 1: "MMA884", 2: "MMA1684", 3: "MMA1688", 4: "MMA16816"}
CLUSTERS: Mapping[int, str] = {0: "AUTO", **dict(enumerate(_CLUSTERS.split(), start=2))}


ATTRIBUTES: tuple[tuple[str, str, int | None, Mapping[int, str], str], ...] = (
    ("id", "algoId", None, {}, ""),
    ("tile", "tile", 0, TILES, "MATMUL_TILE_"),
    ("stages", "stages", 0, STAGES, "MATMUL_STAGES_"),
    ("splitk", "numSplitsK", 1, {}, ""),
    ("reduction", "reductionScheme", 0, REDUCTIONS, "REDUCTION_SCHEME_"),
    ("swizzle", "ctaSwizzling", 0, {}, ""),
    ("custom", "customOption", 0, {}, ""),
    ("inner", "innerShape", 0, INNER_SHAPES, "MATMUL_INNER_SHAPE_"),
    ("cluster", "clusterShape", 0, CLUSTERS, "CLUSTER_SHAPE_"),
)
"""Attributes of a cuBLASLt algorithm, in the order in which logparse writes them.  Each item has:

* logparse's word for the attribute;
* its key in a Trace line;
* its default, which a Trace line does not print;
* the names of its values by number;
* the text that a Trace line prints before such a name.
"""


def algorithm_text(values: Mapping[str, int]) -> str:
    """Return the text that logparse writes for a cuBLASLt algorithm whose attributes are given as numbers.

    An attribute that is missing in ``values`` has its default value.

    >>> algorithm_text({"id": 66, "tile": 209, "stages": 35, "splitk": 1, "custom": 4, "cluster": 3})
    'id=66,tile=192x192,stages=64xAUTO,custom=4,cluster=2x1x1'
    """
    words = []
    for name, _, default, names, _ in ATTRIBUTES:
        value = values.get(name, default)
        if value is not None and value != default:
            words.append(f"{name}={names.get(value, value)}")  # a value newer than the table stays a number
    return ",".join(words)


def algorithm_values(text: str) -> dict[str, int]:
    """Parse the text of a cuBLASLt algorithm, and return the number of each of its attributes.

    :func:`algorithm_text` makes such texts.  Raises ValueError if a word of the text has no number.
    """
    given = dict(word.partition("=")[::2] for word in text.split(","))
    out: dict[str, int] = {}
    for name, _, default, names, _ in ATTRIBUTES:
        value = given.pop(name, None)
        if value is None:
            if default is None:
                raise ValueError(f"cuBLASLt algorithm without {name}: {text!r}")
            out[name] = default
            continue
        number = {label: n for n, label in names.items()}.get(value)
        out[name] = int(value) if number is None else number
    if given:
        raise ValueError(f"unknown attributes in a cuBLASLt algorithm: {', '.join(sorted(given))}")
    return out
