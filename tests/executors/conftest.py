"""An executor on the cluster of the tests."""

from __future__ import annotations

import pytest

from logparse.executors.ray import RayExecutor


@pytest.fixture
def on_ray(cluster: None) -> RayExecutor:
    return RayExecutor()
