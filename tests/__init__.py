"""All tests."""

import os
import sys

import pytest

# The tests start some hundred Python processes: without stored bytecode each would compile the packages anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest.register_assert_rewrite("tests.golden")  # a difference is explained as in a test
