"""A Ray cluster of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import ray

from logparse.executors.ray import RayExecutor


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Two workers, for all tests of a session; executors find themselves connected."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=128 << 20,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
    )
    yield
    ray.shutdown()


@pytest.fixture
def on_ray(cluster: None) -> RayExecutor:
    return RayExecutor()
