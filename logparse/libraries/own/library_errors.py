"""Errors and warnings that rocBLAS, hipBLASLt and MIOpen print on standard error without any prefix.

::

    rocBLAS error: No hipBLASLt solution found
    This message will be only be displayed once, unless the ROCBLAS_VERBOSE_HIPBLASLT_ERROR environment variable is set.
    rocBLAS warning: hipBlasLT failed, falling back to tensile.
    hipBLASLt error: Heuristic Fetch Failed!
    rocblaslt error: Cannot read "TensileLibrary_lazy_gfx1201.dat": No such file or directory
    MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:304: Code object build failed. Source: …
    linear.py:125: UserWarning: Attempting to use hipBLASLt on an unsupported architecture! Overriding blas backend to …

The libraries print them without any setting.  They become messages of category ``library_error`` or
``library_warning``.  The field ``function`` of the message holds the library to which the line refers.  Lines that
begin with ``hipBLASLt error`` are printed by rocBLAS, which asks hipBLASLt first.  rocBLAS prints the first error of
each of its two backends, and a sentence about the variable that turns all errors on (category ``library_note``).  Since
pull request 1566 of 2025 it prints no error without that variable.  Source: ROCm/rocBLAS
``library/src/tensile_host.cpp``, ``hipblaslt_host.cpp``, ``handle.cpp``, ``utility.cpp``; ROCm/hipBLASLt
``library/src/amd_detail/rocblaslt/src/tensile_host.cpp``; ROCm/MIOpen ``src/include/miopen/errors.hpp``;
pytorch/pytorch ``aten/src/ATen/Context.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence

from logparse.libraries.kinds.format import FOREIGN, LineFormat, Outcome
from logparse.libraries.kinds.patterns import regex
from logparse.model import Message

ERROR, WARNING, NOTE = "library_error", "library_warning", "library_note"
_ONCE = "This message will be only be displayed once, unless the "
_WORKSPACE, _UNSUPPORTED = "hipblaslt: algo not supported", "Attempting to use hipBLASLt on a"
_START = (
    r"(?:rocBLAS (?:error(?=: | from | during | re\w+ing )|warning(?=: ))"
    rf"|hipBLASLt error(?=: )|rocblaslt (?:error|warning)(?=: )|MIOpen Error(?=: )|{_ONCE}(?=ROCBLAS_VERBOSE_)"
    rf"|{_WORKSPACE}|{_UNSUPPORTED})"
)
_LINE = regex(r"(?P<library>\w+) (?P<level>\w+)")
_VARIABLE = regex(r"ROCBLAS_VERBOSE_(?:HIPBLASLT|TENSILE)_ERROR")
_LIBRARIES = {"rocblaslt": "hipBLASLt"}
_BYTES_OF_MESSAGE = 2000

MEANINGS: Sequence[tuple[Sequence[str], str]] = (
    (
        ("hipBlasLT failed", "hipBlasLT exception"),
        "rocBLAS ran products with its own (Tensile) kernels, which are not in logs and tuning files of hipBLASLt",
    ),
    (
        ("Heuristic Fetch Failed", "heuristic fetch failed", "No hipBLASLt solution", "No hipBLASLt default solution"),
        "hipBLASLt found no kernel for products that rocBLAS passed to it",
    ),
    (("insufficient workspace",), "rocBLAS gives hipBLASLt less workspace than the solution needs"),
    (
        ("Cannot find specified solution index", "algo not supported"),
        "a call asked for a solution that hipBLASLt lacks or cannot run. A search tries such solutions "
        "(TunableOp), and an override file of another build names them",
    ),
    (
        ("on an unsupported architecture",),
        "PyTorch passes this GPU's products to rocBLAS instead, even those of a hipBLASLt override",
    ),
    (
        ("on a unsupported architecture",),
        "PyTorch 2.5 stops here; set TORCH_BLAS_PREFER_HIPBLASLT=0 to avoid this",
    ),
    (
        ("problem overrides failed to load",),
        "rocBLAS ignored rows of this override table, which are from another build or damaged; check it with "
        "`logparse lint`",
    ),
    (
        ("results validator check failed", "Failed validator", "Unmatched validator"),
        "PyTorch refused a TunableOp file, because its validators (versions and device) differ; `logparse lint "
        "--target` names which",
    ),
    (
        ("missing candidate",),
        "PyTorch lacks a solution that a TunableOp file names, and ran its default",
    ),
    (
        ("the override file git version are not the same", "No valid entries found in override file"),
        "hipBLASLt used no row of its tuning file, which is from another build or cannot be read",
    ),
    (("for XF32, fall back to FP32",), "rocBLAS has no TF32 kernel for these products, and ran them in FP32"),
    (
        ("TensileLibrary", "No paths matched", "Could not initialize Tensile", "Could not load", "Cannot read"),
        "the library does not find its kernels for this GPU in the folder that it searches, so its products "
        "fail or run elsewhere",
    ),
    (
        ("Tensile solution found", "exception thrown for"),
        "a product failed, because rocBLAS has no kernel that can run it",
    ),
    (
        ("no such column", "no such table", "has no column named"),
        "MIOpen found a database of another version, whose tables this MIOpen cannot read. Remove or rename "
        "the .udb and .ukdb files below ~/.config/miopen and ~/.cache/miopen (Windows: .miopen in the user's "
        "folder); MIOpen then makes them anew",
    ),
    (
        ("Missing system database file",),
        "MIOpen's package of compiled kernels for this GPU is not installed, so each kernel is compiled at its "
        "first use, which makes the first calls slow and no later call",
    ),
    (
        ("SQLite", "sqlite"),
        "MIOpen cannot use a database of tuned solvers or of kernels. MIOPEN_USER_DB_PATH and "
        "MIOPEN_CUSTOM_CACHE_DIR must name folders on a local disk to which it may write",
    ),
    (
        ("build failed", "hiprtcCompileProgram", "HIPRTC status"),
        "MIOpen could not compile a kernel; the compiler's lines near this line state why",
    ),
    (("CK grouped conv library not found",), "MIOpen has no CK kernels for this GPU, and uses its other solvers"),
    (
        ("Unable to read system database", "File is unreadable"),
        "MIOpen has no database of this kind for this GPU, so its picks are estimates, or it compiles its kernels anew",
    ),
    (
        ("tuning-cache: summary",),
        "calls that fell back found no row in hipBLASLt's runtime tuning cache. Rows are invalidated if they "
        "name another kernel in this build: tune again (HIPBLASLT_TUNING_MODE=tune)",
    ),
    (
        ("the log states no scale of",),
        "builds of hipBLASLt before September 2026 log --scaleA 0 also for calls that are scaled in blocks (MX: "
        "4-, 6- and 8-bit types), so the scale is unknown",
    ),
    (
        ("workspace required:",),
        "MIOpen skipped solvers that need more workspace than the call gave, and ran the fastest of the others, "
        "which may be far slower. Leave memory free for the workspace when a convolution is first called, or "
        "split it",
    ),
)
"""Explanations of messages that libraries print.  Each has the texts by which a message is recognised.

The first entry that fits is used.  Some of the texts also occur in logs of MIOpen, TunableOp and hipBLASLt.
"""


def meaning(text: str) -> str | None:
    """Explain a message that a library printed.  Return None if its meaning is not known."""
    return next((why for parts, why in MEANINGS if any(part in text for part in parts)), None)


def read(text: str) -> Outcome:
    """Read a line that a library printed on standard error, as a message.

    A line of any other form gives no record.
    """
    text = text.strip()
    shown = text[:_BYTES_OF_MESSAGE]
    if text.startswith(_ONCE):
        variable = _VARIABLE.search(text)
        category, library, shown = NOTE, "rocBLAS", variable[0] if variable else shown
    elif text.startswith((_WORKSPACE, _UNSUPPORTED)):
        category, library = (ERROR, "hipBLASLt") if text.startswith(_WORKSPACE) else (WARNING, "PyTorch")
    elif match := _LINE.match(text):
        category = WARNING if match["level"] == "warning" else ERROR
        library = _LIBRARIES.get(match["library"], match["library"])
    else:
        return FOREIGN
    return Outcome("message", [Message(category=category, function=library, text=shown)])


FORMAT = LineFormat(
    name="library-errors",
    about="errors and warnings that rocBLAS, hipBLASLt and MIOpen print by themselves",
    markers=(
        *(b"rocBLAS error", b"rocBLAS warning: ", b"hipBLASLt error: ", b"rocblaslt error: ", b"rocblaslt warning: "),
        *(b"MIOpen Error: ", _ONCE.encode(), _WORKSPACE.encode(), _UNSUPPORTED.encode()),
    ),
    start=rf"(?<![\w\"'`(<])(?:{_START})".encode(),
    read=read,
    asked_late="its texts may stand in lines of which another format knows more",
    seen="by source; public lines by hand",
    example="rocBLAS warning: hipBlasLT failed, falling back to …",
    gives="messages",
)
