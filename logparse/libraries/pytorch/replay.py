"""Time operations in PyTorch on ROCm, CUDA or the CPU: the default, and changes that need no new kernel.

``Default`` is the call without any change.  ``torch:WORD,WORD…`` names a changed setting or another formulation:

| word | meaning |
|---|---|
| ``blas=cublaslt``, ``benchmark``, ``mkldnn=off``, ``sdpa=flash`` | a setting |
| ``layout=NHWC`` | the other layout; the time of the transposes is included |
| ``stored`` | the tensors are in that form already, so no conversion is timed |
| ``gemm``, ``pad=8``, ``fused`` | another formulation |
"""

from __future__ import annotations

from collections.abc import Sequence

from logparse.libraries.kinds.backend import BackendType, Conditions, UnsupportedError
from logparse.libraries.kinds.device.attention_operands import attention_of
from logparse.libraries.kinds.device.device_backend import DeviceBackend
from logparse.libraries.kinds.device.operator_operands import OperatorOperands, overload_of
from logparse.libraries.kinds.device.torch_device import Call, TorchRunnable
from logparse.libraries.pytorch.replay_attention import attention_ways
from logparse.libraries.pytorch.replay_convs import conv_ways
from logparse.libraries.pytorch.replay_gemms import gemm_ways
from logparse.libraries.pytorch.replay_ways import Way, name_way
from logparse.model import ConvProblem, GemmProblem, OperatorProblem, Problem, Solution


class Torch(DeviceBackend):
    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        return [way.solution for way in self._ways(problem) if way.raced][:limit]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        way = next((x for x in self._ways(problem) if x.solution == solution), None)
        if way is None:
            raise UnsupportedError(f"PyTorch on this machine does not offer {solution.text}")
        operands = self.operands(problem, conditions)
        with self._device.memory_errors(problem.bytes if not hasattr(problem, "free") else None):
            call = way.make(operands)
        return TorchRunnable(self._device, operands, call, around=way.around, thread=way.thread)

    def _ways(self, problem: Problem) -> list[Way]:
        if isinstance(problem, GemmProblem):
            return gemm_ways(self._device, problem, self._place)
        if isinstance(problem, ConvProblem):
            return conv_ways(self._device, problem, self._place)
        if isinstance(problem, OperatorProblem):
            attention = attention_of(self._device, problem)
            if attention is not None:
                return attention_ways(self._device, attention)
            overload_of(self._device, problem)  # raises UnsupportedError if PyTorch has no overload for the inputs
            return [Way(name_way(), _operator, self._device.torch.no_grad)]
        raise UnsupportedError("the exact sizes of this call are unknown, so the call cannot be measured")


def _operator(o: OperatorOperands) -> Call:
    """Return a function that calls an operator exactly as the trace has recorded it.

    The results of other ways to compute the operator must agree with the result of this call.
    """

    def call(i: int) -> object:
        values, named_values = o.arguments[i]
        return o.overload(*values, **named_values)

    return call


BACKEND = BackendType(
    "torch",
    "PyTorch: its default way to compute a call, compared with other ways that a user can choose by settings or code",
    Torch,
    imports=("torch",),
    default=True,
    needs={"torch": "torch"},
)
