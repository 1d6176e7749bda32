"""Tests of switching a change on and off in a running job.

While the change is on, the model must be the same as after ``apply.py``. After it is off, the model must be as before,
to the last bit.
"""

from __future__ import annotations

import ast
import copy
import re
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analyzers.actions import ACTIONS, ActionResult, Application
from analyzers.actions import channels_last as channels_last_action
from analyzers.actions.action import definitions
from analyzers.actions.cudnn_benchmark import SETTINGS as BENCHMARK
from analyzers.actions.tf32 import SETTINGS as TF32
from analyzers.recommend.apply_module import module as apply_module
from logparse.capture.in_job.logparse_in_job import changes
from logparse.capture.in_job.logparse_in_job.switches import AT_START, NAMES, SWITCHABLE, fits, parts_of
from logparse.quoting import Python

torch = pytest.importorskip("torch")

from logparse.capture.in_job.logparse_in_job.switches import made, settings  # noqa: E402
from logparse.capture.in_job.logparse_in_job.switches import model as models  # noqa: E402
from logparse.capture.in_job.logparse_in_job.switches.base import Job, RefusedError, Several, Switch  # noqa: E402

ROOT = Path(__file__).parents[3]


class NewGELUActivation(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A GELU that is computed by single operators. It has the name of the class in the library transformers."""

    def forward(self, x: Any) -> Any:
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A model with convolutions on images, an embedding of odd size with shared weights, and several activations."""

    def __init__(self) -> None:
        super().__init__()
        self.images = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
        )
        self.register_buffer("image", torch.randn(1, 8, 4, 4))
        self.embedding = torch.nn.Embedding(259, 8)
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
        self.act, self.drop = NewGELUActivation(), torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(8, 259, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, images: Any, words: Any) -> Any:
        seen = (self.images(images) * self.image).mean((2, 3))
        return self.head(self.drop(self.act(self.inner(seen + self.embedding(words)))))


CHANGES: Mapping[str, tuple[tuple[Python, ...], str]] = {
    "channels_last": (channels_last_action.MODEL, "layout"),
    "padded_output": ((Python("model = pad_output(model, 259, 320)"),), "padding"),
    "one_kernel_gelu": ((Python("model = use_one_kernel_gelu(model)"),), "gelu"),
    "fused_epilogue": ((Python("model = fuse_epilogues(model, ('tanh',))"),), "epilogue"),
    "fused_gelu_tanh": ((Python("model = fuse_epilogues(model, ('none', 'tanh'))"),), "epilogue"),
}
"""For each change of the model, the code by which a generated ``apply.py`` makes it.

The code is given as lines, and as the module from which the needed definitions are copied.
"""


def trained(steps: int = 2) -> tuple[Any, Any]:
    """Return a model and its optimizer after some training steps, with gradients and optimizer state."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(steps):
        step(net, optimizer)
    return net, optimizer


def step(net: Any, optimizer: Any) -> float:
    torch.manual_seed(1)
    optimizer.zero_grad()
    out = net(torch.randn(4, 3, 6, 6), torch.arange(4))
    loss = torch.nn.functional.cross_entropy(out, torch.tensor([0, 1, 2, 258]))
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def look(net: Any, optimizer: Any) -> dict[str, Any]:
    """Return everything that can be seen of a model and its optimizer.

    These are the identities of objects, bytes, memory layouts, hooks and attributes.
    """
    found: dict[str, Any] = {}

    def tensor(name: str, x: Any) -> None:
        bits = x.detach().clone(memory_format=torch.contiguous_format).numpy().tobytes()
        found[name] = (id(x), tuple(x.shape), x.stride(), x.storage_offset(), x.dtype, bits)

    for name, x in net.named_modules(remove_duplicate=False):
        plain = {k: v for k, v in vars(x).items() if isinstance(v, int | str | float)}
        hooks = {k: list(getattr(x, k)) for k in ("_forward_hooks", "_forward_pre_hooks")}
        found[f"module {name}"] = (id(x), type(x), plain, hooks, list(x._modules), list(x._parameters))
    for name, x in [*net.named_parameters(remove_duplicate=False), *net.named_buffers()]:
        tensor(name, x)
        if x.grad is not None:
            tensor(f"gradient {name}", x.grad)
    names = {x: name for name, x in net.named_parameters()}
    for parameter, state in optimizer.state.items():
        for name, x in state.items():
            tensor(f"state {names[parameter]} {name}", x)
    return found


def applied(name: str, net: Any, folder: Path) -> Any:
    """Change a model by a generated ``apply.py`` in which only this change is made, and return the model."""
    lines, of = CHANGES[name]
    action = next(x for x in ACTIONS if x.name == name)
    application = Application(line="", model=lines, helpers=(definitions(of),))
    result = ActionResult(
        action=action, application=application, now_us=2.0, then_us=1.0, low_us=1.0, high_us=1.0, parts=()
    )
    written = apply_module([result])
    assert written is not None
    (folder / "apply.py").write_bytes(written.data)
    return runpy.run_path(str(folder / "apply.py"), run_name="apply")["model"](net, name)


def form(net: Any) -> dict[str, Any]:
    """Return the structure of a model: classes, attributes, hooks and parameters.

    The identities of objects are left out, because they differ between copies of a model.
    """
    out: dict[str, Any] = {}
    for name, x in net.named_modules():
        hooks = [[getattr(h, "__name__", type(h).__name__) for h in getattr(x, k).values()]
                 for k in ("_forward_hooks", "_forward_pre_hooks")]  # fmt: skip
        plain = {k: v for k, v in vars(x).items() if isinstance(v, int | str | float)}
        out[name] = (type(x).__name__, plain, hooks)
    for name, x in [*net.named_parameters(), *net.named_buffers()]:
        out[f"tensor {name}"] = (tuple(x.shape), x.stride(), x.detach().clone().flatten().tolist())
    return out


@pytest.mark.parametrize("name", CHANGES)
def test_on_is_what_apply_does_and_off_restores_every_bit(name: str, tmp_path: Path) -> None:
    net, optimizer = trained()
    before, other = look(net, optimizer), applied(name, copy.deepcopy(net), tmp_path)
    switch = made(name)
    for _ in range(2):
        switch.on(Job([net], [optimizer]))
        assert form(net) == form(other), "apply.py and the trial do one thing"
        switch.off()
        assert look(net, optimizer) == before
    switch.off()
    assert look(net, optimizer) == before, "off twice changes nothing"


@pytest.mark.parametrize("name", CHANGES)
def test_training_with_the_change_switched_on_and_off_is_the_same(name: str) -> None:
    """A model learns the same if a change is switched on and off during the training.

    The losses and the final parameters are equal up to rounding.
    """
    plain, of_plain = trained()
    net, optimizer = trained()
    switch = made(name)
    parameters = list(net.parameters())
    for _ in range(3):
        switch.on(Job([net], [optimizer]))
        ours = [step(net, optimizer) for _ in range(2)]
        switch.off()
        ours.append(step(net, optimizer))
        assert ours == pytest.approx([step(plain, of_plain) for _ in range(3)], rel=1e-4)
    assert [id(x) for x in net.parameters()] == [id(x) for x in parameters]
    assert {id(x) for x in optimizer.state} == {id(x) for x in parameters}
    for a, b in zip(net.state_dict().items(), plain.state_dict().items(), strict=True):
        assert a[0] == b[0]
        assert torch.allclose(a[1], b[1], atol=1e-5), a[0]
    shapes = [(x.shape, x.stride()) for x in plain.parameters()]
    assert [(x.shape, x.stride()) for x in net.parameters()] == shapes
    for mine, its in zip(net.parameters(), plain.parameters(), strict=True):
        assert mine.grad.stride() == its.grad.stride()
        state = [(k, x.shape, x.stride()) for k, x in optimizer.state[mine].items()]
        assert state == [(k, x.shape, x.stride()) for k, x in of_plain.state[its].items()]


def test_the_optimizer_has_the_layout_of_its_parameters_while_it_is_on() -> None:
    net, optimizer = trained()
    weight = net.images[0].weight
    switch = made("channels_last")
    switch.on(Job([net], [optimizer]))
    beside = [weight.grad, optimizer.state[weight]["exp_avg"], optimizer.state[weight]["exp_avg_sq"]]
    assert {x.stride() for x in (weight, *beside)} == {(27, 1, 9, 3)}
    assert net.image.is_contiguous(memory_format=torch.channels_last)
    switch.off()
    assert {x.stride() for x in (weight, *beside)} == {(27, 9, 3, 1)}


def test_the_jobs_own_changes_stay() -> None:
    """If the job itself alters its model while logparse's change is on, this stays after the change is off.

    Examples are the job's own hooks, the mode (training or evaluation) of modules that logparse had replaced, and new
    optimizer state.
    """
    net, _ = trained()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    switch = made("channels_last+fused_epilogue+padded_output")
    switch.on(Job([net], [optimizer]))
    seen: list[int] = []
    net.head.register_forward_hook(lambda *_: seen.append(1))
    step(net, optimizer)
    net.eval()
    switch.off()
    assert not net.inner[0].training
    assert type(net.inner[1]) is torch.nn.ReLU
    for x in net.parameters():
        momentum = optimizer.state[x]["momentum_buffer"]
        assert (momentum.shape, momentum.stride()) == (x.shape, x.stride())
    net(torch.randn(4, 3, 6, 6), torch.arange(4))
    assert seen == [1, 1]


class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner


def flat() -> Any:
    net = Net()
    buffer = torch.zeros(10_000)
    buffer[: net.images[0].weight.numel()] = net.images[0].weight.detach().flatten()
    net.images[0].weight.data = buffer[: net.images[0].weight.numel()].view(8, 3, 3, 3)
    return net


@pytest.mark.parametrize(
    ("name", "net", "why"),
    [
        ("channels_last", lambda: torch.nn.Linear(2, 2), "no convolution"),
        ("channels_last", lambda: Net().to(memory_format=torch.channels_last), "no convolution"),
        ("padded_output", lambda: torch.nn.Linear(2, 320), "nothing to pad: every linear layer"),
        ("one_kernel_gelu", torch.nn.GELU, "no module of the model computes GELU by a formula of its own"),
        ("fused_epilogue", lambda: torch.nn.Linear(2, 2), "no torch.nn.Sequential"),
        (
            "channels_last",
            lambda: DistributedDataParallel(Net()),
            "the model's parameters are in DistributedDataParallel",
        ),
        ("channels_last", flat, "the model's parameters are parts of one buffer"),
    ],
)
def test_what_cannot_be_switched_is_refused_with_nothing_changed(name: str, net: Any, why: str) -> None:
    model = net()
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters())
    before = look(model, optimizer)
    with pytest.raises(RefusedError, match=re.escape(why)):
        made(name).on(Job([model], [optimizer]))
    assert look(model, optimizer) == before


def held(how: Any) -> Any:
    """Return a model whose weights are also used by another object of the job."""
    net = Net()
    net.held = SimpleNamespace(by=how(net))
    return net


@pytest.mark.parametrize(
    ("name", "net", "why"),
    [
        ("channels_last", lambda: held(lambda net: net.images[0].weight.data.view(-1)), "the job holds a view of its"),
        ("channels_last", lambda: held(lambda net: net.images[0].weight.detach().numpy()), "the job holds a view of"),
        (
            "padded_output",
            lambda: held(lambda net: net.head(torch.ones(2, 8, requires_grad=True))),
            "or an autograd graph whose backward pa",
        ),
        ("channels_last", lambda: Net().share_memory(), "the model's parameters are shared with other processes"),
        (
            "padded_output",
            lambda: held(lambda net: [net.head.weight.view_as(net.head.weight).grad_fn.next_functions[0][0]]),
            "the job itself uses the autograd nodes that accumulate its parameters' gradients",
        ),
    ],
)
def test_parameters_that_something_else_uses_are_refused(name: str, net: Any, why: str) -> None:
    model = net()
    before = [(id(x), models.shape_of(x)) for x in model.parameters()]
    with pytest.raises(RefusedError, match=re.escape(why)):
        made(name).on(Job([model], []))
    assert [(id(x), models.shape_of(x)) for x in model.parameters()] == before


class Grams(torch.optim.SGD):  # type: ignore[misc, name-defined]
    """An optimizer that keeps matrices of another size than the parameters, as the optimizer SOAP does."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for x in group["params"]:
                self.state[x]["grams"] = [torch.eye(len(x))]
        return super().step(closure)


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, Grams, torch.optim.LBFGS])
def test_state_of_another_size_cannot_be_padded(kind: Any) -> None:
    net = torch.nn.Linear(4, 300)
    optimizer = kind(net.parameters())

    def loss() -> Any:
        optimizer.zero_grad()
        out = net(torch.randn(2, 4)).square().mean()
        out.backward()
        return out

    loss()
    optimizer.step(loss)
    before = look_at_sizes(net, optimizer)
    with pytest.raises(RefusedError, match=f"{kind.__name__} keeps tensors of another size than the parameters have"):
        made("padded_output").on(Job([net], [optimizer]))
    assert look_at_sizes(net, optimizer) == before


def look_at_sizes(net: Any, optimizer: Any) -> Any:
    return [
        *(x.shape for x in net.parameters()),
        *(x.shape for state in optimizer.state.values() for x in state.values() if torch.is_tensor(x)),
    ]


def test_padding_leaves_other_optimizers_alone() -> None:
    net, other = torch.nn.Linear(4, 300), torch.nn.Linear(4, 5)
    optimizer = torch.optim.Adafactor(other.parameters())
    other(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    switch = made("padded_output")
    switch.on(Job([net], [optimizer]))
    assert len(net.weight) == 320
    switch.off()


def test_gradients_have_the_new_size_and_hooks_stay() -> None:
    """If a change alters the size of a parameter, its gradient gets the new size, and its hooks are still called."""
    # Here the job also keeps a loss, which refers to the autograd node that added up gradients of the former size.
    net, seen = torch.nn.Linear(4, 300), []
    net.weight.register_hook(lambda gradient: seen.append("before"))
    net.weight.register_post_accumulate_grad_hook(lambda x: seen.append("after"))
    losses = [net(torch.ones(2, 4)).sum()]
    losses[0].backward()
    switch = made("padded_output")
    for _ in range(2):
        switch.on(Job([net], []))
        losses.append(net(torch.ones(2, 4)).sum())
        losses[-1].backward()
        assert net.weight.grad.shape == (320, 4)
        switch.off()
        losses.append(net(torch.ones(2, 4)).sum())
        losses[-1].backward()
        assert net.weight.grad.shape == (300, 4)
    assert seen == ["before", "after"] * 5
    assert torch.equal(net.weight.grad, torch.full((300, 4), 10.0))


def test_a_graph_of_the_present_size_hinders_the_way_back() -> None:
    net = torch.nn.Linear(4, 300)
    switch = made("padded_output")
    switch.on(Job([net], []))
    assert switch.hinders() == ""
    loss = net(torch.ones(2, 4, requires_grad=True)).sum()
    assert "an autograd graph whose backward pass has not yet run" in switch.hinders()
    assert "an autograd graph" in several(switch).hinders()
    loss.backward()
    assert switch.hinders() == ""
    switch.off()
    assert switch.hinders() == ""


def several(switch: Any) -> Several:
    """Return a combination of changes that has only one member, the given change. The change is switched on.

    A change is a setting such as TF32. logparse can switch several of them on and off together.
    """
    found = Several([switch])
    found._on.append(switch)
    return found


def test_of_several_none_is_on_where_one_is_refused() -> None:
    net, optimizer = trained()
    net.act = torch.nn.GELU()
    before = look(net, optimizer)
    with pytest.raises(RefusedError, match="no module of the model computes GELU by a formula of its own"):
        made("channels_last+one_kernel_gelu").on(Job([net], [optimizer]))
    assert look(net, optimizer) == before


# --------------------------------------------------------------------------------------------------------- settings


@pytest.fixture
def flags() -> Iterator[list[Any]]:
    """Return the PyTorch settings that logparse may change. They are restored after the test."""
    known = [
        settings.Flag("backends.cuda.matmul.allow_tf32"),
        settings.Flag("backends.cudnn.benchmark"),
        settings.Flag("backends.cudnn.benchmark_limit"),
    ]
    before = [x.read() for x in known]
    yield known
    for flag, value in zip(known, before, strict=True):
        flag.write(value)


@pytest.mark.parametrize(("name", "lines"), [("tf32", TF32), ("cudnn_benchmark", BENCHMARK)])
def test_a_setting_is_what_apply_sets(
    name: str, lines: tuple[Python, ...], flags: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    before = [x.read() for x in flags]
    exec("\n".join(lines), {"torch": torch})
    by_apply = [x.read() for x in flags]
    for flag, value in zip(flags, before, strict=True):
        flag.write(value)
    switch = settings.made(name, [])
    switch.on(Job([], []))
    assert [x.read() for x in flags] == by_apply != before
    assert switch.disturbed() == ""
    switch.off()
    assert [x.read() for x in flags] == before


def test_cudnn_benchmark_is_not_tried_alone() -> None:
    """logparse does not try ``cudnn.benchmark`` alone in a running job, because it would change nothing."""
    # With this setting PyTorch looks for the fastest plan (kernel with settings) of a convolution. But for a
    # convolution that has already run, PyTorch keeps the plan that it used.
    assert "cudnn_benchmark" not in NAMES
    assert not fits("channels_last_benchmark", ["tf32", "channels_last"])
    assert not fits("channels_last", ["channels_last_benchmark"])
    assert fits("channels_last_benchmark", ["tf32"])
    assert fits("channels_last+tf32", ["channels_last", "tf32"])


def test_cudnn_benchmark_is_not_tried_on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """On ROCm, logparse never tries the setting ``cudnn.benchmark`` in a running job, not even with channels_last."""
    # PyTorch remembers which MIOpen solver to use for a convolution that has run (Conv_miopen.cpp). The solver may be
    # remembered for both memory layouts together, so it would also be used when the setting is switched on.
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.version, "hip", "7.2")
    model = torch.nn.Conv2d(3, 4, 3)
    with pytest.raises(RefusedError, match="keeps the solver"):
        made("channels_last_benchmark").on(Job([model], []))
    assert model.weight.is_contiguous(), "its first part is taken back"


def test_a_job_that_sets_it_itself_keeps_what_it_has_set(flags: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    switch = settings.made("cudnn_benchmark", [])
    switch.on(Job([], []))
    torch.backends.cudnn.benchmark_limit = 3
    assert switch.disturbed() == "the job itself sets torch.backends.cudnn.benchmark_limit"
    switch.off()
    assert torch.backends.cudnn.benchmark_limit == 3
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0
    with pytest.raises(RefusedError, match="the job already runs with this setting"):
        switch.on(Job([], []))


def test_the_order_of_attention_is_that_of_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    from logparse.capture.in_job.logparse_in_job.changes.attention import prefer_attention

    before = settings._order()
    context: Any = prefer_attention("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
    by_apply = settings._order()
    context.__exit__(None, None, None)
    switch = settings.Attention("math")
    switch.on(Job([], []))
    assert settings._order()[0][0] == by_apply[0][0] == 0, "math comes first"
    assert settings._order()[1] == by_apply[1], "the others are allowed as before"
    assert switch.disturbed() == ""
    torch.backends.cuda.enable_flash_sdp(False)
    assert switch.disturbed() == "the job itself sets the attention backends"
    switch.off()
    torch.backends.cuda.enable_flash_sdp(True)
    assert settings._order() == before


def test_the_kernel_of_a_cpu_is_forbidden_and_allowed_again() -> None:
    switch = made("attention_math")
    switch.on(Job([], []))
    assert not torch.backends.cuda.flash_sdp_enabled()
    switch.off()
    assert torch.backends.cuda.flash_sdp_enabled()


class FakeTunable(SimpleNamespace):
    """Stand-in for PyTorch's TunableOp and its settings, without a GPU."""

    def __init__(self, takes: bool = True, on: bool = False) -> None:
        super().__init__(read=[], on=on, tuning=True, takes=takes)

    def is_enabled(self) -> bool:
        return bool(self.on)

    def tuning_is_enabled(self) -> bool:
        return bool(self.tuning)

    def enable(self, on: bool) -> None:
        self.on = on

    def tuning_enable(self, on: bool) -> None:
        self.tuning = on

    def read_file(self, path: str) -> bool:
        self.read.append(path)
        return bool(self.takes)


def test_tunableop_rows_are_read_once_and_unused_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTunable()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "tunable", fake)
    switch = made("tunableop_rows", ["rows.csv"])
    for _ in range(2):
        switch.on(Job([], []))
        assert (fake.on, fake.tuning) == (True, False)
        switch.off()
        assert (fake.on, fake.tuning) == (False, True)
    assert fake.read == ["rows.csv"]


@pytest.mark.parametrize(
    ("fake", "files", "why"),
    [
        (FakeTunable(takes=False), ["rows.csv"], "TunableOp does not accept rows.csv"),
        (FakeTunable(on=True), ["rows.csv"], "the job itself uses TunableOp"),
        (FakeTunable(), [], "this change needs a TunableOp file; name the file with --rows FILE"),
    ],
)
def test_tunableop_that_cannot_be_switched(
    fake: FakeTunable, files: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "tunable", fake)
    before = (fake.on, fake.tuning)
    with pytest.raises(RefusedError, match=why):
        made("tunableop_rows", files).on(Job([], []))
    assert (fake.on, fake.tuning) == before


@pytest.mark.parametrize("name", ["tf32", "blas_cublaslt", "tunableop_rows", "attention_flash"])
def test_a_job_on_a_cpu_has_no_settings_of_a_gpu(name: str) -> None:
    with pytest.raises(RefusedError, match=r"only on a GPU|on a CPU"):
        made(name, ["rows.csv"]).on(Job([], []))


def test_the_preferred_library_is_a_flag_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["default"]

    def preferred(library: str | None = None) -> str:
        chosen[:] = [library or chosen[0]]
        return chosen[0]

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", preferred)
    switch = made("blas_cublaslt")
    switch.on(Job([], []))
    assert chosen == ["cublaslt"]
    switch.off()
    assert chosen == ["default"]
    with pytest.raises(RefusedError, match="this PyTorch does not have rocblas"):
        made("blas_rocblas").on(Job([], []))


# ------------------------------------------------------------------------------------------------------------ lists


def test_every_action_can_be_switched() -> None:
    assert {x.name for x in ACTIONS} <= {*NAMES, *(what.strip("`") for what, _ in AT_START)}
    for action in ACTIONS:
        if action.contains:
            assert parts_of(action.name) == action.contains
    for x in SWITCHABLE:
        assert isinstance(made(x.name), Several if len(x.parts) > 1 else Switch)
    assert {part for x in SWITCHABLE for part in x.parts} == {*settings.KNOWN, *models.KNOWN}


def test_modules_of_changes_import_only_torch() -> None:
    """The modules in ``changes`` can be copied into a single file, the generated ``apply.py``.

    So they import only torch and a few standard modules, and do not use the same name twice.
    """
    names: list[str] = []
    template = (ROOT / "analyzers/recommend/assets/apply.py.in").read_text(encoding="utf-8")
    there = {"torch", *re.findall(r"^import (\w+)$", template, re.MULTILINE)}
    for path in Path(changes.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Import):
                assert {x.name for x in node.names} <= there, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module in ("__future__", "typing"), path
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append(node.name)
    names += re.findall(r"^def (\w+)", template, re.MULTILINE)
    assert len(names) == len(set(names))


def test_the_page_lists_what_is_switched_where() -> None:
    page = (ROOT / "docs/measurement.md").read_text(encoding="utf-8")
    for rows in ([(f"`{x.name}`", x.switched, x.undone) for x in SWITCHABLE], AT_START):
        table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        assert table in page, f"docs/measurement.md lacks:\n{table}"
