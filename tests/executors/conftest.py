"""A Ray cluster of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray

from logparse.executors.ray import RayExecutor


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Two workers, for all tests of a session; executors find themselves connected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # credentials are the nodes' own
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
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
