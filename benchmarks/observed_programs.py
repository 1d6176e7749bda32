"""Programs with well-known libraries that ``observed.py`` runs: ``python observed_programs.py NAME``.

Each prints a line of JSON: ``result`` has exact losses or outputs, and ``ms`` the time of each step.
"""

# The program measures ms itself, on the GPU's clock if there is a GPU. Weights are random and nothing is downloaded.

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # This setting gives the same sums in every run.
import torch
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
STEPS, CALLS = (120, 600) if GPU else (30, 30)
"""The number of training steps, and the number of calls in inference."""
PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


class Clock:
    """Notes the moment after each step. All moments are read at the end, so that the host never waits."""

    def __init__(self) -> None:
        self._moments: list[Any] = []

    def tick(self) -> None:
        if GPU:
            self._moments.append(torch.cuda.Event(enable_timing=True))
            self._moments[-1].record()
        else:
            self._moments.append(time.perf_counter())

    def ms(self) -> list[float]:
        if GPU:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) for a, b in zip(self._moments, self._moments[1:], strict=False)]
        return [1e3 * (b - a) for a, b in zip(self._moments, self._moments[1:], strict=False)]


def report(result: Any, clock: Clock, **more: Any) -> None:
    print(json.dumps({"result": result, **more, "ms": [round(x, 4) for x in clock.ms()]}))


def vision(width: int = 64) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def encoder(layers: int = 6) -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def train(model: nn.Module, batch: torch.Tensor, steps: int = STEPS) -> None:
    model, batch, clock = model.to(DEVICE), batch.to(DEVICE), Clock()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(steps):
        loss = model(batch).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        clock.tick()
    report([x.item() for x in losses], clock, graphs=graphs())


def infer(model: nn.Module, batch: torch.Tensor, steps: int = CALLS) -> None:
    model, batch, clock = model.to(DEVICE).eval(), batch.to(DEVICE), Clock()
    total = torch.zeros((), device=DEVICE)
    with torch.no_grad():
        for _ in range(steps):
            total += model(batch).float().sum()
            clock.tick()
    report(total.item(), clock, graphs=graphs())


def graphs() -> int:
    """Return the number of graphs that torch.compile has made."""
    if "torch._dynamo.utils" not in sys.modules:
        return 0
    return int(sys.modules["torch._dynamo.utils"].counters["stats"]["unique_graphs"])


def compiled(mode: str) -> tuple[Callable[[], None], Callable[[], None]]:
    def of(model: nn.Module) -> Any:
        return torch.compile(model, mode=mode)

    def training() -> None:
        train(of(encoder(2)), torch.randn(16, 128, 256))

    def inference() -> None:
        infer(of(encoder(2)), torch.randn(16, 128, 256))

    return training, inference


for _mode in ("default", "reduce-overhead", "max-autotune-no-cudagraphs"):
    _name = _mode.replace("-", "_")
    PROGRAMS[f"compile_{_name}_train"], PROGRAMS[f"compile_{_name}_infer"] = compiled(_mode)


@program
def vision_train() -> None:
    train(vision(), torch.randn(32, 3, 96, 96))


@program
def vision_infer() -> None:
    infer(vision(), torch.randn(32, 3, 96, 96))


@program
def cuda_graph() -> None:
    """Capture a step as a CUDA graph and replay it, as in PyTorch's notes on CUDA graphs."""
    model, batch, clock = encoder(2).to(DEVICE).eval(), torch.randn(16, 128, 256, device=DEVICE), Clock()
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(batch)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(batch)
        for _ in range(STEPS):
            graph.replay()
            clock.tick()
    report(out.float().sum().item(), clock)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Context that hides the progress bars and notices of a library.

    They show times that differ from run to run.
    """
    with open(os.devnull, "w") as sink, contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        yield


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1024, n_positions=128)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return GPT2LMHeadModel(config)


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self._ids = torch.randint(1024, (STEPS * 8, 128), generator=generator)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._ids[index], "labels": self._ids[index]}


@program
def transformers_trainer() -> None:
    import transformers  # Many programs import transformers before torch. Here torch is already imported.
    from transformers import Trainer, TrainerCallback, TrainingArguments

    clock = Clock()

    class Ticks(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            clock.tick()

    transformers.set_seed(1)
    arguments = TrainingArguments(
        output_dir=os.environ.get("OUT_DIR", "trainer"),
        per_device_train_batch_size=8,
        max_steps=STEPS,
        report_to=[],
        save_strategy="no",
        logging_steps=10,
        disable_tqdm=True,
        use_cpu=not GPU,
        dataloader_num_workers=2,
    )
    with quiet():
        trainer = Trainer(gpt2(), arguments, train_dataset=Tokens(), callbacks=[Ticks()])
        trainer.train()
    report([x["loss"] for x in trainer.state.log_history if "loss" in x], clock)


@program
def lightning_trainer() -> None:
    import lightning

    clock, losses = Clock(), []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = vision()

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            loss = self.model(batch).square().mean()
            losses.append(loss.detach())
            return loss

        def validation_step(self, batch: torch.Tensor, index: int) -> None:
            self.model(batch)

        def on_train_batch_end(self, *args: Any) -> None:
            clock.tick()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    data = torch.randn(STEPS * 8, 3, 96, 96)
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
    with quiet():
        lightning.Trainer(
            max_epochs=1,
            accelerator="gpu" if GPU else "cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(Module(), loader, torch.utils.data.DataLoader(data[:16], batch_size=8))
    report([x.item() for x in losses], clock)


@program
def accelerate_accumulating() -> None:
    from accelerate import Accelerator

    accelerator, clock = Accelerator(cpu=not GPU, gradient_accumulation_steps=4, mixed_precision="bf16"), Clock()
    model = encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(torch.randn(STEPS * 16, 64, 256), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(batch).float().square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
        if accelerator.sync_gradients:
            clock.tick()
    report([x.item() for x in losses], clock)


@program
def peft_checkpointing() -> None:
    from peft import LoraConfig, get_peft_model

    clock, model = Clock(), gpt2()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["c_attn"], lora_dropout=0.0)).to(DEVICE)
    optimizer = torch.optim.AdamW((x for x in model.parameters() if x.requires_grad), lr=1e-4)
    ids, losses = torch.randint(1024, (8, 128), device=DEVICE), []
    model.train()
    for _ in range(STEPS):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        clock.tick()
    report([x.item() for x in losses], clock)


@program
def generate() -> None:
    model, clock = gpt2().to(DEVICE).eval(), Clock()
    out = None
    for _ in range(20):
        ids = torch.ones(4, 16, dtype=torch.long, device=DEVICE)
        out = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)
        clock.tick()
    assert out is not None
    report(out.tolist(), clock)


if __name__ == "__main__":
    torch.manual_seed(0)
    PROGRAMS[sys.argv[1]]()
