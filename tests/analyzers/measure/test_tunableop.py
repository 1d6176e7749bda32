"""TunableOp as a backend: its log names the candidates; a PyTorch without TunableOp is an error that states it."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.measure.backend import Place, UnsupportedError
from analyzers.measure.backends.tunableop import BACKEND, by_time, candidates
from logparse.model import Measurement

LOG = (Path(__file__).parents[3] / "sample_logs/tunableop/tunableop_verbose.log").read_text(encoding="utf-8")


def tuning() -> str:
    """The first tuning of the sample with several candidates, from its lookup on."""
    start = LOG.index("finding fastest for ")
    end = LOG.index("\n", LOG.index("└──found fastest for ", start))
    return LOG[start : end + 1]


def test_the_winner_of_the_log_is_the_fastest_candidate() -> None:
    known: dict[str, dict[str, Measurement]] = {}
    rows = candidates(tuning(), known)
    winner = tuning().rstrip().rsplit(" ", 1)[1]
    assert by_time(rows.values())[0].solution.raw == winner
    assert "Default" in rows
    assert len({row.problem.text for row in rows.values()}) == 1
    assert list(known.values()) == [rows]


def test_a_key_that_was_tuned_before_is_only_looked_up() -> None:
    known: dict[str, dict[str, Measurement]] = {}
    rows = candidates(tuning(), known)
    key = tuning().removeprefix("finding fastest for ").split(" ", 1)[0].replace("(", ",").replace(")", "")
    assert candidates(f"ResultEntry found for {key}\n", known) is rows


@pytest.mark.parametrize("log", ["", "noise\n"])
def test_a_call_that_was_not_tuned_is_unsupported(log: str) -> None:
    with pytest.raises(UnsupportedError, match="did not tune"):
        candidates(log, {})


def test_a_pytorch_without_it_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delattr(torch._C, "_cuda_tunableop_enable", raising=False)
    with pytest.raises(UnsupportedError, match="without TunableOp"):
        BACKEND.open(Place())
