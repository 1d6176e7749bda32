"""The environment variable that switches on MIOpen's log: one ``MIOpenDriver`` command per convolution call."""

from __future__ import annotations

from collections.abc import Iterator

from logparse.libraries.kinds.capture import Asked, Capture, Setting


def _settings(asked: Asked) -> Iterator[Setting]:
    yield Setting(
        "MIOPEN_ENABLE_LOGGING_CMD", "1", "MIOpen writes one MIOpenDriver command per convolution to standard error"
    )


CAPTURE = Capture(library="miopen", platforms=("rocm",), settings=_settings, on_stderr=True)
