"""Find matrix products whose bias or activation runs in a kernel of its own, although the library could include it.

cuBLASLt and hipBLASLt can do this work at the end of the product's own kernel, its epilogue.

* Seen: in a torch.profiler trace, the kernel right after a product adds a vector, or is ReLU or GELU, on as many
  elements as the product wrote (``libraries/torch_profiler/epilogues.py``).
* Cost: the result is written to memory and read again once more. cuBLASLt and hipBLASLt do the same work in registers
  (epilogues BIAS, RELU_BIAS, GELU_BIAS …).
* Saving: it is measured, never estimated. A replay times the product and the kernels after it as they ran, and fused
  into one. The actions of ``actions/fused_epilogue.py`` state the saving. If no fused form is faster, there is no
  finding. Without a replay the finding states only a bound: the time of the extra kernels, because the product does not
  become faster.
* Needed: a trace with ``record_shapes=True``. The trace contains the order of kernels but not which kernel reads the
  product's result. So an unrelated kernel of equal size that follows a product is mistaken for its bias or activation.
* Limits: GELU in the epilogue is the tanh approximation. If the model's GELU is exact, the numbers change. The gradient
  of GELU needs the product's result, which PyTorch's epilogue does not write (the libraries' GELU_AUX does). So GELU
  cannot be fused in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.evidence.action_times import Samples, samples_of
from analyzers.evidence.comparison import FUSION
from analyzers.evidence.joins import calls_by_problem
from analyzers.evidence.statistics.intervals import median
from analyzers.evidence.tables import Settings, Tables
from analyzers.evidence.units import problem_weights
from analyzers.findings.finding import Analyzer
from analyzers.job.epilogues import Epilogue, epilogues, trains
from logparse.model import Advise, Evidence, Finding, Gain

NAME = "missed-fusion"


def find(tables: Tables, settings: Settings) -> Sequence[Finding]:
    found, count = epilogues(tables), _counts(tables)
    samples, in_training = (samples_of(tables, settings), trains(tables)) if found else ({}, False)
    weights = problem_weights(tables).to_dict() if found else {}
    timed = [(one, _compare_fused_times(one, samples)) for one in found]
    return [
        _finding(one, time, count(one), weights.get(one.problem.text, 1.0), in_training)
        for one, time in timed
        if time is None or time.pays(settings.min_gain)
    ]


@dataclass(frozen=True)
class _Timed:
    """Measured times of a matrix product with separate kernels after it, and with all work fused into one kernel.

    * ``gain``: both times. ``high_us`` is the longest time of the fused kernel.
    * ``solution``: the fused kernel's name.
    """

    solution: str
    gain: Gain

    def pays(self, floor: float) -> bool:
        """Tell whether fusing the kernels saves enough time: even the slowest sample must save more than ``floor``.

        ``floor`` is a fraction (0 to 1) of the time of the separate kernels.
        """
        return (self.gain.saving_low_us or 0.0) > floor * self.gain.now_us


def _compare_fused_times(one: Epilogue, samples: Samples) -> _Timed | None:
    """Return two measured times: of a matrix product followed by separate kernels, and of one fused call for all.

    Returns None unless both were measured. ``samples`` has the times that ``logparse replay`` measured outside the job.
    """
    before = samples.get((one.fused.text, one.as_run))
    after = samples.get((one.fused.text, one.in_library))
    if before is None or after is None:
        return None
    return _Timed(one.in_library, Gain(median(before[1]), median(after[1]), high_us=max(after[1])))


def _counts(tables: Tables) -> Callable[[Epilogue], int | None]:
    """Return a function that estimates how many calls of a matrix product have certain kernels after them.

    It returns None if the number of all calls is unknown.
    """
    run = calls_by_problem(tables.workload).dropna()
    traced = tables.calls[tables.calls["category"] == "profiler"].groupby("problem")["count"].sum()

    def count(one: Epilogue) -> int | None:
        text = one.problem.text
        known = text in run and traced.get(text, 0) > 0
        # Only some calls are traced, so the number of all calls is multiplied by the fraction of the traced calls that
        # have these kernels after them.
        return round(float(run[text]) * min(1.0, one.calls / float(traced[text]))) if known else None

    return count


def _finding(one: Epilogue, timed: _Timed | None, calls: int | None, weight: float, in_training: bool) -> Finding:
    steps = " and ".join(one.steps) if len(one.steps) < 3 else "a GELU that the model writes out as a formula"
    kernels = "a kernel" if len(one.steps) == 1 else f"{len(one.steps)} kernels"
    message = (
        f"{steps} after the matrix product could run in its epilogue and replace {kernels} of "
        f"{one.us / one.calls:.4g} µs per call"
    )
    if in_training and one.asked.activation == "gelu":
        message += (
            "; in training PyTorch cannot fuse it, because the gradient of GELU needs the product's result, which "
            "the fused kernel does not write"
        )
        advice = _WRITTEN if one.form == "written" else _IN_TRAINING
    else:
        if timed is not None:
            fused, now = timed.gain.then_us, timed.gain.now_us
            message += f"; a replay timed both: {fused:.4g} µs with {timed.solution}, {now:.4g} µs as the call runs now"
        else:
            message += "; fusing would save at most the time of these kernels, and the saving is not measured"
        if one.exact:
            message += "; the epilogue computes the tanh approximation of GELU, while the model computes the exact GELU"
        advice = (_GRADIENT if in_training else FUSION) + (_UNTIMED if timed is None else _STATED)
    at_most = None if advice == _IN_TRAINING else one.us * weight
    return Finding(
        analyzer=NAME,
        problem=one.problem,
        message=message,
        calls=calls,
        # The finding states no best time, so it only warns and nothing is searched.
        evidence=Evidence(best="torch:fused", at_most_us=at_most, details={"steps": one.steps}),
        remedy=_GELU if advice == _WRITTEN else _FUSE,
        advice=advice,
    )


_FUSE = Advise("fuse the epilogue", "change the program: fuse these kernels")
_GELU = Advise("compute the GELU in one kernel", "change the program: gelu(x, approximate='tanh')")
_GRADIENT = (
    "Fuse the epilogue with apply.linear of the generated apply.py, which computes the gradient of ReLU; "
    "torch._addmm_activation has no gradient."
)
_UNTIMED = (
    " If a trace shows the job's GPU time, `logparse replay` times this call through PyTorch twice: as it runs now, "
    "and fused."
)
_STATED = " The list of actions states the total saving and the lines of the program to change."
_IN_TRAINING = (
    "In training, a GELU remains a kernel of its own. model.compile() joins this kernel with the elementwise "
    "operators around it."
)
_WRITTEN = (
    "Replace the GELU that the model writes out by torch.nn.functional.gelu(x, approximate='tanh'), which is one "
    "kernel, also in training. `logparse replay` times this change as the action one_kernel_gelu."
)


ANALYZER = Analyzer(
    name=NAME,
    about="a bias, ReLU or GELU that runs in kernels of its own after a matrix product (in traces)",
    worth=(
        "the measured saving, if `logparse replay` timed the matrix product both fused with these kernels and not "
        "fused. A measured saving of zero is not reported. Without such times, the saving is at most the time of "
        "these kernels"
    ),
    find=find,
)
