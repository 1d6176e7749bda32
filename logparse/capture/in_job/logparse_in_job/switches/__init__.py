"""List of the changes that can be switched on and off in a running job, such as ``tf32``.

A change is here called an action. A second list has the changes that act only when a job starts. ``made`` returns the
object that switches a change.
"""

# Only ``made`` imports PyTorch. ``docs/measurement.md`` contains both lists as tables, and a test compares them.

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Sequence, Tuple


class Switchable(NamedTuple):
    """A change that can be switched on and off in a running job.

    For the user, ``switched`` tells what is changed, and ``undone`` how it is taken back. ``parts`` names its single
    switches.
    """

    name: str
    switched: str
    undone: str
    # Some changes combine several switches.
    parts: Tuple[str, ...]


_FLAG = "`allow_tf32` is set back to its old value"
_ORDER = (
    "the order in which PyTorch tries attention backends",
    "the order in which PyTorch tries attention backends is set back to its old value",
)
_BLAS = ("the BLAS library that PyTorch prefers", "PyTorch's preference is set back to its old value")
SWITCHABLE: Tuple[Switchable, ...] = (
    Switchable("tf32", "`torch.backends.cuda.matmul.allow_tf32`", _FLAG, ("tf32",)),
    Switchable("blas_cublaslt", *_BLAS, ("blas_cublaslt",)),
    Switchable("blas_rocblas", *_BLAS, ("blas_rocblas",)),
    Switchable("blas_hipblaslt", *_BLAS, ("blas_hipblaslt",)),
    Switchable("attention_flash", *_ORDER, ("attention_flash",)),
    Switchable("attention_efficient", *_ORDER, ("attention_efficient",)),
    Switchable("attention_cudnn", *_ORDER, ("attention_cudnn",)),
    Switchable("attention_math", *_ORDER, ("attention_math",)),
    Switchable(
        "channels_last",
        "the layout of parameters, buffers, gradients and optimizer state; a hook also converts the inputs",
        "each tensor gets its old strides back, keeps its current values, and stays the same tensor",
        ("channels_last",),
    ),
    Switchable(
        "channels_last_benchmark",
        (
            "the layout of parameters, buffers, gradients and optimizer state (a hook also converts the inputs), and "
            "the settings `torch.backends.cudnn.benchmark` and `benchmark_limit`"
        ),
        (
            "each tensor gets its old strides back, keeps its current values, and stays the same tensor; `benchmark` "
            "and `benchmark_limit` get their old values back"
        ),
        ("channels_last", "cudnn_benchmark"),
    ),
    Switchable(
        "padded_output",
        (
            "the size of the output layer: rows are added to its weight, to an embedding that shares this weight, "
            "and to their gradients and optimizer state"
        ),
        "the added rows are removed: each tensor gets its old size back, and keeps its current values",
        ("padded_output",),
    ),
    Switchable(
        "one_kernel_gelu",
        "modules of the model that write GELU out as a formula",
        "the model gets its own modules back, in their old places",
        ("one_kernel_gelu",),
    ),
    Switchable(
        "fused_epilogue",
        "linear layers that come right before ReLU or GELU (tanh) in a `torch.nn.Sequential`",
        "the model gets its own modules back, in their old places",
        ("fused_epilogue",),
    ),
    Switchable(
        "fused_gelu_tanh",
        (
            "linear layers that come right before ReLU or GELU in a `torch.nn.Sequential`, and every GELU of the "
            "model, which is then computed by its tanh approximation"
        ),
        "the model gets its own modules back, in their old places",
        ("fused_gelu_tanh",),
    ),
    Switchable(
        "tunableop_rows",
        "TunableOp, which is switched on and uses the rows of a TunableOp file (`torch.cuda.tunable.read_file`)",
        "TunableOp is switched off again; its rows stay in memory, but PyTorch does not use them",
        ("tunableop_rows",),
    ),
)
"""The changes that can be switched on and off in a running job, in no particular order."""
AT_START: Sequence[Tuple[str, str]] = (
    (
        "`cudnn_benchmark`",
        "PyTorch keeps the plan of each convolution that has run, and searches only for new convolutions",
    ),
    ("override files of hipBLASLt and rocBLAS", "the library reads the files only once, at its first call"),
    ("databases of MIOpen", "MIOpen reads the databases only once, at the first convolution"),
    ("tables of aiter", "aiter reads the tables when Python imports aiter"),
    (
        "a compiled forward (`torch.compile`, TorchScript)",
        "the model was compiled with the settings and layouts before the change",
    ),
    ("captured CUDA graphs", "a graph replays the kernels that ran when it was captured"),
    (
        "a model whose parameters are wrapped by DistributedDataParallel or FSDP, or lie in one buffer",
        "other objects hold views of the parameters",
    ),
)
"""The changes that must be made when a process starts, each with the reason.

Such changes are tried in separate executions of the job.
"""
NAMES: Mapping[str, Switchable] = {x.name: x for x in SWITCHABLE}
TOGETHER = "+"
"""Text between the names of changes that are switched at the same time."""


def parts_of(action: str) -> Tuple[str, ...]:
    """Return the names of the single settings that a change combines.

    For example ``channels_last_benchmark`` has the parts ``channels_last`` and ``cudnn_benchmark``. Several changes may
    be joined by ``+``. Raises KeyError for an unknown change.
    """
    return tuple(dict.fromkeys(part for name in action.split(TOGETHER) for part in NAMES[name].parts))


def fits(action: str, earlier: Iterable[str]) -> bool:
    """Return True if a change can be tried in a process in which the changes ``earlier`` were tried before.

    Only ``channels_last`` with and without ``cudnn_benchmark`` (a search for the fastest kernel) do not fit together.
    """
    # PyTorch keeps the kernel that it chose for a convolution with these sizes and strides, as long as the thread lives
    # (``Conv_v8.cpp``, ``Conv_miopen.cpp``).
    searches, turned = "cudnn_benchmark" in parts_of(action), "channels_last" in parts_of(action)
    before = [parts_of(x) for x in earlier]
    return not any(turned and "channels_last" in x and searches != ("cudnn_benchmark" in x) for x in before)


def made(action: str, files: Sequence[str] = ()) -> Any:
    """Return an object that switches the change ``action`` on and off (see ``base.Switch``).

    ``files`` are the TunableOp files that the change ``tunableop_rows`` reads.
    """
    from . import model, settings
    from .base import Several

    found = [settings.made(part, files) if part in settings.KNOWN else model.made(part) for part in parts_of(action)]
    return found[0] if len(found) == 1 else Several(found)
