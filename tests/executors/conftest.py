"""Fixture for tests that work on a Ray cluster, which all of them share."""

from __future__ import annotations

import pytest

from logparse.executors.ray import RayExecutor


@pytest.fixture
def on_ray(cluster: None) -> RayExecutor:
    return RayExecutor()
