"""Fixture that lets a test do its work on the Ray cluster which all tests share."""

from __future__ import annotations

import pytest

from logparse.executors.ray import RayExecutor


@pytest.fixture
def on_ray(cluster: None) -> RayExecutor:
    return RayExecutor()
