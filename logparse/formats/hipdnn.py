"""hipDNN's engine overrides: which engine to use for an operation of these tensors, with the time it was tuned at.

::

    {"version": 2, "engine_overrides": [
      {"op": "conv_fprop", "engine_name": "MIOPEN_ENGINE",
       "tensors": [{"tensor_id": "X", "dim": [1, 3, 224, 224], "stride": [150528, 50176, 224, 1]},
                   {"tensor_id": "W", "dim": [64, 3, 7, 7], "stride": [147, 49, 7, 1]}],
       "autotune_metadata": {"rank": 0, "min_time_ms": 1.23, "avg_time_ms": 1.25, "stddev_ms": 0.02,
                             "workspace_size": 16777216, "mode": "exhaustive", …}}]}

Written by hipDNN's autotuning, read back from ``HIPDNN_HEUR_CONFIG_PATH``.  Milliseconds.  Source: ROCm/rocm-libraries
projects/hipdnn ``AutotuneFileWriter.hpp`` and ``EngineOverrideConfig.hpp``; not tried on a file of a released build.

An entry is one unit.  A forward convolution whose tensors are named becomes a measurement: it states neither types nor
stride, padding and dilation, which stay unknown, so it links to nothing by shape.  Other operations, rules with a free
size (-1) and entries without named tensors are messages.  A rule without a time is a measurement without one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from logparse.formats.format import FileFormat, Head, Origin, Outcome, Source
from logparse.formats.patterns import regex
from logparse.model import ConvProblem, Fact, Measurement, Message, Record, Reject, Solution

ORIGIN = "hipdnn"
CATEGORY = "hipdnn"
_MEMBER = regex(rb'"engine_overrides"\s*:\s*\[')
_MOST_BYTES = 64 << 20


def recognise(head: Head) -> bool:
    """A JSON object with the list of overrides near its beginning."""
    return head.data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and _MEMBER.search(head.data[:4096]) is not None


def read(source: Source) -> Iterator[Outcome]:
    """Each entry of the list; a file that is no such object is one reject."""
    with source.open() as stream:
        data = stream.read(_MOST_BYTES + 1)
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
        content = json.loads(data.decode("utf-8-sig"))
        entries = content["engine_overrides"]
        if not isinstance(entries, list):
            raise ValueError("engine_overrides is no list")
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        yield Outcome("reject", [Reject(f"hipDNN overrides: {error}", 0, len(data))])
        return
    version = content.get("version")
    yield Outcome("fact", [Fact("hipdnn_config_version", str(version))] if type(version) is int else [], lines=0)
    for entry in entries:
        yield _entry(entry, len(data))


def _entry(entry: object, length: int) -> Outcome:
    if not isinstance(entry, dict) or not isinstance(entry.get("op"), str) or not entry.get("engine_name"):
        return Outcome("reject", [Reject("hipDNN overrides: an entry without operation or engine", 0, length)])
    problem = _problem(entry)
    if problem is None:
        text = json.dumps({name: entry.get(name) for name in ("op", "engine_name", "criteria", "tensors")})
        return Outcome("message", [Message(category=CATEGORY, text=text[:2000])])
    records: list[Record] = [_measured(problem, entry)]
    return Outcome("measurement", records)


def _measured(problem: ConvProblem, entry: Mapping[str, Any]) -> Measurement:
    given = entry.get("autotune_metadata")
    metadata = given if isinstance(given, dict) else {}
    time_us = _us(metadata.get("avg_time_ms"))
    workspace = metadata.get("workspace_size")
    return Measurement(
        problem=problem,
        solution=Solution("hipdnn", str(entry["engine_name"]), raw=str(entry["engine_name"])),
        origin=ORIGIN,
        status="no_time" if time_us is None else "ok",
        time_us=time_us,
        min_us=_us(metadata.get("min_time_ms")),
        std_us=_us(metadata.get("stddev_ms")),
        workspace_bytes=workspace if type(workspace) is int else None,
        error="a rule without a time" if time_us is None else None,
    )


def _us(ms: object) -> float | None:
    return round(ms * 1e3, 6) if isinstance(ms, (int, float)) and not isinstance(ms, bool) and 0 < ms < 1e9 else None


def _problem(entry: Mapping[str, Any]) -> ConvProblem | None:
    """The forward convolution of named tensors; None for everything else."""
    tensors = entry.get("tensors")
    named = {
        str(tensor.get("tensor_id")).upper(): tensor.get("dim")
        for tensor in (tensors if isinstance(tensors, list) else [])
        if isinstance(tensor, dict)
    }
    x, w, y = (_sizes(named.get(name)) for name in "XWY")
    if entry["op"] != "conv_fprop" or x is None or w is None or len(x) != len(w) or len(x) not in (4, 5):
        return None
    if w[1] == 0 or x[1] % w[1]:
        return None
    axes = "dhw"[5 - len(x) :]
    values: dict[str, Any] = dict.fromkeys(
        f"{stem}_{axis}" for stem in ("pad", "stride", "dilation", "out") for axis in axes
    )
    values |= dict(zip(axes, x[2:], strict=True)) | {f"filter_{a}": n for a, n in zip(axes, w[2:], strict=True)}
    if y is not None and len(y) == len(x):
        values |= {f"out_{axis}": n for axis, n in zip(axes, y[2:], strict=True)}
    return ConvProblem(
        direction="F", spatial=3 if len(x) == 5 else 2, n=x[0], c=x[1], k=w[0], groups=x[1] // w[1],
        in_cast=None, weights_cast=None, out_cast=None, mode="convolution", **values,
    )  # fmt: skip


def _sizes(dims: object) -> list[int] | None:
    good = isinstance(dims, list) and all(type(n) is int and 0 < n < 1 << 31 for n in dims)
    return dims if good and isinstance(dims, list) else None


FORMAT = FileFormat(
    name="hipdnn-overrides",
    about="hipDNN engine overrides (HIPDNN_HEUR_CONFIG_PATH), written by its autotuning",
    recognise=recognise,
    read=read,
    origins=(Origin(ORIGIN, evidence=True),),
)
