"""Test whether calls of a job gain what a replay predicts. Needs a GPU; runs the calls of six models.

    python benchmarks/in_job.py                                      # one H200, below 8 minutes
    python benchmarks/in_job.py --device cpu --smoke --models gpt2   # tests only that it runs: tiny sizes, no target

Each model (``job_models.py``: ResNet-50, ResNeXt-50, RegNetY, GPT-2, Llama, ViT; random weights) is trained for a few
steps under ``torch.profiler``.  It runs unchanged, and with settings that give its calls other solutions: another
preferred BLAS library, channels_last.  The default and the settings run in turns, so each call has several times in the
job with each of its two solutions.  Their ratio is the call's gain *in the job*. The same pairs (``Default`` and
``torch:blas=…`` or ``torch:layout=NHWC,stored``) are also confirmed as ``logparse replay`` confirms them, in fresh
processes, with cold operands (the default) and with hot operands.

Required: in at least 85 % of the pairs, the ratio in the job lies inside the interval that ``in_job`` (below) predicts
from the replay with cold operands.  This must hold for the pairs whose kernels the setting changed, and again for the
pairs among them that gain or lose at least 3 %.  Each of the two sets needs at least 50 pairs of at least 4 models.
The raw record has all times and log ratios, so that other predictions can be tried on it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from gpu_driver import driver
from gpu_replay import unpack_wheels
from intervals import prediction
from job_models import JOBS, Job

from analyzers.compare.timings import kernels_of, timings
from analyzers.evidence.confirmations import Confirmation, Pairs, judge_all
from analyzers.evidence.origins import TRACE
from analyzers.evidence.runs import tables_of
from analyzers.evidence.statistics.intervals import Interval
from analyzers.replay.results import Method
from analyzers.replay.trial import ConfirmTask, WorkerContext
from logparse.ingest import ingest
from logparse.libraries.kinds.backend import Place
from logparse.libraries.kinds.device.torch_device import torch_device
from logparse.libraries.pytorch.replay import Torch
from logparse.libraries.pytorch.replay_ways import without_mkldnn
from logparse.model import ConvProblem, Problem, Solution, problem_from_text
from logparse.store import Store, open_store

IN_JOB = 0.056
"""How much a call's gain in a job differs from its gain in a replay: standard deviation of log(ratio).

In a job, other kernels have used the caches, the clock and the instruction cache before the call, and other kernels run
at the same time. The value is the root mean square over 129 calls of five models on an H200, of any length
(``benchmarks/results/in-job-NVIDIA-H200-2026-11-22.json.gz``). Fitted without one of the models, it covers 95 % of that
model's calls.
"""
_NORMAL_975 = 1.959963984540054

LEAST_PAIRS, LEAST_MODELS, LEAST_INSIDE, FLOOR = 50, 4, 0.85, 0.03
WARM_UP, STEPS = 3, 4
_START_S = 15.0  # A process needs this time to start: it imports torch and opens the device.

Key: TypeAlias = tuple[str, str]
"""The text of an operator (with sizes), and the kernel that is compared with ``Default``."""


@dataclass(frozen=True)
class Setting:
    """A change of a model's settings that gives some of its calls another kernel, for example another BLAS library.

    * ``kind`` is the kind of the changed calls, for example convolutions.
    * ``solution`` is the name of the other kernel in ``logparse replay``.
    """

    # logparse replay times the same call with the other kernel alone.

    name: str
    kind: str = ""
    solution: str = "Default"
    channels_last: bool = False
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


@contextlib.contextmanager
def _blas(word: str) -> Iterator[None]:
    library = torch.backends.cuda.preferred_blas_library
    before = library()
    library(word)
    try:
        yield
    finally:
        library(before)


def settings_of(gpu: bool) -> list[Setting]:
    """Return the settings to try. The first is the default setting, with which the others are compared."""
    layout = Setting("channels_last", "conv", "torch:layout=NHWC,stored", channels_last=True)
    if not gpu:
        off = Setting("mkldnn=off", "gemm", "torch:mkldnn=off", around=partial(without_mkldnn, torch_device("cpu")))
        return [Setting("default"), off, layout]
    words = ("cublas", "cublaslt")
    blas = [Setting(f"blas={x}", "gemm", f"torch:blas={x}", around=lambda x=x: _blas(x)) for x in words]  # type: ignore[misc]
    return [Setting("default"), *blas, layout]


class Running:
    """A model that is being trained, with its inputs."""

    def __init__(self, job: Job, device: torch.device, small: bool) -> None:
        torch.manual_seed(0)
        self._device = device
        self._model = job.build(small).to(device).train()
        self._inputs = (job.small_inputs(2) if small else job.inputs(job.batch)).to(device)

    def step(self) -> None:
        """Do a forward and a backward pass in bfloat16. The weights do not change, so all steps are alike."""
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            loss = self._model(self._inputs).float().square().mean()
        self._model.zero_grad(set_to_none=True)
        loss.backward()

    def trace(self, setting: Setting, path: Path, steps: int) -> None:
        """Run the model with the given setting of the job, profile ``steps`` steps, and write the trace to ``path``.

        Some steps before them are a warm-up.
        """
        if self._inputs.dim() == 4:
            layout = torch.channels_last if setting.channels_last else torch.contiguous_format
            self._model = self._model.to(memory_format=layout)
            self._inputs = self._inputs.contiguous(memory_format=layout)
        activities = [torch.profiler.ProfilerActivity.CPU]
        activities += [torch.profiler.ProfilerActivity.CUDA] * (self._device.type == "cuda")
        with setting.around():
            for _ in range(WARM_UP if self._device.type == "cuda" else 1):
                self.step()
            self._drain()
            with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
                for _ in range(steps):
                    self.step()
                self._drain()
        profiler.export_chrome_trace(str(path))
        if self._device.type == "cpu":
            as_if_on_a_gpu(path)

    def _drain(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def in_any_layout(text: str) -> str:
    """Return the text of a call without its memory layouts.

    The setting ``channels_last`` changes the layouts. Without them, a call has the same text with and without the
    setting.
    """
    problem = problem_from_text(text)
    if not isinstance(problem, ConvProblem):
        return text
    return replace(problem, in_layout=None, weights_layout=None, out_layout=None).text


@dataclass
class Calls:
    """The times of a model's matrix products and convolutions in a running job, and the kernels that they used.

    Both are stored for each setting of the job. Times are in µs per call, one for each trace.
    """

    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    kernels: dict[str, dict[str, str]] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)  # a problem's text without layouts → its text by default

    def add(self, setting: str, store: Store, run: str) -> None:
        """Read how long each matrix product and convolution took in a profile of the model, and remember the times.

        ``setting`` is the setting under which the model was profiled.
        """
        # The setting channels_last changes the memory layouts of the operands. So calls are compared by their names
        # without layouts.
        tables = tables_of(store, run)
        rows = timings(tables)
        rows = rows[rows["basis"] == TRACE]
        kernels = kernels_of(tables)
        for text, us in zip(rows["problem"], rows["time_us"], strict=True):
            name = in_any_layout(str(text))
            if setting == "default":
                self.layouts.setdefault(name, str(text))
            self.times.setdefault(setting, {}).setdefault(name, []).append(float(us))
            self.kernels.setdefault(setting, {})[name] = kernels.get(str(text), "")


@dataclass(frozen=True)
class Pair:
    """The times of one matrix product or convolution in a model, with the default kernel and with another kernel.

    ``before_us`` and ``after_us`` have one time per profile, in µs per call.
    """

    # The model was profiled several times with each of the two kernels.

    model: str
    problem: str
    solution: str
    before_us: tuple[float, ...]
    after_us: tuple[float, ...]
    kernels: tuple[str, str]

    @property
    def key(self) -> Key:
        return self.problem, self.solution

    @property
    def ratio(self) -> float:
        """The gain of the call in the job, as a ratio of two median times.

        It is (time with the default kernel) / (time with the other kernel).
        """
        return statistics.median(self.before_us) / statistics.median(self.after_us)

    @property
    def changed(self) -> bool:
        return self.kernels[0] != self.kernels[1]


def run_jobs(options: argparse.Namespace, folder: Path) -> list[Pair]:
    """Train each model with its default settings and with changed settings, and profile it each time.

    Returns each model's longest calls, with their times with the default kernel and with another one.
    """
    # The settings are used in order and then in reverse order, so that slow drifts of the GPU cancel out.
    device, store = torch.device(options.device), open_store(str(folder / "store"), create=True)
    settings = settings_of(device.type == "cuda")
    out: list[Pair] = []
    for model in options.models:
        begun = time.monotonic()
        running, calls = Running(JOBS[model], device, options.smoke), Calls()
        used = [x for x in settings if x.kind in ("", JOBS[model].kind)]
        turns = used if options.smoke else [*used, *used[::-1]] * options.turns
        for number, setting in enumerate(turns):
            path = folder / f"{model}-{number}.trace.json"
            running.trace(setting, path, 1 if options.smoke else STEPS)
            ingest([str(path)], store, run=path.name)
            path.unlink()
            calls.add(setting.name, store, path.name)
        found = pairs_of(model, used[1:], calls)
        out += found[: options.pairs]
        print(f"{model}: {len(found)} pairs, {time.monotonic() - begun:.0f} s", flush=True)
        del running
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return out


def in_turns(pairs: Sequence[Pair]) -> list[Key]:
    """Return the calls to replay, each with a kernel. Calls of different models alternate.

    So if the time is over too early, some calls of every model have been measured.
    """
    seen: dict[str, int] = {}
    places = [(seen.setdefault(pair.model, 0), seen.update({pair.model: seen[pair.model] + 1}))[0] for pair in pairs]
    return list(dict.fromkeys(pair.key for _, pair in sorted(zip(places, pairs, strict=True), key=lambda x: x[0])))


def pairs_of(model: str, settings: Sequence[Setting], calls: Calls) -> list[Pair]:
    """Return the calls of a model whose times are known with the default setting and with another setting.

    The longest call comes first.
    """
    before, texts = calls.times["default"], calls.layouts
    out = [
        Pair(
            model,
            texts[name],
            setting.solution,
            tuple(before[name]),
            tuple(after),
            (calls.kernels["default"][name], calls.kernels[setting.name][name]),
        )
        for setting in settings
        for name, after in calls.times.get(setting.name, {}).items()
        if name in before and problem_from_text(texts[name]).kind == setting.kind
    ]
    return sorted(out, key=lambda pair: (-statistics.median(pair.before_us), pair.key))


# ------------------------------------------------------------------------------------------------------------ replay


@dataclass(frozen=True)
class Replay:
    """How a process times kernels: with operands that are in the GPU's caches (``hot`` is True), or that are not."""

    name: str
    hot: bool = False


COLD, HOT = Replay("cold"), Replay("hot", hot=True)


@dataclass(frozen=True)
class Measured:
    """The times that one process measured."""

    pairs: dict[Key, Pairs]
    failed: dict[str, str]
    facts: dict[str, str]
    seconds: float


def one_process(
    device: str, keys: Sequence[Key], replay: Replay, turn: int, blocks: int, deadline_s: float
) -> Measured:
    """Time both kernels of each call in this process, one call after the other, until the time is over.

    ``deadline_s`` is the time in seconds. The result says which calls were measured, and which failed.
    """
    started = time.monotonic()
    place = Place(device=device)
    # The floor is chosen so that no pair is given up early.
    method = Method(blocks=blocks, floor=-1.0, cache="hot" if replay.hot else "cold")
    context = WorkerContext({"torch": Torch(place)}, place, method, lambda what: None)
    out: dict[Key, Pairs] = {}
    failed: dict[str, str] = {}
    for text, solution in keys:
        if time.monotonic() - started > deadline_s:
            break
        problem: Problem = problem_from_text(text)
        try:
            ways = {x.text: x for x in context.backends["torch"].solutions(problem, 100)}
            winner: Solution = ways[solution]
            task = ConfirmTask(problem=problem, pick=ways["Default"], winner=winner, turn=turn)
            out[text, solution] = context.run(task).pairs
        except Exception as error:  # The failure of one pair must not lose the record of the others.
            failed[f"{text} {solution}"] = f"{type(error).__name__}: {error}"
            context.release()
    return Measured(out, failed, dict(context.facts), time.monotonic() - started)


def replay_all(options: argparse.Namespace, keys: Sequence[Key], until: float) -> dict[str, list[Measured]]:
    """Time the default kernel and the other kernel of each call alone, outside the model.

    Several processes do this one after the other, because times differ from process to process.

    * The first process measures as many calls as its time allows. The others measure the same calls.
    * In most processes, the operands are not in the GPU's caches before a kernel runs ("cold").
    * On a GPU, one more process measures with operands in the caches ("hot").
    * All processes should end at the time ``until`` (monotonic clock, s).
    """
    replays = [COLD] * options.processes + ([] if options.device == "cpu" else [HOT])
    left, out = list(keys), dict[str, list[Measured]]()
    for turn, replay in enumerate(replays):
        rest = until - time.monotonic()
        share = rest / (len(replays) - turn) - _START_S if turn == 0 else rest
        words = (options.device, left, replay, turn, options.blocks, max(5.0, share))
        if options.smoke:
            one = one_process(*words)
        else:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                one = pool.submit(one_process, *words).result()
        out.setdefault(replay.name, []).append(one)
        if replay is COLD:
            left = [key for key in left if key in one.pairs]
        print(f"{replay.name}: {len(one.pairs)} pairs in {one.seconds:.0f} s, {len(one.failed)} failed", flush=True)
    return out


def join_processes(processes: Sequence[Measured]) -> dict[Key, Pairs]:
    """Join the measurements of several processes. Only calls that all processes measured are kept."""
    out = {}
    for key in processes[0].pairs:
        if all(key in process.pairs for process in processes):
            held = Pairs((), ())
            for process in processes:
                held = held.joined(process.pairs[key])
            out[key] = held
    return out


# ------------------------------------------------------------------------------------------------------------ answer


def in_job(confirmation: Confirmation) -> Interval:
    """Predict how much a call gains from another kernel in the running job, as a 95 % interval.

    A gain is the ratio of the call's times with the two kernels, here measured alone, outside the job.
    """
    # The interval of the measurement is widened by IN_JOB, the usual difference between times alone and times in a job.
    ahead = prediction(confirmation)
    half = math.hypot(math.log(ahead.high / ahead.value), _NORMAL_975 * IN_JOB)
    return Interval(ahead.value, ahead.value * math.exp(-half), ahead.value * math.exp(half))


def rows_of(pairs: Sequence[Pair], replays: Mapping[str, Sequence[Measured]]) -> list[dict[str, Any]]:
    """Compare how much faster each call became in the job with the prediction from timing the call alone.

    Returns one row for each call: the ratio of its two times in the job, and the predicted interval.
    """
    cold = join_processes(replays[COLD.name])
    judged = judge_all(cold)[0]
    others = {name: join_processes(held) for name, held in replays.items() if name != COLD.name}
    out = []
    for pair in pairs:
        if pair.key not in cold:
            continue
        confirmation, held = judged[pair.key], cold[pair.key]
        predicted = in_job(confirmation)
        out.append(
            {
                "model": pair.model,
                "problem": pair.problem,
                "solution": pair.solution,
                "changed": pair.changed,
                "kernels": pair.kernels,
                "job_before_us": [round(x, 3) for x in pair.before_us],
                "job_after_us": [round(x, 3) for x in pair.after_us],
                "job_ratio": pair.ratio,
                "replay_ratio": confirmation.speedup.value,
                "predicted": [predicted.low, predicted.high],
                "inside": predicted.low <= pair.ratio <= predicted.high,
                "replay_pick_us": round(statistics.median(held.pick_us), 3),
                "replay_winner_us": round(statistics.median(held.winner_us), 3),
                "log_ratios_ppm": {
                    name: [_blocks(x) for x in samples[pair.key].by_process]
                    for name, samples in {COLD.name: cold, **others}.items()
                    if pair.key in samples
                },
                "hot_us": _medians(others.get(HOT.name, {}).get(pair.key)),
            }
        )
    return out


def _blocks(pairs: Pairs) -> list[int]:
    """Return for each block of samples log(default time / other time) of the two kernels, in millionths."""
    return [round(1e6 * math.log(a / b)) for a, b in zip(pairs.pick_us, pairs.winner_us, strict=True)]


def _medians(pairs: Pairs | None) -> list[float] | None:
    return None if pairs is None else [round(statistics.median(x), 3) for x in (pairs.pick_us, pairs.winner_us)]


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return in how many cases the gain in the job was inside the interval that had been predicted for it.

    The cases are all calls, calls that used another kernel, and calls that gain or lose at least 3 %.
    """
    # "changed" are only calls that used another kernel after a setting of the job was changed. "findings" are only
    # changed calls that gain or lose at least 3 %.
    changed = [row for row in rows if row["changed"]]
    found = [row for row in changed if abs(math.log(row["replay_ratio"])) >= math.log1p(FLOOR)]
    out: dict[str, Any] = {}
    for name, held in (("pairs", rows), ("changed", changed), ("findings", found)):
        off = [math.log(row["job_ratio"] / row["replay_ratio"]) for row in held]
        out[name] = {
            "count": len(held),
            "models": len({row["model"] for row in held}),
            "inside": sum(row["inside"] for row in held) / len(held) if held else None,
            "median_deviation": statistics.median(off) if off else None,
            "rms_deviation": math.sqrt(statistics.fmean(x * x for x in off)) if off else None,
        }
    return out


def missed(made: Mapping[str, Any]) -> list[str]:
    """Return a line for each requirement of this benchmark that is not met."""
    out = []
    for name in ("changed", "findings"):
        held = made[name]
        inside = held["inside"] or 0.0
        fine = held["count"] >= LEAST_PAIRS and held["models"] >= LEAST_MODELS and inside >= LEAST_INSIDE
        what = f"{name}: {inside:.1%} of {held['count']} pairs of {held['models']} models are inside"
        out += [] if fine else [what]
    return out


def as_if_on_a_gpu(path: Path) -> None:
    """Add a kernel for each convolution and matrix product to the trace of a CPU.

    The kernel takes as long as the operator that launches it.
    """
    trace = json.loads(path.read_text())
    roles = {"aten::mkldnn_convolution": ("fprop",), "aten::convolution_backward": ("dgrad", "wgrad")}
    roles |= dict.fromkeys(("aten::mm", "aten::addmm", "aten::bmm"), ("gemm",))
    added: list[dict[str, Any]] = []
    for event in trace["traceEvents"]:
        names = roles.get(event["name"], ()) if event.get("cat") == "cpu_op" else ()
        # The name shows which kernel ran: oneDNN has another kernel for another layout.
        layout = "nhwc" if ", 1, " in str(event.get("args", {}).get("Input Strides")) else "nchw"
        for place, role in enumerate(names):
            number, share = len(added) + 1, event["dur"] / len(names)
            ids = {"correlation": number, "External id": event["args"].get("External id")}
            begin: dict[str, Any] = {"ph": "X", "ts": event["ts"] + place * share}
            launch = {"pid": event["pid"], "tid": event["tid"], "dur": share / 2, "args": ids}
            kernel = {"pid": 0, "tid": 7, "dur": share, "args": {**ids, "device": 0, "stream": 7}}
            added.append(begin | launch | {"cat": "cuda_runtime", "name": "cudaLaunchKernel"})
            added.append(begin | kernel | {"cat": "kernel", "name": f"{role}_{layout}"})
    trace["traceEvents"] += added
    trace["deviceProperties"] = [{"id": 0, "name": "CPU as if a GPU"}]
    path.write_text(json.dumps(trace))


def environment(device: str) -> dict[str, str]:
    """Return the name of the device, and the versions of its driver and of the libraries."""
    out = {"pytorch": torch.__version__, "cuda": str(torch.version.cuda), "hip": str(torch.version.hip)}
    if device == "cpu":
        return out | {"device": "CPU"}
    out |= {"device": torch.cuda.get_device_name(device), "cudnn": str(torch.backends.cudnn.version())}
    return out | {"driver": driver()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two speed-ups of each kernel: inside a model's training, and when the call is timed alone.

    Returns 1 if too few speed-ups in the training lie in the predicted interval.
    """
    # All times are written to a file, and a summary is printed. The times of the call alone predict the interval.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", choices=tuple(JOBS), default=list(JOBS))
    parser.add_argument("--pairs", type=int, default=40, help="pairs of one model at most, the costliest first")
    parser.add_argument("--turns", type=int, default=1, help="how often default and settings go there and back")
    parser.add_argument("--processes", type=int, default=3, help="processes with cold operands")
    parser.add_argument("--blocks", type=int, default=Method().blocks)
    parser.add_argument("--budget", type=float, default=430.0, help="seconds of all")
    parser.add_argument("--results", default=str(Path(__file__).parent / "results"))
    parser.add_argument("--wheels", help="folder of wheels to put on the path (duckdb, where it is missing)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, one process; no requirement is tested")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        unpack_wheels(options.wheels, folder)
        pairs = run_jobs(options, Path(folder))
        in_the_job_s = time.monotonic() - started
        replays = replay_all(options, in_turns(pairs), started + options.budget)
    rows = rows_of(pairs, replays)
    made = summary(rows)
    first = replays[COLD.name][0]
    record = {
        "record": "in-job",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "smoke": options.smoke,
        "command": f"benchmarks/in_job.py --models {' '.join(options.models)} --processes {options.processes}",
        "environment": environment(options.device) | first.facts,
        "steps": STEPS,
        "seconds": {"in the job": round(in_the_job_s, 1), "all": round(time.monotonic() - started, 1)},
        "summary": made,
        "missed": missed(made),
        "failed": {key: why for held in replays.values() for one in held for key, why in one.failed.items()},
        "pairs": rows,
    }
    path = written(record, Path(options.results))
    print(json.dumps(made, indent=1))
    for what in record["missed"]:
        print(f"missed: {what}")
    print(f"{time.monotonic() - started:.0f} s; {path}")
    return 1 if record["missed"] and not options.smoke else 0


def written(record: Mapping[str, Any], folder: Path) -> Path:
    """Write the record and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    device = str(record["environment"].get("device", "unknown")).replace(" ", "-")
    path = folder / f"in-job{'-smoke' if record['smoke'] else ''}-{device}-{record['date'][:10]}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(record, ensure_ascii=False).encode(), mtime=0))
    return path


if __name__ == "__main__":
    sys.exit(main())
