"""Training and inference jobs of well-known libraries on one device: ``python clients.py NAME``, a name of ``JOBS``.

Weights and data are random, and nothing is downloaded.
"""

# Each library runs its own training loop. The program calls next(run.paced()) at the end of each step, which waits or
# ends the loop as the benchmark demands.

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from run import DEVICE, SMOKE, applied, paced, sized
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu
from torch.utils.data import DataLoader, IterableDataset


class Forever(IterableDataset[Any]):
    """A data set that yields the same item without end."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._item


def _gpt2(words: int = 50257) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    width, depth, heads, words = sized((768, 6, 12, words), (64, 1, 2, 1001))
    config = GPT2Config(n_layer=depth, n_embd=width, n_head=heads, vocab_size=words, n_positions=512)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return GPT2LMHeadModel(config)


def _text(words: int, length: int) -> torch.Tensor:
    return torch.randint(min(words, 1000), (length,))


def trainer() -> None:
    """Train GPT-2 in bfloat16 with the ``Trainer`` of transformers."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    units = paced()

    class Ends(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == 0:
                next(units)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_training_stop = next(units, None) is None

    batch, length = sized((8, 512), (2, 16))
    text = _text(50257, length)
    arguments = TrainingArguments(
        output_dir=os.path.join(os.environ.get("TMPDIR", "/tmp"), "trainer"),
        per_device_train_batch_size=batch,
        max_steps=1_000_000,
        report_to=[],
        save_strategy="no",
        logging_steps=1_000_000,
        disable_tqdm=True,
        bf16=not SMOKE,
        use_cpu=SMOKE,
    )
    data = Forever({"input_ids": text, "labels": text})
    Trainer(applied(_gpt2()), arguments, train_dataset=data, callbacks=[Ends()]).train()


def lightning() -> None:
    """Train torchvision's ResNet-50 in bfloat16 with Lightning."""
    import lightning as client
    from torchvision.models import resnet18, resnet50

    units, batch, size = paced(), *sized((64, 224), (2, 64))

    class Module(client.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = applied((resnet18 if SMOKE else resnet50)())

        def on_train_start(self) -> None:
            next(units)

        def training_step(self, images: torch.Tensor, index: int) -> torch.Tensor:
            return self.model(images).float().square().mean()

        def on_train_batch_end(self, *args: Any) -> None:
            if next(units, None) is None:
                self.trainer.should_stop = True

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3, momentum=0.9)

    # The images stay on the device, so that loading data is no part of a step.
    loader: Any = DataLoader(Forever(torch.randn(batch, 3, size, size, device=DEVICE)), batch_size=None)
    client.Trainer(
        max_epochs=1,
        accelerator="cpu" if SMOKE else "gpu",
        devices=1,
        precision="32-true" if SMOKE else "bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        min_epochs=0,
    ).fit(Module(), loader)


def accelerate() -> None:
    """Train torchvision's ConvNeXt in bfloat16 with accelerate. The optimizer steps after every two batches."""
    from accelerate import Accelerator
    from torchvision.models import convnext_tiny

    batch, size = sized((32, 224), (2, 32))
    accelerator = Accelerator(cpu=SMOKE, gradient_accumulation_steps=2, mixed_precision="no" if SMOKE else "bf16")
    made = applied(convnext_tiny())
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-4)
    model, optimizer = accelerator.prepare(made, optimizer)
    images = torch.randn(batch, 3, size, size, device=accelerator.device)
    for _ in paced():
        for _ in range(2):
            with accelerator.accumulate(model):
                accelerator.backward(model(images).float().square().mean())
                optimizer.step()
                optimizer.zero_grad()


def peft() -> None:
    """Train LoRA adapters on GPT-2 with the library peft. Activations are recomputed in the backward pass."""
    from peft import LoraConfig, get_peft_model

    model = applied(_gpt2())
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["c_attn"], lora_dropout=0.0)).to(DEVICE)
    optimizer = torch.optim.AdamW((x for x in model.parameters() if x.requires_grad), lr=1e-4)
    batch, length = sized((8, 512), (2, 16))
    ids = _text(50257, length).repeat(batch, 1).to(DEVICE)
    model.train()
    for _ in paced():
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def detection() -> None:
    """Train torchvision's Faster R-CNN in float32, with four images of one size."""
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn, fasterrcnn_resnet50_fpn

    size = sized(512, 96)
    build = fasterrcnn_mobilenet_v3_large_320_fpn if SMOKE else fasterrcnn_resnet50_fpn
    made = build(weights=None, weights_backbone=None, num_classes=21, min_size=size, max_size=size)
    model = applied(made.to(DEVICE))
    optimizer = torch.optim.SGD((x for x in model.parameters() if x.requires_grad), lr=1e-4, momentum=0.9)
    images = [torch.rand(3, size, size, device=DEVICE) for _ in range(sized(4, 1))]
    box = torch.tensor([[8.0, 8.0, size / 2, size / 2], [size / 3, size / 4, size - 8.0, size - 8.0]], device=DEVICE)
    targets = [{"boxes": box, "labels": torch.tensor([1, 2], device=DEVICE)} for _ in images]
    for _ in paced():
        loss = torch.stack(list(model(images, targets).values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Residual(nn.Module):
    """A block of a diffusion network: two convolutions behind group norms, with the time step added between them."""

    def __init__(self, ins: int, outs: int, steps: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(16, ins), nn.GroupNorm(16, outs)
        self.one, self.two = nn.Conv2d(ins, outs, 3, padding=1), nn.Conv2d(outs, outs, 3, padding=1)
        self.step = nn.Linear(steps, outs)
        self.skip = nn.Conv2d(ins, outs, 1) if ins != outs else nn.Identity()

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        y = self.one(silu(self.first(x))) + self.step(step)[:, :, None, None]
        found: torch.Tensor = self.skip(x) + self.two(silu(self.second(y)))
        return found


class Pixels(nn.Module):
    """Attention among all pixels of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(16, width), nn.Conv2d(width, 3 * width, 1), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, width, height, _ = x.shape
        q, k, v = (
            self.qkv(self.norm(x)).flatten(2).transpose(1, 2).view(batch, -1, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
        )
        y = self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width))
        return x + y.transpose(1, 2).reshape(batch, width, height, -1)


class Unet(nn.Module):
    """The network of a diffusion model. Its downward half is connected with its upward half by skip connections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.steps = nn.Conv2d(4, width, 3, padding=1), 4 * width
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(Residual(a, b, self.steps) for a, b in zip([width, *sizes], sizes, strict=False))
        self.attend, self.middle = Pixels(sizes[-1]), Residual(sizes[-1], sizes[-1], self.steps)
        ups = zip(sizes[::-1], [*sizes[-2::-1], width], strict=True)
        self.up = nn.ModuleList(Residual(2 * a, b, self.steps) for a, b in ups)
        self.out = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        x, kept = self.into(x), []
        for block in self.down:
            x = block(x, step)
            kept.append(x)
            x = nn.functional.avg_pool2d(x, 2)
        x = self.middle(self.attend(x), step)
        for block in self.up:
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), kept.pop()], dim=1), step)
        return self.out(x)


def unet() -> None:
    """Denoise latent images with a UNet in float16. Each step is one call of the network."""
    width, batch, size = sized((192, 8, 64), (16, 1, 16))
    kind = torch.bfloat16 if SMOKE else torch.float16
    model = applied(Unet(width).to(DEVICE, kind).eval())
    x = torch.randn(batch, 4, size, size, device=DEVICE, dtype=kind)
    step = torch.randn(batch, 4 * width, device=DEVICE, dtype=kind)
    with torch.inference_mode():
        for _ in paced():
            x = 0.9 * x + 0.1 * model(x, step)


class Listener(nn.Module):
    """A small DeepSpeech 2: convolutions of the spectrogram, then gated recurrent units."""

    def __init__(self, width: int, depth: int, letters: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.hear = nn.GRU(32 * 40, width, depth, bidirectional=True)
        self.say = nn.Linear(2 * width, letters)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        """Map spectrograms (batch, 1, 160, frames) to log probabilities (frames / 2, batch, letters)."""
        y = self.convs(sound).flatten(1, 2).permute(2, 0, 1)
        return self.say(self.hear(y)[0]).log_softmax(-1)


def speech() -> None:
    """Train speech recognition with gated recurrent units and CTC in float32."""
    width, depth, batch, frames = sized((800, 3, 16, 400), (16, 1, 2, 40))
    model = applied(Listener(width, depth, 29).to(DEVICE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sound = torch.randn(batch, 1, 160, frames, device=DEVICE)
    text = torch.randint(1, 29, (batch, frames // 8), device=DEVICE)
    sizes = torch.full((batch,), frames // 2), torch.full((batch,), frames // 8)
    for _ in paced():
        loss = nn.functional.ctc_loss(model(sound), text, *sizes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


JOBS: dict[str, Callable[[], None]] = {
    x.__name__: x for x in (trainer, lightning, accelerate, peft, detection, unet, speech)
}

if __name__ == "__main__":
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        JOBS[sys.argv[1]]()
