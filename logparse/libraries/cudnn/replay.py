"""Time a convolution with all plans of cuDNN, through its own frontend (package ``nvidia-cudnn-frontend``).

The plans come from heuristic A, then B, then the fallback list.  The first plan is the library's choice, because a user
of the heuristic gets index 0.  A plan has cuDNN's own name (engine and knobs).  For a convolution in NCHW, the plans
for channels_last operands come after the plans for NCHW.  Their names begin with ``layout=NHWC,stored``, because their
times include no transposes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from logparse.libraries.kinds.backend import BackendType, Conditions, Place, UnsupportedError
from logparse.libraries.kinds.device.device_backend import DeviceBackend
from logparse.libraries.kinds.device.operands import ConvOperands, conv_of, conv_shapes, geometry, strides
from logparse.libraries.kinds.device.torch_device import Tensor, TorchRunnable
from logparse.model import ConvProblem, Problem, Solution

_TYPES = {"FP16": "HALF", "BF16": "BFLOAT16", "FP32": "FLOAT", "FP64": "DOUBLE"}
_STORED = "layout=NHWC,stored,"
_LAST = {"NCHW": "NHWC", "NCDHW": "NDHWC"}


@dataclass(frozen=True)
class _Graph:
    """A convolution as a cuDNN graph, with the execution plans that cuDNN offers for it.

    ``tensors`` are the first input, the second input and the output.
    """

    graph: Any
    tensors: tuple[Any, Any, Any]
    names: tuple[str, str, str]
    plans: Mapping[str, int]


class Cudnn(DeviceBackend):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        import cudnn  # after torch, which has loaded the library that both must use

        self._cudnn: Any = cudnn
        self._handle = cudnn.create_handle()
        stream = self._device.torch.cuda.current_stream(self._device.device).cuda_stream
        cudnn.set_stream(handle=self._handle, stream=stream)
        self._graphs: dict[str, _Graph] = {}

    def environment(self) -> Mapping[str, str]:
        return dict(self._device.facts) | {"cudnn_version": str(self._cudnn.backend_version())}

    def solutions(self, problem: Problem, limit: int, workspace_bytes: int | None = None) -> Sequence[Solution]:
        """Return the execution plans that cuDNN offers for a convolution.

        Plans in the convolution's own memory layout come first, then plans in channels_last layout. Each layout gets
        half of ``limit``, or more if the other layout has fewer plans.
        """
        conv = conv_of(problem, _TYPES)
        last = _channels_last(conv)
        own = list(self._graph(conv).plans)
        if last is None:
            return [Solution("cudnn", name) for name in own[:limit]]
        try:
            stored = [_STORED + name for name in self._graph(last).plans]
        except UnsupportedError:
            stored = []
        share = max(limit - len(stored), (limit + 1) // 2)
        return [Solution("cudnn", name) for name in [*own[:share], *stored][:limit]]

    def prepare(self, problem: Problem, solution: Solution, conditions: Conditions) -> TorchRunnable:
        conv, name = conv_of(problem, _TYPES), solution.id
        if name.startswith(_STORED):
            turned = _channels_last(conv)
            if turned is None:
                raise UnsupportedError("already channels_last")
            conv, name = turned, name.removeprefix(_STORED)
        made = self._graph(conv)
        if name not in made.plans:
            raise UnsupportedError("cuDNN does not offer this plan for this convolution")
        index = made.plans[name]
        try:
            made.graph.build_plan_at_index(index)
        except self._cudnn.cudnnGraphNotSupportedError as error:
            raise UnsupportedError(str(error)[:200]) from error
        need = int(made.graph.get_workspace_size_plan_at_index(index))
        if conditions.workspace_bytes is not None and need > conditions.workspace_bytes:
            raise UnsupportedError(f"needs {need} bytes of workspace, but the limit is {conditions.workspace_bytes}")
        operands = self.operands(conv, conditions)
        assert isinstance(operands, ConvOperands)
        workspace = self._reserve(need)

        def call(i: int) -> Tensor:
            pointers = {
                tensor: operands.tensors[of][i].data_ptr() for tensor, of in zip(made.tensors, made.names, strict=True)
            }
            made.graph.execute_plan_at_index(pointers, workspace.data_ptr(), index, self._handle)
            return operands.tensors[operands.output][i]

        return TorchRunnable(self._device, operands, call, workspace_bytes=need)

    def release(self) -> None:
        self._graphs.clear()
        super().release()

    def _graph(self, conv: ConvProblem) -> _Graph:
        if conv.text not in self._graphs:
            self._graphs[conv.text] = self._built(conv)
        return self._graphs[conv.text]

    def _built(self, conv: ConvProblem) -> _Graph:
        cudnn, shapes = self._cudnn, conv_shapes(conv)
        io = getattr(cudnn.data_type, _TYPES[conv.in_type or ""])
        compute = cudnn.data_type.DOUBLE if conv.in_type == "FP64" else cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=io, intermediate_data_type=compute, compute_data_type=compute, handle=self._handle
        )
        operator, names = {
            "F": (graph.conv_fprop, ("x", "w", "dy")),
            "B": (graph.conv_dgrad, ("dy", "w", "x")),
            "W": (graph.conv_wgrad, ("x", "dy", "w")),
        }[conv.direction]
        layouts = {"x": conv.in_layout, "w": conv.weights_layout, "dy": conv.out_layout}
        steps = {name: strides(shape, layouts[name]) for name, shape in shapes.items()}
        inputs = [graph.tensor(dim=list(shapes[x]), stride=steps[x], data_type=io, name=x) for x in names[:2]]
        stride, pad, dilation = geometry(conv)
        output = operator(*inputs, pre_padding=pad, post_padding=pad, stride=stride, dilation=dilation)
        out = names[2]
        output.set_output(True).set_data_type(io).set_dim(list(shapes[out])).set_stride(steps[out])
        try:
            graph.validate()
            graph.build_operation_graph()
            modes = cudnn.heur_mode
            graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
            if conv.in_type == "FP32" and not self._place.conv_tf32:
                graph.deselect_numeric_notes([cudnn.numerical_note.TENSOR_CORE])
            graph.check_support()
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
            raise UnsupportedError(f"cuDNN: {str(error)[:200]}") from error
        plans: dict[str, int] = {}
        for index in range(graph.get_execution_plan_count()):
            plans.setdefault(str(graph.get_plan_name_at_index(index)), index)
        return _Graph(graph, (*inputs, output), names, plans)


def _channels_last(conv: ConvProblem) -> ConvProblem | None:
    """Return a convolution with its tensors in channels_last layout, or None if they already are."""
    last = _LAST.get(conv.in_layout or "")
    return None if last is None else replace(conv, in_layout=last, weights_layout=last, out_layout=last)


BACKEND = BackendType(
    "cudnn",
    "cuDNN: all plans that it offers for a convolution (package nvidia-cudnn-frontend)",
    Cudnn,
    imports=("torch",),
    needs={"torch": "torch", "cudnn": "nvidia-cudnn-frontend"},
)
