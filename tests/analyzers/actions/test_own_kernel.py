"""A user's own kernels in PyTorch's place: which calls they get, what is charged, and the whole loop on a CPU."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, astuple, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzers.actions import ACTIONS, own_kernel  # noqa: E402
from analyzers.actions.job import job_of  # noqa: E402
from analyzers.actions.kernel_overrides import OwnKernels  # noqa: E402
from analyzers.actions.own_kernel import call_of  # noqa: E402
from analyzers.actions.totals import results, wanted  # noqa: E402
from analyzers.analyzer import Settings  # noqa: E402
from analyzers.measure.backend import Conditions, OwnKernel  # noqa: E402
from analyzers.measure.replay import Options, replay, stages  # noqa: E402
from analyzers.measure.results import Method, measured  # noqa: E402
from analyzers.measure.sampler import Sampler  # noqa: E402
from analyzers.recommend import apply_module, render  # noqa: E402
from analyzers.recommend.verb import advise, write  # noqa: E402
from analyzers.times.action_times import HOST_FACT, HostCost, host_costs, samples_of  # noqa: E402
from analyzers.times.origins import ACTION  # noqa: E402
from analyzers.times.runs import tables_of  # noqa: E402
from analyzers.verify.actions import verify_actions  # noqa: E402
from logparse.formats.traces.torch import gemms  # noqa: E402
from logparse.formats.traces.torch.inputs import Inputs  # noqa: E402
from logparse.ingest import ingest, record  # noqa: E402
from logparse.model import Fact, GemmProblem, Problem, problem_from_text, solution_from_text  # noqa: E402
from logparse.store import Store, open_store  # noqa: E402
from logparse.text import duration  # noqa: E402
from tests.analyzers.actions import own_kernels  # noqa: E402
from tests.analyzers.measure.problems import gemm  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

KERNELS = "tests.analyzers.actions.own_kernels"
PRODUCT, WRONG, FAILING = (f"{KERNELS}:{x}" for x in ("product", "wrong", "failing"))

# ------------------------------------------------------------------------------------------------ which calls


@pytest.fixture
def overrides() -> Iterator[OwnKernels]:
    own_kernels.CALLS.clear()
    made = OwnKernels("CPU")
    yield made
    made.remove()


def covered(made: OwnKernels, operator: str, x: Any, y: Any, kernel: Any = own_kernels.product) -> None:
    sizes = (*x.shape, y.shape[-1])
    made.add(kernel, "k", operator, sizes, str(x.dtype).removeprefix("torch."), x.stride(), y.stride())


def calls() -> list[str]:
    """What the kernels were called for since the last look."""
    held = list(own_kernels.CALLS)
    own_kernels.CALLS.clear()
    return held


def test_only_the_calls_that_were_measured_get_the_kernel(overrides: OwnKernels) -> None:
    x, w, bias, out = torch.randn(6, 5), torch.randn(3, 5), torch.randn(3), torch.empty(6, 3)
    plain = torch.mm(x, w.t())
    covered(overrides, "mm", x, w.t())
    assert torch.equal(torch.mm(x, w.t()), plain)
    assert torch.equal(torch.mm(x, w.t(), out=out), plain)
    assert torch.equal(torch.nn.functional.linear(x, w), plain)
    assert calls() == ["none"] * 3
    others = [
        (x[:4], w.t()),  # another size
        (x.t().contiguous().t(), w.t()),  # other strides
        (torch.randn(6, 10)[:, ::2], w.t()),
        (x, w.t().contiguous()),
        (x.double(), w.double().t()),  # another type
    ]
    for a, b in others:
        assert torch.allclose(torch.mm(a, b), a @ b)
        assert torch.mm(a, b).dtype == a.dtype
    assert torch.mm(x, w.t(), out=torch.empty(3, 6).t()).stride() == (1, 6)
    torch.addmm(bias, x, w.t())
    torch.addmm(out, x, w.t())
    assert calls() == []


def test_a_bias_and_relu_and_batches(overrides: OwnKernels) -> None:
    x, w, bias = torch.randn(6, 5), torch.randn(3, 5), torch.randn(3)
    linear, fused = torch.addmm(bias, x, w.t()), torch._addmm_activation(bias, x, w.t())
    covered(overrides, "addmm", x, w.t())
    covered(overrides, "relu", x, w.t())
    assert torch.allclose(torch.addmm(bias, x, w.t()), linear)
    assert torch.allclose(torch._addmm_activation(bias, x, w.t()), fused)
    assert calls() == ["none", "relu"]
    for other in (torch.randn(6, 3), torch.randn(1), torch.randn(6)[::2]):
        assert torch.allclose(torch.addmm(other, x, w.t()), other + x @ w.t(), atol=1e-6)
    assert torch.allclose(torch.addmm(bias, x, w.t(), beta=0.5, alpha=2), 0.5 * bias + 2 * (x @ w.t()), atol=1e-5)
    torch._addmm_activation(bias, x, w.t(), use_gelu=True)
    assert calls() == []
    a, b = torch.randn(2, 6, 5), torch.randn(2, 5, 3)
    plain = torch.bmm(a, b)
    covered(overrides, "bmm", a, b)
    assert torch.allclose(a @ b, plain)
    torch.bmm(a[:1], b[:1])
    assert calls() == ["none"]


def test_gradients_autocast_and_compiled_programs(overrides: OwnKernels) -> None:
    x, w, bias = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((6, 5), (3, 5), (3,)))

    def layer(x: Any, w: Any, bias: Any) -> Any:
        return torch.nn.functional.linear(x, w, bias).sin()

    before = torch.autograd.grad(layer(x, w, bias).sum(), (x, w, bias))
    covered(overrides, "addmm", x.detach(), w.detach().t())
    covered(overrides, "mm", torch.empty(6, 3).double(), w.detach())  # the gradient of x
    for function in (layer, torch.compile(layer, backend="aot_eager")):
        after = torch.autograd.grad(function(x, w, bias).sum(), (x, w, bias))
        assert all(map(torch.allclose, before, after))
        assert calls() == ["none", "none"], "forward, and one of both gradients"
    assert torch.autograd.gradcheck(layer, (x, w, bias))
    calls()
    half = [t.detach().bfloat16() for t in (x, w)]
    covered(overrides, "mm", half[0], half[1].t())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x.detach().float() @ w.detach().float().t()).dtype == torch.bfloat16
    assert calls() == ["none"]


def test_a_kernel_that_raises_is_given_up_with_one_warning(overrides: OwnKernels) -> None:
    x, y, other = torch.randn(6, 5), torch.randn(5, 3), torch.randn(5, 4)
    plain = x @ y
    covered(overrides, "mm", x, y, own_kernels.failing)
    covered(overrides, "mm", x, other)
    with pytest.warns(UserWarning, match="k is not used for 6x5x3 any more: ValueError: no tensor cores here"):
        assert torch.equal(torch.mm(x, y), plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(torch.mm(x, y), plain)
        torch.mm(x, other)
    assert calls() == ["none"], "the other sizes keep theirs"


def test_a_kernel_may_return_its_result_and_operators_are_given_back(overrides: OwnKernels) -> None:
    x, y, out = torch.randn(6, 5), torch.randn(5, 3), torch.empty(6, 3)
    plain = x @ y
    covered(overrides, "mm", x, y, own_kernels.returned)
    assert torch.allclose(torch.mm(x, y), plain)
    assert torch.mm(x, y, out=out) is out
    assert torch.allclose(out, plain)
    assert calls() == ["returned"] * 2
    overrides.remove()
    torch.mm(x, y)
    assert calls() == []


def test_before_pytorch_2_10_compiled_programs_keep_the_library(
    overrides: OwnKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.library, "get_kernel", raising=False)
    x, y = torch.randn(6, 5), torch.randn(5, 3)
    plain, out = x @ y, torch.empty(6, 3)
    covered(overrides, "mm", x, y)
    assert torch.allclose(torch.mm(x, y), plain)
    assert calls() == ["none"]
    assert torch.allclose(torch.mm(x, y, out=out), plain)
    assert torch.allclose(torch.mm(x[:2], y), plain[:2])
    assert calls() == []


def described(tensor: Any) -> tuple[list[int], list[int], str]:
    kinds = {torch.float32: "float", torch.bfloat16: "c10::BFloat16"}
    return list(tensor.shape), list(tensor.stride()), kinds[tensor.dtype]


SIZES = [(6, 5, 3), (1, 5, 3), (6, 1, 3), (6, 5, 1)]


@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=2)), ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_call_of_a_traced_problem_is_the_call_that_was_traced(
    sizes: tuple[int, int, int], turned: tuple[bool, bool], overrides: OwnKernels
) -> None:
    """What a trace makes of operands, made back into a call, matches those very operands."""
    n, k, m = sizes
    x = torch.randn(k, n).t() if turned[0] else torch.randn(n, k)
    y = torch.randn(m, k).t() if turned[1] else torch.randn(k, m)
    dims, strides, types = zip(described(x), described(y), strict=True)
    (problem,) = gemms.mm(Inputs(dims=dims, strides=strides, types=types, values=("", ""))).problems
    call = call_of(problem)
    assert call is not None
    overrides.add(own_kernels.product, "k", *astuple(call))
    assert torch.allclose(torch.mm(x, y), x.double().mm(y.double()).float(), atol=1e-5)
    assert calls() == ["none"]


@pytest.mark.parametrize(
    ("problem", "operator"),
    [
        (gemm(m=8, ldd=8, ldc=8), "mm"),
        (gemm(bias=True, ldd=gemm().m), "addmm"),
        (gemm(bias=True, activation="relu", ldd=gemm().m), "relu"),
        (gemm(activation="relu", ldd=gemm().m), None),  # no operator has ReLU without a bias
        (gemm(beta="nonzero", ldd=gemm().m), None),
        (gemm(trans_a=None), None),
        (gemm(ldd=5000), None),  # a result with gaps, which no product of PyTorch makes
        (gemm(gradient=True), None),
    ],
)
def test_what_an_override_can_stand_for(problem: GemmProblem, operator: str | None) -> None:
    call = call_of(problem)
    assert (None if call is None else call.operator) == operator


# ------------------------------------------------------------------------------------------------ the whole loop


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """One product alone, and one with a bias and ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(48, 80), torch.nn.ReLU())
        self.head = torch.nn.Linear(80, 40, bias=False)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(x))


def traced(model: Any, path: Path, as_device: Any) -> None:
    images, labels = torch.randn(16, 48), torch.randint(0, 40, (16,))
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds, record_shapes=True, schedule=schedule) as profiler:
        for _ in range(3):
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    path.write_text(json.dumps(as_device(json.loads(path.read_text()))))


@pytest.fixture(scope="module")
def as_device() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("action_runs").as_device


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory, as_device: Any, torch_processes: None) -> Path:
    path: Path = tmp_path_factory.mktemp("own") / "before.json"
    traced(Net(), path, as_device)
    return path


def test_a_replay_checks_and_times_the_kernel_and_its_host_cost(
    trace: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest([str(trace)], store, run="before")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = Options(devices=("cpu",), run="before", method=Method(cache="hot", turns=2), stages=stages("actions"),
                      kind="gemm", kernels=(PRODUCT, WRONG, FAILING))  # fmt: skip
    assert replay(store, options).finished
    tables = tables_of(store, "before")
    rows = tables.measurements[tables.measurements["origin"] == ACTION]
    statuses = {(solution, status) for solution, status in zip(rows["solution"], rows["status"], strict=True)}
    assert (f"kernel:{PRODUCT}", "ok") in statuses
    assert {x for x in statuses if WRONG in x[0]} == {(f"kernel:{WRONG}", "wrong")}, "it is checked before it is timed"
    assert {x for x in statuses if FAILING in x[0]} == {(f"kernel:{FAILING}", "failed")}
    timed = {text for text, solution in zip(rows["problem"], rows["solution"], strict=True) if PRODUCT in solution}
    operators = [call.operator for text in timed if (call := call_of(problem_from_text(text)))]
    assert operators.count("relu") == 1, "the product with its bias and ReLU"
    costs = host_costs(tables, samples_of(tables, Settings()))
    assert {problem for problem, _ in costs} == timed
    assert all(0 <= x.least_own_us <= x.own_us > 0 and 0 <= x.least_other_us <= x.other_us for x in costs.values())


def plant(
    store: Store, times: dict[str, tuple[float, float]], cost: HostCost, only: str = "", earlier: bool = False
) -> list[Problem]:
    """Samples of a replay: the default's and the kernel's times, by the operator that a problem is a call of.

    ``earlier``: of one that did not time what calls cost at least.
    """
    fields = {name: us for name, us in asdict(cost).items() if not (earlier and name.startswith("least"))}
    job = job_of(tables_of(store, "before"), Settings())
    planted = []
    for work in own_kernel.candidates([PRODUCT])[0].works(job):
        call = call_of(work.problem)
        assert call is not None
        if only and call.operator != only:
            continue
        now, own = times[call.operator]
        named = {work.solution: now, f"kernel:{PRODUCT}": own, **({"torch:fused": now} if work.tail else {})}
        rows = [
            measured(work.problem, solution_from_text(text), [us, us * (1 + noise), us * (1 - noise)], origin=ACTION)
            for (text, us), noise in zip(named.items(), (0.01, -0.01, 0.0), strict=False)
        ]
        facts = {"environment": "e", "backend": "CPU", HOST_FACT: json.dumps({f"kernel:{PRODUCT}": fields})}
        record(
            store, [*rows, *(Fact(*x) for x in facts.items())], run="before", name=work.problem.text, format="replay"
        )
        planted.append(work.problem)
    return planted


def test_a_host_cost_that_cannot_be_timed_leaves_the_samples() -> None:
    class Failing:
        workspace_bytes = None

        def host_cost(self) -> HostCost:
            raise RuntimeError("out of memory")

        error = fault = sample_us = host_cost

    sampler = Sampler(gemm(), {}, method=Method(), conditions=Conditions(), bound=1.0, announce=lambda what: None)
    solution = solution_from_text(f"kernel:{PRODUCT}")
    sampler._prepared[solution.text] = Failing()  # type: ignore[assignment]
    assert isinstance(sampler._prepared[solution.text], OwnKernel)
    assert sampler.host_cost(solution) is None


def test_the_host_is_timed_with_the_code_in_its_caches_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated host: a call through the override takes so long, by what ran before it."""
    own_us = {"own": 30.0, "emptied": 120.0}
    plain_us = {"plain": 2.0, "emptied": 9.0}
    passed_us, small_us = {"passed": 5.0, "step": 12.0}, {"small": 1.0, "step": 4.0}
    ran, now_ns = ["nothing"], [0.0]
    put_in: list[Any] = []

    def call(name: str, times: dict[str, float]) -> None:
        now_ns[0] += 1e3 * times.get(ran[-1], 1_000.0)  # whatever else ran before would show
        ran.append(name)

    def product(*_: Any) -> Any:
        return lambda: call("own", own_us) if put_in else call("plain", plain_us)

    def small(*_: Any) -> Any:
        return lambda: call("passed", passed_us) if put_in else call("small", small_us)

    class Overrides:
        def __init__(self, key: str) -> None:
            assert key == "CUDA"

        def add(self, *_: Any) -> None:
            put_in.append("kernel")

        def remove(self) -> None:
            put_in.clear()

    class Device:
        is_gpu = True

        def synchronize(self) -> None:
            """Nothing runs beside the host."""

    module: Any = importlib.import_module("analyzers.measure.backends.torch_own_kernel")
    monkeypatch.setattr("analyzers.actions.kernel_overrides.OwnKernels", Overrides)
    fakes = {"_product": product, "_small": small, "_training_step": lambda device: lambda: ran.append("step")}
    fakes["_emptied"] = lambda step: (step(), ran.append("emptied"))
    for name, fake in fakes.items():
        monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: now_ns[0])
    runnable = object.__new__(module.OwnKernelRunnable)
    runnable._device, runnable._around, runnable._kernel = Device(), contextlib.nullcontext, own_kernels.product
    runnable._gemm = SimpleNamespace(problem=gemm(m=8, ldd=8, ldc=8))
    monkeypatch.setattr(runnable, "sample_us", lambda count: 2_600.0, raising=False)
    assert runnable.host_cost() == HostCost(own_us=111.0, other_us=8.0, least_own_us=28.0, least_other_us=4.0)
    assert not put_in


def test_the_cost_of_an_earlier_replay_is_what_it_timed(trace: Path, store: Store) -> None:
    ingest([str(trace)], store, run="before")
    (problem,) = plant(store, ALL_FASTER, HostCost(26.0, 3.5), only="relu", earlier=True)
    tables = tables_of(store, "before")
    assert host_costs(tables, samples_of(tables, Settings())) == {
        (problem.text, f"kernel:{PRODUCT}"): HostCost(26.0, 3.5, least_own_us=26.0, least_other_us=3.5)
    }


ALL_FASTER = {"mm": (40.0, 10.0), "addmm": (40.0, 39.0), "relu": (60.0, 20.0)}


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("apply", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_whole_loop(trace: Path, tmp_path: Path, as_device: Any) -> None:
    store = open_store(tmp_path / "store", create=True)
    ingest([str(trace)], store, run="before")
    plant(store, ALL_FASTER, HostCost(own_us=0.01, other_us=0.001))
    found = advise(store, Settings(), "before")
    (result,) = [x for x in found.actions if x.action.name == "own_kernel"]
    assert result.pays
    assert result.action.contains == ("fused_epilogue",), "the layers are changed as that action does"
    labels = [x.label for x in result.parts]
    assert len(set(labels)) == len(labels)
    assert sum("RELU_BIAS" in x for x in labels) == 1, "the pair, and its product not once more"
    assert len(labels) == 1 + len([x for x in job_of(tables_of(store, "before"), Settings()).gemms if x.bias is False])
    write(found, Settings(), (), tmp_path / "overrides")
    apply: Any = imported(tmp_path / "overrides/apply.py")
    assert "own_kernel" in apply.CHOSEN
    assert "fused_epilogue" not in apply.CHOSEN
    assert apply.ALONE == (), "a job that is run with settings alone does not get it"
    torch.manual_seed(0)
    model, images = Net(), torch.randn(16, 48)
    before = model(images)
    (before**2).sum().backward()
    gradients = [x.grad.clone() for x in model.parameters()]
    model.zero_grad()
    own_kernels.CALLS.clear()
    apply.settings("own_kernel")
    try:
        model = apply.model(model, "own_kernel")
        after = model(images)
        (after**2).sum().backward()
        assert torch.allclose(after, before, atol=1e-5)
        assert all(torch.allclose(x.grad, y, atol=1e-5) for x, y in zip(model.parameters(), gradients, strict=True))
        assert sorted(calls()) == ["none"] * (len(labels) - 1) + ["relu"]
        apply.settings("own_kernel")  # once more changes nothing
        model(images)
        assert sorted(calls()) == ["none", "relu"]
        traced(model, tmp_path / "after.json", as_device)
    finally:
        apply._PUT_IN["CPU"].remove()
    ingest([str(tmp_path / "after.json")], store, run="after")
    proof = verify_actions(tables_of(store, "before"), tables_of(store, "after"), ["own_kernel"])
    assert proof.promised_us == pytest.approx(result.then_us / 2)
    assert {"GEMM"} <= {x.name for x in proof.groups}


def test_what_calls_cost_the_host_is_taken_off_the_saving(trace: Path, store: Store) -> None:
    ingest([str(trace)], store, run="before")
    faster = plant(store, ALL_FASTER, HostCost(0.5, 0.25, least_own_us=0.125, least_other_us=0.0625), only="relu")
    tables = tables_of(store, "before")
    (result,) = [x for x in results(tables, ACTIONS, Settings()) if x.action.name == "own_kernel"]
    products = sum(x.calls or 0 for x in job_of(tables, Settings()).work if isinstance(x.problem, GemmProblem))
    assert len(faster) == 1
    assert result.action.host_us == pytest.approx(2 * 0.5 + (products - 2) * 0.25), "two steps"
    assert result.action.least_host_us == pytest.approx(2 * 0.125 + (products - 2) * 0.0625)
    assert result.saving_us == pytest.approx(result.now_us - result.then_us - result.action.host_us)
    (line,) = [x for x in render.action_lines([result], None) if "cost the host" in x]
    assert f"cost the host {duration(result.action.least_host_us / 2)} (" in line
    assert f"to {duration(result.action.host_us / 2)} more; the latter is charged" in line
    dear = replace(result, action=replace(result.action, host_us=result.now_us))
    assert result.pays
    assert not dear.pays
    assert dear.loses
    assert apply_module.chosen([dear]) == ()


@pytest.mark.parametrize(
    ("times", "cost"),
    [
        ({"mm": (40.0, 39.9), "addmm": (40.0, 41.0), "relu": (60.0, 60.0)}, HostCost(0.0, 0.0)),  # within the noise
        (ALL_FASTER, HostCost(1e6, 0.0)),  # the host pays more than the GPU gains
    ],
)
def test_where_it_does_not_win_it_is_no_action(times: Any, cost: HostCost, trace: Path, store: Store) -> None:
    ingest([str(trace)], store, run="before")
    plant(store, times, cost)
    assert "own_kernel" not in {x.action.name for x in results(tables_of(store, "before"), ACTIONS, Settings())}


def test_what_a_replay_must_time(trace: Path, store: Store) -> None:
    ingest([str(trace)], store, run="before")
    tables = tables_of(store, "before")
    asked = wanted(tables, own_kernel.candidates([PRODUCT, WRONG]), Settings())
    assert all(x[-2:] == (f"kernel:{PRODUCT}", f"kernel:{WRONG}") for _, x in asked)
    assert {call_of(problem).operator for problem, _ in asked} == {"mm", "addmm", "relu"}  # type: ignore[union-attr]
