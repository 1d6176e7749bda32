"""Test whether ``tune``'s verdicts on jobs are right. The jobs run as users run them, on two GPUs.

    python -m pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \\
        --dest wheels duckdb msgspec xxhash                               # where the machine with the GPUs has none
    python benchmarks/jobs.py --smoke                      # without a GPU: tiny sizes, tests only that all runs
    python benchmarks/jobs.py --wheels wheels --budget 570 --results OUT
    python benchmarks/jobs.py --wheels wheels --budget 570 --results OUT2 --rest OUT/jobs-….json    # what is left
    python benchmarks/jobs.py --merge OUT/jobs-….json OUT2/jobs-….json --results benchmarks/results

``--only ddp,fsdp`` names the jobs to run, in this order.  ``generate`` needs transformers.  Each job
(``job_programs/``) has a process of its own.  Jobs that need one GPU run side by side, each on its own GPU.  A job
takes four to nine minutes.  Three calls that should fill four GPUs for nine minutes each are

    --only ddp,generate,data_loader
    --only fsdp,moe,vision_server,graph_decode
    --only tensor_parallel,small_kernels,wav2vec2,forking_server,fp8

The stages of a job:

1. Tune.  ``tune`` runs the job with a profiler, replays, recommends, runs it with the settings that pay, and compares.
2. If ``tune`` applied nothing, run the job with its best action, which the program applies by name (``apply.model``
   too), and let ``verify`` compare.  The action is tried even if it is predicted to cost time, because that prediction
   can be wrong, too.
3. Judge by a *truth*, a measured change that does not depend on our profiler.  The program itself times its units,
   without and with the action.  None of our code runs in the program, except at the start of a turn.  All these
   processes, up to five of each side, run at the same time.  They take turns, and each has the device alone for a
   fraction of a second, because other work on the host varies.

In addition to the truth, the record has the time of a step under each action, as ``recommend`` simulates it.  Two other
actions are timed as well: of all actions that lines of Python apply, those with the largest simulated change.  They are
chosen before anything is measured, and timed in the same turns (``steps.py --record``).  ``--steps`` does only that:
the job is traced, replayed and timed, and nothing is judged.  ``--again`` simulates and times jobs again whose folders
were kept (``--keep``), with the earlier verdicts. With ``--truth-s 0`` their truths are not measured again.

``--tried`` tests ``logparse try`` instead: it tries a job's actions in the running job, and each is compared with its
truth (``tried.py``).  Nothing is traced or replayed.  A job then takes two to three minutes:

    python benchmarks/jobs.py --tried --wheels wheels --budget 570 --truth-s 30 --results OUT

``--observed`` tests what the observer of ``capture --trace`` costs: the unchanged program takes turns with the observed
one.  The first half of the turns, in which the observer records its windows, does not count.

The truth is *faster* if the 95 % interval of the change says so and reaches beyond 1 %, and *slower* likewise.
"verified" and "faster, not as promised" are right if the truth is faster. "took effect, not faster" and "had no effect"
are right if it is the same or slower.  If the interval holds both 0 and changes beyond 4 %, the measured change
decides.  If it is faster by more than 1 %, every such verdict is undecided.  Otherwise the first two verdicts are wrong
and the last two are right.  Other verdicts claim nothing.  Required: nine of ten verdicts are right, and none is
"verified" wrongly.

The record is written again after each stage of a job, so that a benchmark that is cut off keeps its results.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tried
from gpu_replay import unpack_wheels
from steps import compare_step_times, unit_us

from analyzers.compare.unit_time import LEAST_TURNS
from logparse.capture.in_job.logparse_in_job.switches import parts_of

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "benchmarks" / "job_programs"
FLOOR, MOST_SAME = 0.01, 0.04
"""Limits for saying that a job's step time did not change, as fractions of the time.

* ``FLOOR``: a smaller change is no change, because two machines of one kind differ by as much.
* ``MOST_SAME``: if the interval of the change contains 0, and no end is beyond this, the time is called the same.
"""
_RUN_S, _JOB_S, _LEAST_S = 90.0, 540.0, 120.0
"""Limits in seconds.

* ``_RUN_S``: for one run of a job without the profiler.
* ``_JOB_S``: for all that is done with one job.
* ``_LEAST_S``: the time that must be left before another job is begun.
"""
_TRIED_S = 400
"""Longest time in seconds for which a job runs while changes are tried in it.

It is ended earlier if the trial is over.
"""
_OTHERS = 2
"""How many other changes of a job are timed, in addition to the changes that were made."""
_SMOKE = {
    "JOB_SMOKE": "1",
    "JOB_SECONDS": "2",
    "JOB_UNITS": "64",
    "JOB_TURN_SECONDS": "0.1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
FASTER = frozenset({"verified", "faster, not as promised"})
NOT_FASTER = frozenset({"took effect, not faster", "had no effect"})
_WALL = re.compile(r"wall time of an? \w+: (.*)")
"""Pattern that finds the line in which ``verify`` prints the wall time of a step before and after."""
VERDICTS = (*FASTER, *NOT_FASTER, "another workload", "time unknown")


@dataclass(frozen=True)
class Job:
    """A program that this benchmark runs as if it were a user's job, and what it needs.

    * ``gpus``: the number of GPUs.
    * ``only_gpu``: the reason why it cannot run on a CPU.
    * ``seconds``: for how long it does steps or answers requests.
    * ``at_once``: how many of its processes fit into a GPU's memory.
    * ``tries``: the changes that ``--tried`` tries. Some of them should bring no gain.
    """

    program: str
    about: str
    gpus: int = 1
    only_gpu: str = ""
    seconds: str = "9"
    at_once: int = 12
    tries: tuple[str, ...] = ()

    def command(self, name: str) -> list[str]:
        """Return the command line of the job, as a user would type it."""
        ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.gpus)]
        return [sys.executable, *(ranks if self.gpus > 1 else []), str(PROGRAMS / self.program), name]


_EFFICIENT = "attention_efficient"
JOBS: Mapping[str, Job] = {
    "ddp": Job("distributed.py", "ResNeXt-50, DDP, two GPUs", 2, tries=("tf32",)),
    "ddp_one_core": Job("distributed.py", "the same, both ranks on one core of the host", 2),
    "fsdp": Job("distributed.py", "Llama-like, FSDP2, two GPUs", 2, at_once=6, tries=("attention_cudnn", _EFFICIENT)),
    "tensor_parallel": Job("distributed.py", "blocks split over two GPUs", 2, tries=("blas_cublaslt", _EFFICIENT)),
    "trainer": Job(
        "clients.py", "GPT-2, transformers `Trainer`", tries=("one_kernel_gelu", "padded_output", _EFFICIENT)
    ),
    "lightning": Job("clients.py", "ResNet-50, Lightning", tries=("channels_last_benchmark", "channels_last")),
    "accelerate": Job("clients.py", "ConvNeXt, accelerate, accumulated gradients", tries=("channels_last", "tf32")),
    "peft": Job("clients.py", "GPT-2, LoRA, checkpointing", tries=("one_kernel_gelu", "padded_output")),
    "detection": Job("clients.py", "Faster R-CNN, float32", tries=("channels_last", "tf32")),
    "unet": Job("clients.py", "diffusion UNet, inference", tries=("channels_last_benchmark", "channels_last")),
    "speech": Job("clients.py", "convolutions and GRUs, CTC, float32", tries=("tf32", "channels_last")),
    "generate": Job(
        "serving.py", "transformers `generate`, two lengths of prompt", tries=("attention_cudnn", "padded_output")
    ),
    "vision_server": Job("serving.py", "RegNetY, batches of 1, 4, 16 at random", tries=("channels_last",)),
    "graph_decode": Job("serving.py", "decode in a captured graph", only_gpu="a CPU captures no graphs", at_once=4),
    "fp8": Job("serving.py", "`torch._scaled_mm` in plain functions", only_gpu="a CPU's product has other layouts"),
    "moe": Job("training.py", "mixture of experts, training", tries=("blas_cublaslt", "tf32")),
    "data_loader": Job("training.py", "ResNet-50 behind a slow loader", tries=("channels_last",)),
    "small_kernels": Job("training.py", "host-bound training", tries=("tf32",)),
    "wav2vec2": Job("training.py", "1-D convolutions and a transformer", tries=("tf32", _EFFICIENT)),
    "forking_server": Job("serving.py", "ViT in a worker that the server starts", tries=("tf32", _EFFICIENT)),
}


# ------------------------------------------------------------------------------------- one job, in its own process


def one_job(name: str, options: argparse.Namespace, folder: Path) -> None:
    """Run all stages of a job in this process: tune the job, judge the result, and time it.

    The results are written to ``row.json`` after each stage.
    """
    row: dict[str, Any] = {"job": name, "about": JOBS[name].about, "seconds": {}}
    if options.again:
        row |= json.loads((folder / "row.json").read_text(encoding="utf-8")) | {"seconds": {}}
        row = {key: value for key, value in row.items() if key not in ("failed", "traceback")}
    begun = time.monotonic()
    try:
        os.chdir(folder)
        for stage in _Stages(options, folder, row).done():
            row["seconds"][stage] = round(time.monotonic() - begun, 1)
            _write_record(row, folder / "row.json")
    except BaseException as error:
        row["failed"] = f"{type(error).__name__}: {error}"
        row["traceback"] = traceback.format_exc()[-2000:]
    _write_record(row, folder / "row.json")


class _Stages:
    """Measures on one example job how good logparse's advice is.

    The stages profile the job, apply changes, and measure the result. Each stage writes its results into ``row``, a
    dictionary.
    """

    def __init__(self, options: argparse.Namespace, folder: Path, row: dict[str, Any]) -> None:
        from logparse.store import open_store

        job = JOBS[row["job"]]
        self._command, self._options, self._folder, self._row = job.command(row["job"]), options, folder, row
        self._at_once = 2 if options.smoke else job.at_once
        self._environ: dict[str, str] = {**os.environ, "JOB_SECONDS": job.seconds, **(_SMOKE if options.smoke else {})}
        self._store = open_store(str(folder / "store"), create=True)
        self._begun = time.monotonic()
        self._said: list[str] = []
        self._named: dict[str, str] = {}
        row.setdefault("said", self._said)

    def done(self) -> Iterator[str]:
        """Measure the job in several stages, and yield the name of each stage when it has ended.

        For example, one stage predicts the effects of changes, and another measures them. Raises RuntimeError if the
        job fails.
        """
        row = self._row
        if self._options.again:
            self._kept()
            yield "foretold"
            if self._options.truth_s:
                yield from self._truths()
            return
        if self._options.observed:
            yield from self._truths()
            row["traces"] = len(list(self._folder.glob("observed/trace_*.json.gz")))
            yield "observed"
            return
        if self._options.tried:
            self._tried()
            yield "tried"
            yield from self._truths()
            return
        if self._options.steps:
            self._foretold()
            yield "foretold"
            yield from self._truths()
            return
        if self._options.smoke:
            self._as_if_tuned()
        else:
            self._tuned()
        yield "tuned"
        before, after, names, files = self._applied()
        row["units"] = {"before": self._units(before)}
        yield "ran again"
        if names or files is not None:
            row |= self._judged(before, after, names, files)
            row["units"]["after"] = self._units(after)
        yield "judged"
        yield from self._truths()

    def _kept(self) -> None:
        """Repeat only the prediction of the step's time, from files that an earlier call of this benchmark left."""
        # In the earlier call, the unchanged and the changed job may also have taken turns on the GPU. If so, a second
        # prediction starts from the time of the unchanged job that was measured in these turns.
        from analyzers.evidence.tables import Settings
        from analyzers.recommend.verb import advise

        row, before = self._row, min(self._store.sources()["run"], key=len)
        row["step"] = self._simulated(advise(self._store, Settings(), before), before)
        if row.get("truth", {}).get("before") and isinstance(row["step"], dict):
            row["step"]["beside"] = self._beside()
        if row["applied_by"] == "name":
            self._named = self._applying(*row["actions"])

    def _applying(self, *names: str) -> dict[str, str]:
        """Return the environment variables with which the job applies the changes ``names`` to itself."""
        return {"JOB_APPLY": str(self._folder / "applied" / "apply.py"), "JOB_APPLY_NAMES": ",".join(names)}

    def _foretold(self) -> None:
        """Predict how long a step of the job takes with each change, from a trace and from kernels timed alone."""
        # logparse tune does the same: the job is traced, then run once more without the profiler, and its calls are
        # timed alone (replay).
        from analyzers.evidence.tables import Settings
        from analyzers.recommend.verb import advise, write
        from analyzers.replay.replay import Options, replay
        from analyzers.replay.scheduler import Limits
        from analyzers.tune.by_turns import run_alone
        from logparse.ingest import ingest

        row, folder = self._row, self._folder / "alone"
        self._captured("steps", self._environ)
        row["seconds"]["captured"] = time.monotonic() - self._begun
        if run_alone((self._command, self._environ), folder, "", print) is not None:
            ingest([str(folder)], self._store, run="steps")
        row["seconds"]["alone"] = time.monotonic() - self._begun
        limits = Limits(budget_s=self._options.replay)
        replay(self._store, Options(run="steps", limits=limits, only="actions"))
        row["seconds"]["replayed"] = time.monotonic() - self._begun
        found = advise(self._store, Settings(), "steps")
        write(found, Settings(), self._folder / "applied")
        row["offered"] = [_offer(x) for x in found.actions]
        row["step"], row["units"] = self._simulated(found, "steps"), {"before": self._units("steps")}
        row["applied_by"], row["actions"], row["others"] = "nothing", [], _others(found.step, found.actions, [])

    def _simulated(self, found: Any, run: str) -> Any:
        """Return the simulated time of a step (µs), now and with each change.

        If the step cannot be simulated, the reason is returned as a string.
        """
        # Two simulations of the unchanged step are added: traced_us with all times as they are under the profiler, and
        # scaled_us with the host's time and waits scaled to a run without profiler.
        from analyzers.actions.totals import factors_of
        from analyzers.evidence.runs import tables_of
        from analyzers.job.step.answer import STARTS, Step, fit_waits, traced_step

        step = found.step
        if step is None or isinstance(step, str):
            return step
        self._tables = tables_of(self._store, run)
        self._factors = {x.action.name: factors_of(x) for x in found.actions if x.action.name in step.under}
        held = traced_step(self._tables)
        assert isinstance(held, Step)
        return {
            "starts": STARTS,
            "traced_us": held.us(lambda x: x.us, 1.0),
            "scaled_us": fit_waits(held).us(lambda x: x.us, step.now.host_factor),
            "now": dataclasses.asdict(step.now),
            "under": {name: dataclasses.asdict(x) for name, x in step.under.items()},
        }

    def _tuned(self) -> None:
        from analyzers.tune.verb import Tuning, tune

        def say(text: str) -> None:
            self._said.append(text)
            print(text, flush=True)

        tuning = Tuning(budget_s=self._options.replay, out=self._folder / "overrides")
        code = tune(self._command, self._store, tuning, say, self._environ)
        if code:
            raise RuntimeError(f"tune ended with {code}")

    def _tried(self) -> None:
        """Try changes in the running job as ``logparse try`` does, and keep the raw records of the trials.

        Raises RuntimeError if nothing was tried.
        """
        from analyzers.tune import in_the_job, try_verb
        from analyzers.tune.starts import Starts
        from logparse.libraries.own.job_trials import dump

        def say(text: str) -> None:
            self._said.append(text)
            print(text, flush=True)

        row, tries = self._row, JOBS[self._row["job"]].tries
        environ = {**self._environ, "JOB_SECONDS": str(_TRIED_S)}
        asked = in_the_job.trial(tries, seconds=float(self._options.try_s))
        found = in_the_job.try_in_the_job(self._command, environ, asked, Starts(), say)
        self._said += try_verb.lines(found)
        row["trials"] = [json.loads(dump(x)) for x in found.records]
        row["tried"] = [try_verb.row(x, found.word) for x in found.tried]
        row |= {"applied_by": "hand", "actions": [], "others": list(tries)}
        if not found.records:
            raise RuntimeError(f"nothing was tried: {'; '.join(found.notes)}")

    def _as_if_tuned(self) -> None:
        """Do the first stages of ``logparse tune`` on a CPU, which has no kernels: operators are timed instead."""
        from analyzers.replay.replay import Options, replay
        from analyzers.replay.results import Method
        from analyzers.replay.scheduler import Limits

        self._captured("tune-smoke", self._environ)
        limits, method = Limits(budget_s=self._options.replay), Method(cache="hot", turns=2)
        replay(
            self._store,
            Options(run="tune-smoke", devices=("cpu",), limits=limits, method=method, only="actions"),
        )

    def _captured(self, run: str, environ: Mapping[str, str]) -> None:
        """Run the job with logs and traces, and ingest them under the name ``run``.

        Raises RuntimeError if the job fails.
        """
        from logparse.capture.plan import Trace, plan
        from logparse.capture.run import capture
        from logparse.ingest import ingest

        logs = self._folder / f"logs-{run}"
        planned = plan(self._command, logs, trace=Trace(), leave_out=["tunableop"], environ=environ)
        if self._options.smoke:
            logs.mkdir()
            subprocess.run(self._command, env=planned.environ(environ), check=True, timeout=_RUN_S)
            for trace in logs.glob("trace_*.json.gz"):
                _as_device(trace)
            ingest([str(logs)], self._store, run=run)
            return
        code, _ = capture(self._command, planned, lambda: self._store, print, run=run, environ=environ)
        if code:
            raise RuntimeError(f"the job ended with {code}")

    def _applied(self) -> tuple[str, str, list[str], Any]:
        """Find out which changes ``logparse tune`` made to the job. If it made none, run the job with the best change.

        Returns four values:

        * the name under which the measurements of the unchanged job are stored,
        * the name under which the measurements of the changed job are stored,
        * the names of the changes that were made,
        * the change that tells libraries which kernels to use, if ``logparse tune`` made such a change, otherwise None.
        """
        from analyzers.evidence.tables import Settings
        from analyzers.recommend.apply_module import without_a_change
        from analyzers.recommend.todo_from_actions import find_hidden_changes
        from analyzers.recommend.verb import advise, write

        row, runs = self._row, set(self._store.sources()["run"])
        before = min(runs, key=len)
        found = advise(self._store, Settings(), before)
        written = write(found, Settings(), self._folder / "applied")[0]
        row["offered"] = [_offer(x) for x in found.actions]
        row["step"] = self._simulated(found, before)
        row["others"] = []
        if (after := f"{before}-after") in runs:
            names = [x.action.name for x in without_a_change(found.actions, find_hidden_changes(found))]
            paths = [x.path.name for x in written if x.applied and x.path is not None]
            row["applied_by"], row["actions"], row["tune_verdict"] = "tune", [*names, *paths], _verdict(self._said)
            files = next((x for x in found.actions if x.action.kind == "files"), None) if paths else None
            row["others"] = _others(found.step, found.actions, row["actions"])
            return before, after, names, files
        if (best := _best(found.actions)) is None:
            row["applied_by"], row["actions"] = "nothing", []
            return before, before, [], None
        row["applied_by"], row["actions"] = "name", [best.action.name]
        row["others"] = _others(found.step, found.actions, row["actions"])
        self._named = self._applying(best.action.name)
        self._captured(after, {**self._environ, **self._named})
        return before, after, [best.action.name], None

    def _judged(self, before: str, after: str, names: Sequence[str], files: Any) -> dict[str, Any]:
        """Compare two runs of the job as ``logparse verify`` does. Return the verdict and the numbers.

        ``before`` and ``after`` are the labels of the runs without and with the changes ``names``.
        """
        from analyzers.compare.actions import verify_actions
        from analyzers.compare.proof_text import lines
        from analyzers.evidence.runs import tables_of
        from analyzers.tune.by_turns import MOST_PAIRS, PAIRS, by_turns

        runs = (tables_of(self._store, before), tables_of(self._store, after))
        proof = verify_actions(*runs, names, files)
        if self._named:
            before_side, after_side = ((self._command, {**self._environ, **x}) for x in ({}, self._named))
            times = by_turns(before_side, after_side, "", print, PAIRS if proof.limit else MOST_PAIRS)
            proof = verify_actions(*runs, names, files, times)
        return {"proof": _proof(proof), "verdict": proof.verdict, "verify_said": lines(proof)}

    def _units(self, run: str) -> dict[str, Any] | None:
        from analyzers.evidence.runs import tables_of
        from analyzers.evidence.units import units

        found = units(tables_of(self._store, run))
        if found is None:
            return None
        kinds = {x.name: {"count": x.count, "traced": x.traced, "mean_us": x.mean_us} for x in found.kinds}
        return {"unit": found.sort, "tracing": found.tracing, "mean_us": found.mean_us, "kinds": kinds}

    def _truths(self) -> Iterator[str]:
        """Let the program time its own steps with and without the changes, to test the verdict of logparse."""
        # These times do not depend on logparse. The unchanged program, the program with the recommended changes, and
        # the program with other changes take turns. If nothing is recommended, the second one is left out.
        from logparse.capture import with_overrides

        sides: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {"before": (self._command, self._environ)}
        if self._options.observed:
            (self._folder / "observed").mkdir()
            seen = with_overrides.with_torch(self._environ, with_overrides.UNITS_FILE)
            seen |= {"LOGPARSE_TRACE_DIR": str(self._folder / "observed"), "LOGPARSE_TRACE_UNITS": "2"}
            sides["observed"] = (self._command, seen)
            self._row["others"] = []
        elif self._options.tried:
            by_hand = str(PROGRAMS / "by_hand.py")
            for name in self._row["others"]:
                names = ",".join(parts_of(name))
                sides[name] = (self._command, {**self._environ, "JOB_APPLY": by_hand, "JOB_APPLY_NAMES": names})
            self._row["others"] = []
        elif self._named:
            sides["after"] = (self._command, {**self._environ, **self._named})
        elif self._row["actions"]:
            sides["after"] = with_overrides.applied(self._command, self._folder / "applied", self._environ)
        # Two copies of each side run if another action still fits, because one pair of starts shows no spread.
        room = self._at_once // 2 - len(sides)
        for name in self._row["others"][: room if room > 0 else _OTHERS]:
            sides[name] = (self._command, {**self._environ, **self._applying(name)})
        held = self._row["truth"] = {side: [] for side in sides}
        copies = max(1, min(self._options.truth_copies, self._at_once // len(sides)))
        runs = [(side, copy) for copy in range(copies) for side in sides]
        for number, found in _by_turns([(side, *sides[side]) for side, _ in runs], self._options.truth_s, self._folder):
            side, copy = runs[number]
            of = held[side]
            if copy == len(of):
                of.append({"turns_us": [], "units": 0})
            of[copy]["turns_us"].append(found["unit_us"])
            of[copy]["units"] += found["units"]
            if number == 0:
                yield "truth"
        if isinstance(self._row.get("step"), dict):
            self._row["step"]["beside"] = self._beside()
        yield "truth"

    def _beside(self) -> dict[str, Any]:
        """Predict how long the job's step takes with each change, starting from a more exact time of the unchanged job.

        This time was measured while the unchanged job and the changed jobs took turns on the GPU.
        """
        from analyzers.job.step.answer import Step, answer, traced_step

        held = traced_step(self._tables)
        assert isinstance(held, Step)
        held = dataclasses.replace(held, untraced_us=unit_us(self._row["truth"]["before"]))
        return {name: dataclasses.asdict(answer(held, factors)) for name, factors in self._factors.items()}


def _as_device(path: Path) -> None:
    import gzip

    from action_runs import as_device

    trace = as_device(json.loads(gzip.decompress(path.read_bytes())))
    path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))


def _proof(proof: Any) -> dict[str, Any]:
    """Return the result of comparing a job before and after a change as a dictionary.

    The times get the names ``before_us``, ``promised_us`` and ``after_us``, which all result files of benchmarks use.
    """

    def times(x: Any) -> dict[str, float]:
        return {"before_us": x.measured.now_us, "promised_us": x.promised.then_us, "after_us": x.measured.then_us}

    ends = {"low_us": proof.promised.low_us, "high_us": proof.promised.high_us}
    groups = [{"name": x.name, **times(x)} for x in proof.groups]
    return {**dataclasses.asdict(proof), **times(proof), **ends, "groups": groups}


def _best(actions: Sequence[Any]) -> Any:
    """Return the change with the largest saving. Changes that are worth making are preferred to others.

    Only changes that ``apply.py`` can make are considered. Returns None if there is no change.
    """
    from analyzers.recommend.apply_module import has_lines

    usable = [x for x in actions if has_lines(x) and x.measured_share > 0]
    return max(usable, key=lambda x: (x.pays, x.saving_us), default=None)


def _offer(x: Any) -> dict[str, Any]:
    per = x.steps or 1.0
    times = {name: round(getattr(x, name) / per, 3) for name in ("now_us", "then_us", "changed_us")}
    share = round(x.measured_share, 3)
    return {"action": x.action.name, "kind": x.action.kind, "pays": x.pays, **times, "measured_share": share}


def _verdict(said: Sequence[str]) -> str | None:
    """Find the verdict in the last lines that ``tune`` printed, which have the form "tune: VERDICT…: kept"."""
    ending = next((x.removeprefix("tune: ") for x in reversed(said) if x.startswith("tune: ")), "")
    return next((x for x in sorted(VERDICTS, key=len, reverse=True) if ending.startswith(x)), None)


def _others(step: Any, actions: Sequence[Any], applied: Sequence[str]) -> list[str]:
    """Choose more changes to measure: the ones that should change the step's time most, according to the simulation.

    If a single change was already applied to the job, it is not chosen again.
    """
    if step is None or isinstance(step, str):
        return []
    from analyzers.recommend.apply_module import has_lines

    usable = {x.action.name for x in actions if has_lines(x)} - ({*applied} if len(applied) == 1 else set())
    change = {name: abs(x.then_us - x.now_us) for name, x in step.under.items() if name in usable}
    return sorted(change, key=lambda x: -change[x])[:_OTHERS]


class _Run:
    """A process that runs the job's program, but only works while this benchmark permits it.

    Several such processes work in turns on one GPU, so that their times can be compared. logparse does not profile
    them.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        folder.mkdir()
        self._folder, self._turn = folder, 0
        self._output = folder / "output.txt"
        own = {**environ, "JOB_TURNS": str(folder)}
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(command, env=own, stdout=output, stderr=subprocess.STDOUT)

    def ready(self) -> None:
        """Wait until the started program has finished its preparations, so that its steps can be timed.

        Raises RuntimeError if the program ends or takes too long.
        """
        self._awaited("ready", _RUN_S)

    def turn(self) -> dict[str, Any]:
        """Let the program run for its next turn, and return its report of how long the steps took.

        Raises RuntimeError if the program ends or takes too long.
        """
        (self._folder / f"{self._turn}.go").touch()
        found = self._awaited(f"{self._turn}.json", _RUN_S)
        self._turn += 1
        return dict(json.loads(found.read_text(encoding="utf-8")))

    def end(self) -> None:
        """Let the program end by itself. If it has not ended after 4 s, kill it."""
        (self._folder / "end").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(4)
        if self._process.poll() is None:
            _end_processes(self._process)

    def _awaited(self, name: str, seconds: float) -> Path:
        path, by = self._folder / name, time.monotonic() + seconds
        while not path.exists():
            if self._process.poll() is not None or time.monotonic() > by:
                raise RuntimeError(f"no {name}, exit {self._process.poll()}: {_last_lines(self._output)}")
            time.sleep(0.005)
        return path


def _by_turns(
    runs: Sequence[tuple[str, Sequence[str], Mapping[str, str]]], seconds: float, folder: Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Start several programs at once, and let them take turns on the device for ``seconds`` seconds.

    Yields the number of the program and its report after each turn but the first.
    """
    # The order of the programs is reversed each time, so that no program is always first. The first turn is a warm-up
    # and is left out.
    held: list[_Run] = []
    with tempfile.TemporaryDirectory(dir=folder, prefix="truth-") as place:
        try:
            for number, (_, command, environ) in enumerate(runs):
                held.append(_Run(command, environ, Path(place) / str(number)))
            for each in held:
                each.ready()
            begun = math.inf
            for turn in itertools.count():
                order = list(enumerate(held))
                for number, each in order if turn % 2 else reversed(order):
                    found = each.turn()
                    if turn:
                        yield number, found
                begun = begun if turn else time.monotonic()
                if turn >= LEAST_TURNS and time.monotonic() - begun > seconds:
                    return
        finally:
            for each in held:
                each.end()


def _last_lines(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-8:])


# ------------------------------------------------------------------------------------------------- all jobs


def _end_processes(process: subprocess.Popen[bytes]) -> None:
    """End a process and the processes that it started. First give it eight seconds to end them itself."""
    held = list(_below(process.pid))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.terminate()
        process.wait(8)
    for pid in held:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _below(pid: int) -> Iterator[int]:
    """Yield the ids of all processes that a process has started, directly or indirectly."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        waiting += children
        yield from children


class _Devices:
    """The GPUs of the machine, which jobs share. A job waits until it gets as many as it needs.

    Jobs that asked earlier come first.
    """

    def __init__(self, count: int) -> None:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._free, self._changed = set(shown.split(",") if shown else map(str, range(count))), threading.Condition()
        self._waiting: list[object] = []

    @contextlib.contextmanager
    def taken(self, count: int) -> Iterator[str]:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(lambda: self._waiting[0] is ticket and len(self._free) >= count)
            self._waiting.pop(0)
            mine = sorted(self._free)[:count]
            self._free -= set(mine)
            self._changed.notify_all()
        try:
            yield ",".join(mine)
        finally:
            with self._changed:
                self._free |= set(mine)
                self._changed.notify_all()


def all_jobs(
    names: Sequence[str], options: argparse.Namespace, folder: Path, record: dict[str, Any], out: Path
) -> None:
    """Test all jobs side by side on the available GPUs. Write the results again whenever a stage of a job has ended."""
    deadline = time.monotonic() + options.budget
    devices, lock = _Devices(2 if options.smoke else record["environment"]["gpus"]), threading.Lock()
    rows: dict[str, dict[str, Any]] = record["jobs"]

    def keep(name: str, row: Mapping[str, Any]) -> None:
        with lock:
            rows[name] = {**_add_conclusion(row), "device": record["environment"]["device"]}
            record["summary"] = summary(rows)
            _write_record(record, out)

    def lane(name: str) -> None:
        place = folder / name
        place.mkdir(exist_ok=options.again)
        with devices.taken(2 if options.smoke else JOBS[name].gpus) as visible:
            left = min(deadline - time.monotonic(), _JOB_S)
            if left < (
                _LEAST_S / 2 if options.steps or options.again or options.tried or options.observed else _LEAST_S
            ):
                keep(name, {"job": name, "failed": f"not begun: {max(left, 0):.0f} s of the budget were left"})
                return
            print(f"{name} on {visible}: begun", flush=True)
            _watched(name, options, place, visible, left, keep)
        print("\n".join(table({name: rows[name]})), flush=True)

    threads = []
    for name in names:
        if options.smoke and JOBS[name].only_gpu:
            keep(name, {"job": name, "skipped": JOBS[name].only_gpu})
            continue
        threads.append(threading.Thread(target=lane, args=(name,), daemon=True))
        threads[-1].start()
        time.sleep(0.2)  # Jobs of two GPUs come first, and keep that order.
    for thread in threads:
        thread.join()


def _watched(
    name: str,
    options: argparse.Namespace,
    folder: Path,
    visible: str,
    seconds: float,
    keep: Callable[[str, Mapping[str, Any]], None],
) -> None:
    """Run the test of one job in a process of its own, until the process ends or its time is over.

    ``keep`` is called again and again with the results that the process has written so far.
    """
    words = ["--job", name, "--folder", str(folder.resolve()), "--replay", str(options.replay)]
    words += ["--truth-s", str(options.truth_s), "--truth-copies", str(options.truth_copies)]
    words += ["--try-s", str(options.try_s)]
    words += [f"--{name}" for name in ("smoke", "steps", "again", "tried", "observed") if getattr(options, name)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "PYTHONPATH": path}
    begun, seen = time.monotonic(), ""
    row, log = folder / "row.json", folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), *words],
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        while process.poll() is None and time.monotonic() - begun < seconds:
            time.sleep(0.5)
            text = row.read_text(encoding="utf-8") if row.exists() else ""
            if text != seen:
                seen = text
                keep(name, json.loads(text))
        late = process.poll() is None
        if late:
            _end_processes(process)
    found: dict[str, Any] = json.loads(row.read_text(encoding="utf-8")) if row.exists() else {"job": name}
    if late:
        found["failed"] = f"no end within {seconds:.0f} s"
    elif process.returncode:
        found.setdefault("failed", f"exit {process.returncode}")
    if "failed" in found:
        found["last_lines"] = log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
    keep(name, found)


# ------------------------------------------------------------------------------------------------- what came out


def truth(row: Mapping[str, Any], side: str = "after") -> dict[str, Any] | None:
    """Return how long a step takes without and with a change (µs), as measured by the program itself.

    * The result also has the relative change with its interval.
    * ``side`` names the runs with the change. The first of them is compared with the first unchanged run, the second
      with the second, and so on.
    * Turns are compared by the same rules as in ``logparse tune``.
    * Returns None if there are no times.
    """
    found = compare_step_times(row.get("truth", {}), side)
    if found is None:
        return None
    change, low, high = (us / found.now_us - 1 for us in (found.then_us, *found.ends_us))
    if max(abs(low), abs(high)) < FLOOR or low <= 0 <= high:
        said = "same" if max(abs(low), abs(high)) < MOST_SAME else "within its spread"
    else:
        said = "faster" if change < 0 else "slower"
    times = {"before_us": found.now_us, "after_us": found.then_us, "change": change, "low": low, "high": high}
    return {**times, "runs": found.runs, "turns": found.turns, "said": said}


def direction(verdict: str | None, found: Mapping[str, Any] | None) -> str:
    """Tell whether ``logparse tune`` was right when it called a job with its changes "faster" or "not faster".

    The times that the program itself measured show the truth. Returns "right", "wrong", "undecided", or "no claim".
    """
    if verdict is None or found is None or verdict not in (*FASTER, *NOT_FASTER):
        return "no claim"
    said, less = found["said"], found["change"] < -FLOOR
    if said == "within its spread":
        return "undecided" if less else "wrong" if verdict in FASTER else "right"
    return "right" if (said == "faster") == (verdict in FASTER) else "wrong"


def _add_conclusion(row: Mapping[str, Any]) -> dict[str, Any]:
    if "observed" in row.get("truth", {}):
        late = {
            side: [{**run, "turns_us": run["turns_us"][len(run["turns_us"]) // 2 :]} for run in runs]
            for side, runs in row["truth"].items()
        }
        return {**row, "truth_said": truth({"truth": late}, "observed"), "direction": "no claim"}
    if "tried" in row:
        left_out = {"before", *row.get("void", ())}
        truths = {side: truth(row, side) for side in row.get("truth", {}) if side not in left_out}
        return {**row, "compared": tried.comparisons(row, truths)}
    verdict = row.get("tune_verdict") or row.get("verdict")
    found = truth(row)
    return {**row, "judged_verdict": verdict, "truth_said": found, "direction": direction(verdict, found)}


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Count for how many jobs logparse judged a change rightly, for how many wrongly, and for how many not at all.

    ``rows`` has the results of each job. The counts are compared with the goals of this benchmark.
    """
    if any("tried" in row for row in rows.values()):
        return tried.summary(rows)
    ran = {name: row for name, row in rows.items() if "skipped" not in row}
    by = {word: [n for n, x in ran.items() if x.get("direction") == word] for word in ("right", "wrong", "undecided")}
    return {
        "jobs": len(ran),
        **by,
        "no_claim": [n for n, x in ran.items() if x.get("direction") == "no claim" and "failed" not in x],
        "verified_wrongly": [n for n in by["wrong"] if ran[n]["judged_verdict"] == "verified"],
        "failed": {n: x["failed"] for n, x in ran.items() if "failed" in x},
        "skipped": [n for n in rows if n not in ran],
    }


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table with a row per job, as in ``docs/results.md``. Times are in ms per step."""
    if any("tried" in row for row in rows.values()):
        return tried.table(rows)
    head = (
        "job",
        "action",
        "computes: before → promised, measured",
        "unit, as we say",
        "verdict",
        "truth",
        "direction",
    )
    out = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return [*out, *(f"| {name} | {_line(row)} |" for name, row in rows.items())]


def _line(row: Mapping[str, Any]) -> str:
    if "skipped" in row:
        return f"skipped: {row['skipped']}"
    proof, found, units = row.get("proof"), row.get("truth_said"), row.get("units", {})
    action = f"{' + '.join(row.get('actions', ())) or 'none'} ({row.get('applied_by', '?')})"
    computes = wall = "–"
    if proof:
        low, high, then = (_ms(proof[x]) for x in ("low_us", "high_us", "after_us"))
        computes = f"{_ms(proof['before_us'])} → {_ms(proof['promised_us'])} [{low}, {high}], {then}"
    said = [*row.get("said", ()), *([] if row.get("tune_verdict") else row.get("verify_said", ()))]
    if stated := next((x for x in map(_WALL.search, reversed(said)) if x), None):
        wall = stated[1]
    elif any(units.values()):
        wall = " → ".join(_ms(x["mean_us"] if x else None) for x in units.values())
    seen = "–"
    if found:
        times = f"{_ms(found['before_us'])} → {_ms(found['after_us'])}"
        seen = f"{times}, {found['change']:+.1%} [{found['low']:+.1%}, {found['high']:+.1%}]: {found['said']}"
    last = f"failed: {str(row['failed']).splitlines()[-1][-160:]}" if "failed" in row else row.get("direction", "")
    return " | ".join((action, computes, wall, str(row.get("judged_verdict") or "–"), seen, last))


def _ms(us: float | None) -> str:
    return "?" if us is None else f"{us / 1e3:.3g}"


def merged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the results of several calls of this program into one record of all jobs.

    If several results contain the same job, the last one in which it did not fail is used.
    """
    rows: dict[str, Any] = {}
    for name, row in (x for record in records for x in record["jobs"].items()):
        if name not in rows or "failed" not in row or "failed" in rows[name]:
            rows[name] = row
    ordered = {name: _add_conclusion(rows[name]) for name in JOBS if name in rows}
    seconds = math.fsum(record.get("seconds", 0.0) for record in records)
    return {**records[-1], "seconds": seconds, "jobs": ordered, "summary": summary(ordered)}


def _environment(smoke: bool) -> dict[str, Any]:
    """Return the name of the GPU, its driver, and the versions of the libraries with which the benchmark runs.

    The GPU is asked with ``nvidia-smi``. ``torch`` would use the GPU in this process, which could disturb the measured
    jobs.
    """
    from importlib.metadata import PackageNotFoundError, version

    out: dict[str, Any] = {"python": sys.version.split()[0]}
    for name in ("torch", "transformers", "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-nccl-cu13"):
        with contextlib.suppress(PackageNotFoundError):
            out[name] = version(name)
    if smoke:
        return {**out, "device": "CPU", "gpus": 0}
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout.strip().splitlines()
    name, driver = (x.strip() for x in lines[0].split(","))
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {**out, "device": name, "driver": driver, "gpus": len(shown.split(",")) if shown else len(lines)}


def _write_record(record: Mapping[str, Any], path: Path) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(record, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    part.replace(path)


def _choose_jobs(options: argparse.Namespace) -> list[str]:
    """Return the names of the jobs to run, in the order that the user gave (``--only``).

    Without ``--only``, they have the order of ``JOBS``, where jobs with two GPUs come first.
    """
    names = options.only.split(",") if options.only else [x for x in JOBS if JOBS[x].tries or not options.tried]
    if unknown := [x for x in names if x not in JOBS]:
        raise SystemExit(f"--only {','.join(unknown)}: there is {', '.join(JOBS)}")
    done: dict[str, Any] = json.loads(options.rest.read_text(encoding="utf-8"))["jobs"] if options.rest else {}
    return [x for x in names if x not in done or "failed" in done[x]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Test all jobs, write the results to a file, and print the table. Returns 1 if a requirement is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of jobs, joined by commas (default: all)")
    parser.add_argument("--rest", type=Path, help="a record: the jobs that it has are left out, unless they failed")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds of all")
    parser.add_argument("--replay", type=float, default=20.0, help="seconds of each job's replay")
    parser.add_argument("--tried", action="store_true", help="only what `logparse try` says, and whether it is true")
    parser.add_argument("--observed", action="store_true", help="only what the observer costs")
    parser.add_argument("--try-s", type=int, default=40, help="seconds of trials in each start of a job")
    parser.add_argument("--truth-s", type=float, default=45.0, help="seconds of each job's turns for the truth")
    parser.add_argument("--truth-copies", type=int, default=5, help="runs of each side, as far as they fit")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="the record's folder")
    parser.add_argument("--merge", type=Path, nargs="+", default=(), help="records to join, instead of running jobs")
    parser.add_argument("--keep", type=Path, help="a new folder for stores, logs and traces, which is not removed")
    parser.add_argument("--wheels", help="folder of wheels to put on the path")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU; no requirement is tested")
    parser.add_argument("--steps", action="store_true", help="only what the step is foretold to take, and takes")
    parser.add_argument("--again", action="store_true", help="of the jobs that --keep holds: the step, and the truth")
    parser.add_argument("--job", choices=tuple(JOBS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        one_job(options.job, options, options.folder)
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    if options.merge:
        record = merged([json.loads(path.read_text(encoding="utf-8")) for path in options.merge])
        out = _path(record, options)
    else:
        record, out = _run_jobs(options)
    _write_record(record, out)
    print("\n".join(table(record["jobs"])))
    print(json.dumps(record["summary"], indent=1))
    print(f"{record['seconds']:.0f} s; {out}")
    if record["record"] == "tried":
        return int(bool(record["summary"]["contradict"]))
    short = len(record["summary"]["right"]) < 0.9 * record["summary"]["jobs"]
    judged = record["record"] == "jobs" and not record["smoke"]
    return 1 if judged and (short or record["summary"]["verified_wrongly"]) else 0


def _path(record: Mapping[str, Any], options: argparse.Namespace) -> Path:
    device = str(record["environment"]["device"]).replace(" ", "-")
    return (
        Path(options.results)
        / f"{record['record']}{'-smoke' if record['smoke'] else ''}-{device}-{record['date'][:10]}.json"
    )


def _run_jobs(options: argparse.Namespace) -> tuple[dict[str, Any], Path]:
    names, begun = _choose_jobs(options), time.monotonic()
    record: dict[str, Any] = {
        "record": "observed"
        if options.observed
        else "tried"
        if options.tried
        else "steps"
        if options.steps
        else "jobs",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "smoke": options.smoke,
        "environment": _environment(options.smoke),
        "truth_s": options.truth_s,
        "truth_copies": options.truth_copies,
        "replay_s": options.replay,
        "seconds": 0.0,
        "jobs": {},
    }
    out = _path(record, options)
    folder = Path(tempfile.mkdtemp(prefix="logparse-jobs-")) if options.keep is None else options.keep.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as wheels:
            unpack_wheels(options.wheels, wheels)
            all_jobs(names, options, folder, record, out)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    record["jobs"] = {name: record["jobs"][name] for name in names}
    record["seconds"] = round(time.monotonic() - begun, 1)
    return record, out


if __name__ == "__main__":
    sys.exit(main())
