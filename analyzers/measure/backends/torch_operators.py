"""Any other operator of PyTorch as the trace recorded it: only its own call, which other problems compare with."""

from __future__ import annotations

from analyzers.measure.backends.torch_ways import Way, named
from analyzers.measure.device.operator_operands import OperatorOperands, overload_of
from analyzers.measure.device.torch_device import Call, TorchDevice
from logparse.model import OperatorProblem


def operator_ways(device: TorchDevice, problem: OperatorProblem) -> list[Way]:
    """The default alone.  Raises UnsupportedError where PyTorch has no such operator for these inputs."""
    overload_of(device, problem)
    return [Way(named(), lambda o: _default(device, o), device.torch.no_grad)]


def _default(device: TorchDevice, o: OperatorOperands) -> Call:
    def call(i: int) -> object:
        values, named_values = o.arguments[i]
        return o.overload(*values, **named_values)

    return call
