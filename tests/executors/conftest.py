"""Fixture of an executor on the Ray cluster that the tests share."""

from __future__ import annotations

import pytest

from logparse.executors.ray import RayExecutor


@pytest.fixture
def on_ray(cluster: None) -> RayExecutor:
    return RayExecutor()
