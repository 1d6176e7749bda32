"""KernelTuner's strategies as anchors of ``proposers.py``: its own simulation mode over recorded times, no GPU.

A plan's name is a point of the search space: its layout, its engine and its knobs (``eng65_k2=6_k13=1``); a knob that
an engine has not is -1, and only points that are recorded are allowed.  KernelTuner (B. van Werkhoven, Future
Generation Computer Systems 90 (2019); ``pip install kernel-tuner``) evaluates so many of them, each once, and is given
the recorded time: unlike a proposal, a strategy sees each time before it takes the next plan.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

STRATEGIES = ("genetic_algorithm", "simulated_annealing", "pso", "greedy_mls")
"""Those of its strategies that need no further package and end on small spaces, as ``greedy_ils`` and ``diff_evo`` of
1.5.0 did not.
"""
_ENGINE, _KNOB = re.compile(r"eng(\d+)"), re.compile(r"k(\d+)=(\d+)")


def available() -> bool:
    """Whether KernelTuner is installed."""
    return importlib.util.find_spec("kernel_tuner") is not None


def evaluated(times_us: Mapping[str, float], strategy: str, count: int, seed: int) -> list[str]:
    """The plans that a strategy evaluates, at most ``count`` distinct ones; empty where names are no cuDNN plans'."""
    names, points = _space(times_us)
    if not points:
        return []
    import kernel_tuner

    parameters = {name: sorted({point[i] for point in points}) for i, name in enumerate(names)}
    # Each restriction holds the beginnings of the recorded points, so that the space is built without its product.
    restrictions = [
        f"({', '.join(names[:i])}) in {{{', '.join(map(str, sorted({point[:i] for point in points})))}}}"
        for i in range(2, len(names) + 1)
    ]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        cache = Path(folder, "cache.json")
        cache.write_text(json.dumps(_cache(names, parameters, points, times_us)), encoding="utf-8")
        found, _ = kernel_tuner.tune_kernel(
            "plan",
            "void plan() {}",
            [1],
            [],
            parameters,
            restrictions=restrictions,
            strategy=strategy,
            strategy_options={"max_fevals": count},
            cache=str(cache),
            simulation_mode=True,
            lang="C",
            seed=seed,
            quiet=True,
        )
    return list(dict.fromkeys(points[tuple(row[name] for name in names)] for row in found))[:count]


def _space(times_us: Mapping[str, float]) -> tuple[list[str], dict[tuple[int, ...], str]]:
    """Names of the parameters, and the plans by their values."""
    knobs = sorted({int(knob) for text in times_us for knob, _ in _KNOB.findall(text)})
    points: dict[tuple[int, ...], str] = {}
    for text in times_us:
        engine, held = _ENGINE.search(text), dict(_KNOB.findall(text))
        if engine is not None:
            values = (int(held.get(str(x), -1)) for x in knobs)
            points[(int("stored" in text), int(engine[1]), *values)] = text
    return ["layout", "engine", *(f"k{x}" for x in knobs)], points


def _cache(
    names: list[str],
    parameters: Mapping[str, list[int]],
    points: Mapping[tuple[int, ...], str],
    times_us: Mapping[str, float],
) -> dict[str, object]:
    """A cache file as KernelTuner writes it, with times in ms."""
    seconds = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
    rows = {
        ",".join(map(str, point)): dict(zip(names, point, strict=True))
        | dict.fromkeys(seconds, 0)
        | {"time": times_us[text] / 1e3, "times": [times_us[text] / 1e3]}
        for point, text in points.items()
    }
    return {
        "device_name": "recorded",
        "kernel_name": "plan",
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": parameters,
        "objective": "time",
        "cache": rows,
    }
