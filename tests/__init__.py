"""The tests of logparse."""

import os
import sys

import pytest

# The tests start some hundred Python processes. Without stored bytecode, each process would compile the packages anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest.register_assert_rewrite("tests.golden")  # pytest then explains a failed comparison as it does in a test
