"""A problem's pick beside the best known solution of it, and the one decision whether an override makes it better.

``suboptimal-pick`` and the page both ask ``override_or_refusal``, so that no two places propose by different gates.
What no file can make a library take is changed in the program: the torch backend's formulations
(``libraries/pytorch/replay_convs.py``, ``replay_gemms.py``), and cuDNN's plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from analyzers.evidence.origins import CONFIRM
from analyzers.evidence.tables import Settings
from logparse.libraries.tunableop.signature import untunable
from logparse.model import DEFAULT, ConvProblem, Override, Problem, Solution
from logparse.target import Facts, machine, serves

MEASURED, BY_DEFAULT, UNMEASURED, INCOMPARABLE = "measured", "default", "unmeasured", "incomparable"
BASES = (MEASURED, BY_DEFAULT, UNMEASURED, INCOMPARABLE)
"""How a pick's time is known, the best basis first: it was measured; the library's own choice where the file was made
was; there is no time of it; it is not known whether both sides mean the same by an index."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A pick and the best known solution of its problem, both timed in one file; None is unknown.

    ``measured`` is the text of the problem that was timed (the problem's own, or a linked one), ``facts`` are those of
    the file.  ``noise_us``: how far two times of the default lie apart.  ``ambiguous``: the problem may be several
    measured ones, with different winners.  ``given_bytes``: the most workspace that any call of the problem has.
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
    def loss_us(self) -> float | None:
        """What the pick takes above the best known solution, µs per call; None without a time of the pick."""
        return None if self.pick_us is None or self.basis == INCOMPARABLE else self.pick_us - self.best_us

    @property
    def loses(self) -> bool:
        """Whether the pick is slower than the best known solution by more than noise."""
        return self.loss_us is not None and self.loss_us > max(self.noise_us or 0.0, 0.0)


@dataclass(frozen=True)
class Refusal:
    """Why no override is proposed, and what to do instead where something is known."""

    reason: str
    advice: str | None = None


def override_or_refusal(known: Comparison, settings: Settings) -> Override | Refusal:
    """The override that makes the target (by default a machine like the one that timed it) take the best known
    solution, or why none is proposed.

    A confirmation has a test of its own against the floor (``recommend.confidence``); other gains must exceed
    ``settings.min_gain`` of the pick's time.
    """
    target = settings.target or known.facts
    refusal = _no_gain(known, settings) or _no_file(known, target)
    if refusal is not None:
        return refusal
    if known.ambiguous:
        return Refusal("it may be several measured problems, with different winners")
    fits = serves(known.facts, target, known.best.library)
    if not (settings.same_build if fits is None else fits):
        where = "is not known to be" if fits is None else "is not"
        return Refusal(f"the file with its time {where} of the target's device and library build")
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
    """Why the two times show no gain of this problem; None where they do."""
    if known.basis == INCOMPARABLE:
        return Refusal("log and file are not known to be of one library build and arch: an index may be another kernel")
    if known.best.text == known.pick:
        return Refusal("only the pick is timed" if known.pick_us is None else "the pick is the best known solution")
    if known.loss_us is None or known.pick_us is None:
        return Refusal("no time of the pick is known")
    if not known.loses:
        return Refusal("the pick is as fast as the best known solution, within noise")
    if known.origin != CONFIRM and known.loss_us < settings.min_gain * known.pick_us:
        return Refusal(f"it gains less than {settings.min_gain:.0%} of a call")
    if may_be_so(known.problem, known.measured, known.best.text):
        return Refusal("the call may be in that layout already")
    if known.best.text == DEFAULT.text:
        return Refusal("the library's own choice is the best known solution: what overrides it should go")
    return None


def _no_file(known: Comparison, target: Facts) -> Refusal | None:
    """Why no file makes the target take this solution for this problem; None where one may."""
    best, given, need = known.best, known.given_bytes, known.workspace_bytes
    if best.library == "hipblaslt" and need is not None and given is not None and given < need:
        return Refusal(
            "the calls give hipBLASLt less workspace than the solution needs",
            f"Give these calls {need:,} bytes of workspace: the logs state {given:,}, and hipBLASLt takes no "
            "solution, from a file or not, that needs more than a call gives.",
        )
    if by_hand(best):
        return Refusal(out_of_reach(best) or f"no file makes a library take {best.text}", advice(best))
    if known.problem.kind == "grouped":
        by_index = f"initialize the GroupedGemm with hipblaslt_ext::getAlgosFromIndex(handle, {{{best.id}}}, …)"
        how = by_index if best.library == "hipblaslt" else "name it in the program"
        return Refusal("no file chooses for a grouped GEMM", f"No file chooses for a grouped GEMM: {how}.")
    why = untunable(target) if best.library == "cublaslt" else None
    return Refusal(why, f"Call cuBLASLt itself with this algorithm, or update PyTorch: {why}") if why else None


# ------------------------------------------------------------ what no file can express

LAYOUT = (
    "Change the layout: model.to(memory_format=channels_last) in PyTorch, with PYTORCH_MIOPEN_SUGGEST_NHWC=1 on ROCm."
)
FUSION = (
    "Fuse the epilogue: torch.compile, torch._addmm_activation or the library's own epilogue "
    "(HIPBLASLT_MATMUL_DESC_EPILOGUE)."
)
_LIBRARIES = frozenset({"torch", "kernel", "cudnn"})
_ADVICE: Mapping[str, str] = {
    r"torch:layout=.*|cudnn:layout=.*": LAYOUT,
    r"torch:benchmark": "Set torch.backends.cudnn.benchmark = True (MIOpen's find on ROCm): shapes should not vary.",
    r"torch:pad=.*": "Pad the model's own sizes (vocabulary, heads, hidden) to multiples of 64 where they are free.",
    r"torch:fused": FUSION,
    r"torch:blas=.*": "Choose the library: torch.backends.cuda.preferred_blas_library(…), which holds for all calls.",
    r"torch:gemm|torch:im2col": "Write the convolution as a matrix product.",
    r"kernel:.*": "Call your own kernel in place of the library's.",  # of stores that earlier versions wrote
    r"cudnn:.*": "No setting makes PyTorch take one plan of cuDNN's; benchmark mode lets it time several.",
}


_OUT_OF_REACH: Mapping[str, str] = {
    r"cudnn:.*": "no setting makes PyTorch take one plan of cuDNN's",
    r"torch:layout=.*\bstored\b.*": "a layout is chosen for a whole model: what that does is an action",
}


def out_of_reach(solution: Solution) -> str | None:
    """Why nothing that a person can do makes one problem alone take this solution; None where something does."""
    return next((why for pattern, why in _OUT_OF_REACH.items() if re.fullmatch(pattern, solution.text)), None)


def by_hand(solution: Solution) -> bool:
    return solution.library in _LIBRARIES and solution.text != DEFAULT.text


def may_be_so(problem: Problem, measured: str, solution: str) -> bool:
    """Whether the call may be in the layout already to which ``solution``, measured on another text, changes it."""
    unknown = isinstance(problem, ConvProblem) and problem.in_layout is None
    return unknown and measured != problem.text and re.match(r"(?:torch|cudnn):layout=", solution) is not None


_CHANGES: Mapping[str, str] = {
    r"(?:torch|cudnn):layout=.*": "change the layout",
    r"torch:benchmark": "let cuDNN or MIOpen time its solutions",
    r"torch:pad=.*": "pad the model's sizes",
    r"torch:fused": "fuse the epilogue",
    r"torch:blas=.*": "choose the BLAS library",
    r"torch:gemm|torch:im2col": "write it as a matrix product",
    r"kernel:.*": "call your own kernel",
}


def change(solution: Solution) -> str:
    """The change of the program that makes a call take the solution, as a verb and its object."""
    return next((text for pattern, text in _CHANGES.items() if re.fullmatch(pattern, solution.text)), "change the call")


def advice(solution: Solution) -> str | None:
    """What to change in the program; None where an override file can express it, or no advice is known."""
    known = (text for pattern, text in _ADVICE.items() if re.fullmatch(pattern, solution.text))
    return next(known, None) if by_hand(solution) else None
