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
        (
            "rocBLAS ran matrix products with its own (Tensile) kernels, which do not occur in logs and tuning "
            "files of hipBLASLt"
        ),
    ),
    (
        ("Heuristic Fetch Failed", "heuristic fetch failed", "No hipBLASLt solution", "No hipBLASLt default solution"),
        "hipBLASLt found no kernel for matrix products that rocBLAS passed to hipBLASLt",
    ),
    (("insufficient workspace",), "rocBLAS gave hipBLASLt less workspace than the solution needs"),
    (
        ("Cannot find specified solution index", "algo not supported"),
        (
            "a call asked for a solution that hipBLASLt lacks or cannot run. This happens when TunableOp searches, "
            "and with an override file that was made for another build"
        ),
    ),
    (
        ("on an unsupported architecture",),
        (
            "PyTorch passes the matrix products of this GPU to rocBLAS and not to hipBLASLt, even products for "
            "which a hipBLASLt override exists"
        ),
    ),
    (
        ("on a unsupported architecture",),
        "PyTorch 2.5 stops with this error; set TORCH_BLAS_PREFER_HIPBLASLT=0 to avoid the error",
    ),
    (
        ("problem overrides failed to load",),
        (
            "rocBLAS ignored rows of its override table, because they are from another build or damaged; check the "
            "table with `logparse lint`"
        ),
    ),
    (
        ("results validator check failed", "Failed validator", "Unmatched validator"),
        (
            "PyTorch rejected a TunableOp file, because the file's validators (versions and device) differ; "
            "`logparse lint --target` names the validators that differ"
        ),
    ),
    (
        ("missing candidate",),
        "PyTorch lacks a solution that a TunableOp file names, and ran its default kernel",
    ),
    (
        ("the override file git version are not the same", "No valid entries found in override file"),
        "hipBLASLt used no row of its tuning file, because the file is from another build or cannot be read",
    ),
    (("for XF32, fall back to FP32",), "rocBLAS has no TF32 kernel for these matrix products, and ran them in FP32"),
    (
        ("TensileLibrary", "No paths matched", "Could not initialize Tensile", "Could not load", "Cannot read"),
        (
            "the library does not find its kernels for this GPU in the folder that it searches, so its matrix "
            "products fail or run in another library"
        ),
    ),
    (
        ("Tensile solution found", "exception thrown for"),
        "a matrix product failed, because rocBLAS has no kernel that can run the product",
    ),
    (
        ("no such column", "no such table", "has no column named"),
        (
            "MIOpen found a database of another version, whose tables this MIOpen cannot read. Remove or rename the "
            ".udb and .ukdb files below ~/.config/miopen and ~/.cache/miopen (Windows: .miopen in the user's "
            "folder); MIOpen then makes these files anew"
        ),
    ),
    (
        ("Missing system database file",),
        (
            "MIOpen's package of compiled kernels for this GPU is not installed, so MIOpen compiles each kernel at "
            "its first use. Only the first calls are slow"
        ),
    ),
    (
        ("database is locked", "database table is locked"),
        (
            "another process used MIOpen's database for too long, for example because many ranks share it on a network "
            "disk. Give each node or rank a folder of its own on a local disk (MIOPEN_USER_DB_PATH, "
            "MIOPEN_CUSTOM_CACHE_DIR)"
        ),
    ),
    (
        ("database disk image is malformed", "file is not a database"),
        (
            "MIOpen found a damaged database, for example of a job that was killed or of a full disk. Remove or rename "
            "the .udb and .ukdb files below ~/.config/miopen and ~/.cache/miopen; MIOpen then makes these files anew"
        ),
    ),
    (
        ("SQLite", "sqlite"),
        (
            "MIOpen cannot use a database of tuned solvers or of kernels. MIOPEN_USER_DB_PATH and "
            "MIOPEN_CUSTOM_CACHE_DIR must name folders on a local disk in which MIOpen may write"
        ),
    ),
    (
        ("build failed", "hiprtcCompileProgram", "HIPRTC status"),
        "MIOpen could not compile a kernel; the compiler's lines near this log line state the reason",
    ),
    (
        ("CK grouped conv library not found",),
        "MIOpen has no kernels of Composable Kernel (CK) for this GPU, and uses its other solvers",
    ),
    (
        ("Unable to read system database", "File is unreadable"),
        (
            "MIOpen has no database of this kind for this GPU, so MIOpen estimates which solver is fast, or "
            "compiles its kernels anew"
        ),
    ),
    (
        ("tuning-cache: summary",),
        (
            "hipBLASLt found no row in its runtime tuning cache for the calls that fell back. A row is invalid if "
            "it names another kernel in this build. Tune again (HIPBLASLT_TUNING_MODE=tune)"
        ),
    ),
    (
        ("the log states no scale of",),
        "builds of hipBLASLt before September 2026 log --scaleA 0 also for calls that are scaled in blocks (MX: "
        "4-, 6- and 8-bit types), so the scale is unknown",
    ),
    (
        ("workspace required:",),
        (
            "MIOpen skipped solvers that need more workspace than the call gave, and ran the fastest of the other "
            "solvers, which may be far slower. Leave memory free for the workspace when a convolution is first "
            "called, or split the convolution"
        ),
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
    asked_late=(
        "a line with the text of a library's error may also fit another format. The other format reads more facts "
        "from the line, so logparse tries it first"
    ),
    seen="source code only; public lines (no test)",
    example="rocBLAS warning: hipBlasLT failed, falling back to …",
    gives="messages",
)
