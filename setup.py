"""The optional native readers; everything else is in pyproject.toml.

Where there is no compiler the build goes on without them, and ``logparse.ingest.counting`` and
``logparse.libraries.miopen`` read in Python with equal results.
"""

import sys

from setuptools import Extension, setup

flags = ["/O2"] if sys.platform == "win32" else ["-O3", "-std=c99"]
modules = {
    "logparse.ingest._lines": "logparse/ingest/_lines.c",
    "logparse.libraries.miopen._find_db": "logparse/libraries/miopen/_find_db.c",
}
setup(
    ext_modules=[Extension(name, [source], extra_compile_args=flags, optional=True) for name, source in modules.items()]
)
