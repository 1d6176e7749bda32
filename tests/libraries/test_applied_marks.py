"""Tests of reading the files in which the processes of a job record which changes they applied.

Damaged files are rejected.
"""

from __future__ import annotations

import json

import pytest

from logparse.libraries.kinds.format import Head
from logparse.libraries.own.applied_marks import FORMAT, recognise
from logparse.model import Fact
from tests.libraries.reading import outcomes, records_of, units

MODEL = {"class": "torchvision.models.resnet.ResNet", "modules": 161, "changed": 53}
OF_MODULE = {
    "logparse_applied": 1,
    "pid": 4242,
    "settings": ["cudnn_benchmark", "channels_last_benchmark"],
    "models": [{"action": "channels_last_benchmark", **MODEL}],
}
OF_SCRIPT = {"logparse_applied": 1, "variables": ["MIOPEN_USER_DB_PATH"], "files": ["gfx942130.HIP.fdb.txt"]}
ASKED = {"settings": ["tf32"], "scripts": []}


def lines(*marks: object) -> bytes:
    return "".join(f"{json.dumps(x)}\n" for x in marks).encode()


def test_marks_are_facts() -> None:
    data = lines(OF_MODULE, OF_SCRIPT, OF_SCRIPT, {"logparse_applied": 1, "asked": ASKED})
    assert recognise(Head("applied_4242.json", data))
    found = outcomes(FORMAT, data)
    assert [(x.name, x.value) for x in records_of(found, Fact)] == [
        ("applied:cudnn_benchmark", '{"setting": true}'),
        ("applied:channels_last_benchmark", json.dumps({"setting": True, "models": [MODEL]})),
        ("exported:MIOPEN_USER_DB_PATH", "2"),
        ("applied_file:gfx942130.HIP.fdb.txt", "2"),
        ("applied_asked", json.dumps(ASKED)),
    ]
    assert units(found) == {"fact": 1}


def test_what_a_process_found_at_its_end_is_in_the_fact() -> None:
    names = ["tf32", "cudnn_benchmark", "blas_cublaslt"]
    at_end = {"in_force": ["cudnn_benchmark"], "lost": {"tf32": "torch.backends.cuda.matmul.allow_tf32"}}
    found = outcomes(FORMAT, lines(OF_MODULE | {"settings": names, "models": [], "at_end": at_end}))
    assert {x.name: json.loads(x.value) for x in records_of(found, Fact)} == {
        "applied:tf32": {"setting": True, "at_end": "lost", "undone": "torch.backends.cuda.matmul.allow_tf32"},
        "applied:cudnn_benchmark": {"setting": True, "at_end": "in force"},
        "applied:blas_cublaslt": {"setting": True, "at_end": "unknown"},
    }


@pytest.mark.parametrize(
    "data",
    [
        lines(OF_MODULE)[:-20],
        lines(OF_MODULE, {"settings": []}),
        lines(OF_MODULE | {"settings": "tf32"}),
        lines(OF_MODULE | {"settings": [1]}),
        lines(OF_MODULE | {"models": [{}]}),
        lines(OF_MODULE | {"at_end": []}),
        lines(OF_MODULE | {"at_end": {"in_force": "tf32"}}),
        lines(OF_MODULE | {"at_end": {"lost": ["tf32"]}}),
        lines(OF_MODULE | {"at_end": {"lost": {"tf32": 1}}}),
        b'{"logparse_applied": 1, "\xff": 2}',
    ],
)
def test_what_is_no_mark_is_a_reject(data: bytes) -> None:
    assert units(outcomes(FORMAT, data)) == {"reject": 1}
