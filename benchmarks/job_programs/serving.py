"""Jobs that answer requests on one device. ``python serving.py NAME`` runs one of them; ``JOBS`` lists the names."""

from __future__ import annotations

import multiprocessing
import queue
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from job_models import vit
from models import regnet_y_3_2gf
from run import DEVICE, SMOKE, applied, finish, run, serve, sized
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu


def generate() -> None:
    """Generate text with the library transformers.

    The prompts have 128 and 512 tokens in turns, and 32 new tokens are generated for each.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    width, inner, depth, heads, words, batch, new = sized((1024, 2816, 6, 16, 32001, 8, 32), (32, 64, 1, 2, 101, 2, 4))
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    made = LlamaForCausalLM(config)
    model: Any = applied(made.to(DEVICE, torch.bfloat16).eval())
    prompts = [torch.randint(2, words, (batch, size), device=DEVICE) for size in sized((128, 512), (8, 16))]

    def request(index: int) -> None:
        prompt = prompts[index % 2]
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, do_sample=False).cpu()

    run(request, kinds=2, settle=1)


def vision_server() -> None:
    """Answer requests with RegNetY in float16.

    Batches of 1, 4 and 16 images come in an order that differs in every process.
    """
    size = sized(224, 32)
    kind = torch.bfloat16 if SMOKE else torch.float16
    model = applied(regnet_y_3_2gf().to(DEVICE, kind).eval())
    chance = random.Random()
    images = {batch: torch.randn(batch, 3, size, size, dtype=kind) for batch in sized((1, 4, 16), (1, 2, 4))}

    @torch.no_grad()
    def answer(batch: int) -> None:
        model(images[batch].to(DEVICE)).float().cpu()

    serve(answer, lambda: chance.choice(list(images)), {batch: 1 / len(images) for batch in images})


class Decoder(nn.Module):
    """A decoder block that processes one new token per sequence.

    A cache of fixed size contains the keys and values of the earlier tokens.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, inner: int, batch: int, cached: int) -> None:
        super().__init__()
        self._size, self._heads = width // heads, (heads, kv_heads, kv_heads)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, sum(self._heads) * self._size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, kv_heads, cached, self._size))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Return the block's output for the token at position ``at``."""
        parts = self.qkv(self.first(x)).split([n * self._size for n in self._heads], dim=-1)
        q, k, v = (y.view(len(x), 1, n, -1).transpose(1, 2) for y, n in zip(parts, self._heads, strict=True))
        keys, values = self.keys.index_copy_(2, at, k), self.values.index_copy_(2, at, v)
        y = scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        h = self.second(x)
        found: torch.Tensor = x + self.down(silu(self.gate(h)) * self.up(h))
        return found


class Decoders(nn.Module):
    """A language model of an embedding and decoder blocks. It returns the next token of every sequence."""

    def __init__(self, words: int, width: int, depth: int, *block: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList(Decoder(width, *block) for _ in range(depth))

    def forward(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Map tokens (batch, 1) to the next tokens (batch, 1)."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, at)
        return self.head(x).argmax(dim=-1)


def graph_decode() -> None:
    """Decode 64 sequences with a Llama of 4,096 channels. Each step replays the same captured CUDA graph."""
    with torch.device(DEVICE):
        made = Decoders(32001, 4096, 12, 32, 8, 14336, 64, 512)
    model = applied(made.to(torch.bfloat16).eval())
    tokens = torch.randint(32000, (64, 1), device=DEVICE)
    at = torch.zeros(1, dtype=torch.long, device=DEVICE)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def once() -> None:
        tokens.copy_(model(tokens, at))
        at.add_(1).remainder_(512)

    finish()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                once()
        finish()
        with torch.cuda.graph(graph):
            once()
    run(lambda _: graph.replay())


def fp8() -> None:
    """Compute feed-forward layers in FP8 with plain functions. The job has neither a module nor an optimizer."""
    applied(nn.Identity())  # This applies settings only, because there is no module to change.
    rows, width, inner, depth = 4096, 4096, 14336, 8
    kind, most = torch.float8_e4m3fn, torch.finfo(torch.float8_e4m3fn).max

    def scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = (x.abs().amax().float() / most).clamp(min=1e-12)
        return (x.float() / scale).clamp(-most, most).to(kind), scale

    def weights(outputs: int, inputs: int) -> tuple[torch.Tensor, torch.Tensor]:
        made, scale = scaled(torch.randn(outputs, inputs, device=DEVICE, dtype=torch.bfloat16) / inputs**0.5)
        return made.t(), scale

    layers = [(weights(inner, width), weights(width, inner)) for _ in range(depth)]
    x = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)

    def product(y: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        held, scale = scaled(y)
        found: torch.Tensor = torch._scaled_mm(held, by[0], scale_a=scale, scale_b=by[1], out_dtype=torch.bfloat16)
        return found

    @torch.no_grad()
    def forward(_: int) -> None:
        y = x
        for up, down in layers:
            y = y + product(gelu(product(y, up)), down)

    run(forward)


def _worker(requests: Any, answers: Any) -> None:
    """Answer the server's requests with the model. Of the server's processes, only this one launches kernels."""
    torch.manual_seed(0)
    batch, size = sized((48, 224), (2, 224))
    model = applied(vit(SMOKE).to(DEVICE).eval())
    images = torch.randn(batch, 3, size, size, device=DEVICE)

    @torch.inference_mode()
    def answer(_: int) -> None:
        requests.get()
        answers.put(float(model(images)[0, 0, 0]))

    run(answer)
    answers.put(None)


def _next(answers: Any, worker: Any) -> float | None:
    """Return the next answer of the worker, or None if it is done or has died."""
    while True:
        try:
            found: float | None = answers.get(timeout=2.0)
            return found
        except queue.Empty:
            if not worker.is_alive():
                return None


def forking_server() -> None:
    """Start a worker process that runs the model, and send requests to it."""
    context = multiprocessing.get_context("spawn")
    requests, answers = context.Queue(), context.Queue()
    worker = context.Process(target=_worker, args=(requests, answers))
    worker.start()
    for _ in range(4):
        requests.put("image")
    while _next(answers, worker) is not None:
        requests.put("image")
    worker.join()
    if worker.exitcode:
        raise SystemExit(worker.exitcode)


JOBS: dict[str, Callable[[], None]] = {
    "generate": generate,
    "vision_server": vision_server,
    "graph_decode": graph_decode,
    "fp8": fp8,
    "forking_server": forking_server,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    JOBS[sys.argv[1]]()
