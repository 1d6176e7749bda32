"""The optional native counter of lines; everything else is in pyproject.toml.

Where there is no compiler the build goes on without it, and ``logparse.counting`` counts in Python with equal results.
"""

import sys

from setuptools import Extension, setup

flags = ["/O2"] if sys.platform == "win32" else ["-O3", "-std=c99"]
setup(ext_modules=[Extension("logparse._lines", ["logparse/_lines.c"], extra_compile_args=flags, optional=True)])
