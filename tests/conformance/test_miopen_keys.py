"""Tests with random convolutions: the key that logparse computes from a log line must be the key that MIOpen looks up.

MIOpen's databases have one line per key.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path

from logparse.libraries.miopen.driver import read_command
from logparse.libraries.miopen.problem_key import key_of, problem_from_key
from tests.conformance.rocm import HERE, Rocm
from tests.conftest import sized

SETTINGS = {
    "VGPU_ARCH": "gfx942:sramecc+:xnack-",
    "VGPU_CUS": "304",
    "VGPU_COMPUTE": "0",  # the test asks for keys, and not for a kernel's results
    "MIOPEN_ENABLE_LOGGING_CMD": "1",
    "MIOPEN_LOG_LEVEL": "6",
    "MIOPEN_DEBUG_GCN_ASM_KERNELS": "0",
    "MIOPEN_DEBUG_CONV_WINOGRAD": "0",
}
_KEY = re.compile(r"Looking for key (\d\S*x\S*) in ")


def form(chance: random.Random) -> list[object]:
    """Return a random convolution, in the form in which ``drivers/miopen_keys.py`` expects calls.

    A convolution may be 2-D or 3-D, in groups, transposed or channels last. Many sizes are 1. In some calls the tensors
    have different layouts, or gaps in memory.
    """
    axes, transposed, groups = chance.choice([2, 2, 3]), chance.random() < 0.3, chance.choice([1, 1, 2, 4])
    pad, sizes = [[chance.choice(x) for _ in range(axes)] for x in ([0, 1, 2], [1, 2, 3, 5, 7])]
    stride, dilation = [[chance.choice(x) for _ in range(axes)] for x in ([1, 1, 2, 3], [1, 1, 2])]
    filters = [chance.choice([1, 2, 3]) for _ in range(axes)]
    words = ["channels first", "last C"]
    layouts = [chance.choice(words)] * 3 if chance.random() < 0.6 else [chance.choice(words) for _ in range(3)]
    gaps = [0] * 3 if chance.random() < 0.8 else [chance.choice([0, 0, 1, 2, 3]) for _ in range(3)]
    channels = [groups * chance.choice([1, 1, 2, 8]) for _ in range(2)]
    kind = chance.choice(["f16_r", "f32_r", "bf16_r"])
    head = [chance.choice("FBW"), kind, layouts, gaps, transposed, groups, chance.choice([1, 3]), *channels]
    return [*head, sizes, filters, pad, stride, dilation]


def test_the_key_of_a_logged_command_is_right(rocm: Rocm, tmp_path: Path) -> None:
    """From the command that MIOpen logs, logparse computes the key under which MIOpen looks up the convolution."""
    # This is difficult if a size is 1, because the strides of a tensor then fit several layouts. MIOpen derives the
    # layout in the command from the strides of one tensor, and the layout in the key from all three.
    calls = [form(random.Random(number)) for number in range(sized(400, 4_000))]
    folders = {f"MIOPEN_{x}": str(tmp_path / x) for x in ("USER_DB_PATH", "CUSTOM_CACHE_DIR")}
    command = [str(rocm.launcher), str(HERE / "drivers/miopen_keys.py")]
    given = {"env": rocm.environment(SETTINGS | folders), "input": json.dumps(calls)}
    ended = subprocess.run(command, **given, capture_output=True, text=True, check=True, timeout=600)
    logs = re.split(r"^CALL \d+\n", ended.stderr, flags=re.MULTILINE)[1:]
    refused = 0
    for call, log in zip(calls, logs, strict=True):
        if re.search(r"^miopen\w+ returned (\d+|no solution)$", log, flags=re.MULTILINE):
            refused += 1
            continue
        (key,) = set(_KEY.findall(log))
        (line,) = (line for line in log.splitlines() if "[LogCmdConvolution]" in line)
        read = read_command(line)
        assert read is not None
        assert [key_of(problem) for problem in read.problems] == [key], call
        assert key_of(problem_from_key(key)) == key
    assert refused < len(calls) / 4, "an output that is empty, or tensors of layouts that no solver takes"
