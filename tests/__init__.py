"""All tests."""

import pytest

pytest.register_assert_rewrite("tests.golden")  # a difference is explained as in a test
