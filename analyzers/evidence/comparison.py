"""Decide whether to propose a faster kernel in place of the one that a library chose.

The proposal is an override, an entry in a file that makes the library use the other kernel. The finding
``suboptimal-pick`` and the web page both call ``override_or_refusal``, so that they propose the same overrides. No
override is possible for kernels that require a change of the program: PyTorch's own kernels
(``libraries/pytorch/replay_convs.py``, ``replay_gemms.py``) and cuDNN's plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.tables import Settings
from logparse.libraries.builds import can_decide_for
from logparse.libraries.tunableop.signature import why_untunable
from logparse.model import DEFAULT, ConvProblem, Gain, Override, Problem, Solution
from logparse.target import Facts, machine

MEASURED, BY_DEFAULT, UNMEASURED, INCOMPARABLE = "measured", "default", "unmeasured", "incomparable"
BASES = (MEASURED, BY_DEFAULT, UNMEASURED, INCOMPARABLE)
"""Ways to know the time of the kernel that the library chose (the pick), the most reliable way first.

* ``measured``: this kernel was timed.
* ``default``: the library's own choice was timed on the machine that made the file. Its time is used, although the job
  may have run another kernel.
* ``unmeasured``: the kernel has no time.
* ``incomparable``: the log and the file may use the same number for different kernels.
"""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The kernel that the library chose for a GEMM or convolution (the pick), and the fastest known one.

    Both times are from one file. None means unknown.

    * ``measured``: text of the GEMM or convolution that was timed. It may differ from the job's text if one of the two
      states fewer values.
    * ``basis``: how the pick's time is known (``BASES``).
    * ``facts``: facts about the machine and libraries of the file.
    * ``noise_us``: the longest minus the shortest time of the library's own choice, µs.
    * ``ambiguous``: True if the job's call may be any of several measured ones whose fastest kernels differ.
    * ``given_bytes``: the largest workspace that the job gives to such a call.
    """

    problem: Problem
    pick: str
    pick_us: float | None
    best: Solution
    best_us: float
    basis: str
    measured: str
    origin: str
    facts: Facts
    noise_us: float | None = None
    ambiguous: bool = False
    workspace_bytes: int | None = None
    given_bytes: int | None = None
    key_text: str | None = None

    @property
    def gain(self) -> Gain | None:
        """The time of a call with the library's choice, and with the fastest known kernel. None if one is unknown."""
        return None if self.pick_us is None or self.basis == INCOMPARABLE else Gain(self.pick_us, self.best_us)

    @property
    def loses(self) -> bool:
        """True if the library's kernel is slower than the fastest known one, and by more than the noise of times."""
        return self.gain is not None and self.gain.saving_us > max(self.noise_us or 0.0, 0.0)


@dataclass(frozen=True)
class Refusal:
    """The reason why no override file can select a faster kernel, and an advice for the user, if there is one."""

    reason: str
    advice: str | None = None


def override_or_refusal(known: Comparison, settings: Settings) -> Override | Refusal:
    """Return an override that makes the library use the fastest known kernel, or the reason why none is proposed.

    * ``settings.target`` describes the machine where the job runs. Without it, the override is for a machine like the
      one on which the kernel was timed.
    * The gain must be more than the fraction ``settings.min_gain`` of the present time. This is not checked for a gain
      that a replay confirmed, because ``recommend.confidence`` tests it against the same limit.
    """
    target = settings.target or known.facts
    refusal = _no_gain(known, settings) or _no_file(known, target)
    if refusal is not None:
        return refusal
    if known.ambiguous:
        return Refusal(
            "several measured matrix products or convolutions may be this call, and their fastest kernels differ"
        )
    fits = can_decide_for(known.facts, target, known.best.library)
    if not (settings.same_build if fits is None else fits):
        where = "may not be" if fits is None else "are not"
        return Refusal(
            f"the kernel was timed on a device and with a library build that {where} those of the target machine, so "
            "the time may not hold there"
        )
    return Override(
        problem=known.problem,
        solution=known.best,
        target=machine(target),
        time_us=known.best_us,
        default_us=known.pick_us,
        workspace_bytes=known.workspace_bytes,
        key_text=known.key_text,
    )


def _no_gain(known: Comparison, settings: Settings) -> Refusal | None:
    """Return why the times of the library's choice and of the fastest kernel show no gain. None if they show one."""
    if known.basis == INCOMPARABLE:
        return Refusal(
            "the log and the file with measured times may be from different library builds or GPU architectures, in "
            "which the same index names different kernels"
        )
    if known.best.text == known.pick:
        return Refusal(
            "only the kernel that the library chose is timed"
            if known.pick_us is None
            else ("the kernel that the library chose is the fastest known one")
        )
    if known.gain is None:
        return Refusal("no time of the kernel that the library chose is known")
    if not known.loses:
        return Refusal("the kernel that the library chose is as fast as the fastest known one, within noise")
    if known.origin != CONFIRM and known.gain.saving_us < settings.min_gain * known.gain.now_us:
        return Refusal(f"the fastest known kernel saves less than {settings.min_gain:.0%} of a call")
    if may_be_so(known.problem, known.measured, known.best.text):
        return Refusal("the call may already use this tensor layout")
    if known.best.text == DEFAULT.text:
        return Refusal(
            "the library's own choice is the fastest known kernel, so remove the override that replaces this choice"
        )
    return None


def _no_file(known: Comparison, target: Facts) -> Refusal | None:
    """Return why the user cannot select a faster kernel by naming it in a file for the library. None if it may work."""
    best, given, need = known.best, known.given_bytes, known.workspace_bytes
    if best.library == "hipblaslt" and need is not None and given is not None and given < need:
        return Refusal(
            "the calls give hipBLASLt less workspace than the kernel needs",
            f"Give these calls {need:,} bytes of workspace. The logs state {given:,}, and hipBLASLt uses no "
            "solution that needs more than a call gives, not even one from a file.",
        )
    if by_hand(best):
        return Refusal(out_of_reach(best) or f"no override file can make a library use {best.text}", advice(best))
    if known.problem.kind == "grouped":
        by_index = f"initialize the GroupedGemm with hipblaslt_ext::getAlgosFromIndex(handle, {{{best.id}}}, …)"
        how = (
            by_index
            if best.library == "hipblaslt"
            else ("select the solution (kernel) in the program itself, through the library's API")
        )
        return Refusal(
            "no override file can choose the kernel of a grouped GEMM",
            f"No override file can choose the kernel of a grouped GEMM: {how}.",
        )
    why = why_untunable(target) if best.library == "cublaslt" else None
    return Refusal(why, f"Call cuBLASLt directly with this algorithm, or update PyTorch: {why}") if why else None


# ------------------------------------------------------------ what no file can express

LAYOUT = (
    "Change the memory layout of the images: call model.to(memory_format=torch.channels_last) in PyTorch, and on "
    "ROCm also set PYTORCH_MIOPEN_SUGGEST_NHWC=1."
)
FUSION = (
    "Compute the epilogue (bias, activation) in the kernel of the matrix product: use torch.compile, "
    "torch._addmm_activation or the library's own epilogue (HIPBLASLT_MATMUL_DESC_EPILOGUE)."
)
_LIBRARIES = frozenset({"torch", "kernel", "cudnn"})
_ADVICE: Mapping[str, str] = {
    r"torch:layout=.*|cudnn:layout=.*": LAYOUT,
    r"torch:benchmark": (
        "Set torch.backends.cudnn.benchmark = True (on ROCm this uses MIOpen's find). The shapes should not vary, "
        "because the library searches again for each new shape."
    ),
    r"torch:pad=.*": (
        "Pad the model's own sizes (vocabulary, heads, hidden size) to multiples of 64, if you are free to "
        "choose these sizes."
    ),
    r"torch:fused": FUSION,
    r"torch:blas=.*": "Choose the library for all matrix products: torch.backends.cuda.preferred_blas_library(…).",
    r"torch:gemm|torch:im2col": "Write the convolution as a matrix product in the program.",
    # A table that names a kernel, but no library, gives such a solution.
    r"kernel:.*": "Call your own kernel in place of the library's.",
    r"cudnn:.*": (
        "No setting makes PyTorch use one particular plan of cuDNN. PyTorch's benchmark mode times several plans."
    ),
}


_OUT_OF_REACH: Mapping[str, str] = {
    r"cudnn:.*": "no setting makes PyTorch use one particular plan of cuDNN",
    r"torch:layout=.*\bstored\b.*": (
        "PyTorch can change the memory layout only for the whole model, not for one call; the list of actions "
        "states what this change saves"
    ),
}


def out_of_reach(solution: Solution) -> str | None:
    """Explain why this kernel cannot be chosen for one GEMM or convolution, not even by changing the program.

    Returns None if a change of the program can choose it.
    """
    return next((why for pattern, why in _OUT_OF_REACH.items() if re.fullmatch(pattern, solution.text)), None)


def by_hand(solution: Solution) -> bool:
    return solution.library in _LIBRARIES and solution.text != DEFAULT.text


def may_be_so(problem: Problem, measured: str, solution: str) -> bool:
    """Tell whether the job's convolution may already use the tensor layout that the faster kernel (``solution``) needs.

    Then there is nothing to gain. The answer is True if three conditions are true:

    * The kernel needs a certain layout.
    * The job's log does not state the layout of the convolution.
    * The kernel was measured for a convolution with another text (``measured``) than the job's, for example with a
      layout.
    """
    unknown = isinstance(problem, ConvProblem) and problem.in_layout is None
    return unknown and measured != problem.text and re.match(r"(?:torch|cudnn):layout=", solution) is not None


_CHANGES: Mapping[str, str] = {
    r"(?:torch|cudnn):layout=.*": "change the layout",
    r"torch:benchmark": "let cuDNN or MIOpen time its own kernels",
    r"torch:pad=.*": "pad the model's sizes",
    r"torch:fused": "fuse the epilogue",
    r"torch:blas=.*": "choose the BLAS library",
    r"torch:gemm|torch:im2col": "write the convolution as a matrix product",
    r"kernel:.*": "call your own kernel",
}


def change(solution: Solution) -> str:
    """Return in words how to change the program so that it uses this kernel, for example ``fuse the epilogue``."""
    return next((text for pattern, text in _CHANGES.items() if re.fullmatch(pattern, solution.text)), "change the call")


def advice(solution: Solution) -> str | None:
    """Return advice on how to change the program so that it uses a faster kernel.

    Returns None if no change is necessary because a file can name the kernel for the library (an override file), or if
    there is no advice.
    """
    known = (text for pattern, text in _ADVICE.items() if re.fullmatch(pattern, solution.text))
    return next(known, None) if by_hand(solution) else None
