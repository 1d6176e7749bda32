"""Prints constraints for pip: of each package that a user installs and ``pyproject.toml`` bounds from below the lowest
version.

``make lowest`` installs these, beside any version of what tests alone need, whose old ones do not go together.  A
version of which the index has no wheel for this Python is left to pip and named on standard error, as it then is not
what is tested.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def bounds() -> dict[str, str]:
    """Package → the lowest version that the project and its extras but ``test`` allow."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = (texts for name, texts in project["optional-dependencies"].items() if name != "test")
    texts = [*project["dependencies"], *(x for extra in extras for x in extra)]
    found = (re.match(r"([\w.-]+)(?:\[[\w,]*\])?>=([\d.]+)", text) for text in texts)
    return {match[1]: match[2] for match in found if match}


def has_wheel(requirement: str) -> bool:
    """Whether the index has a wheel of it for this Python."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    words = [*pip, "--dry-run", "--no-deps", "--ignore-installed", "--only-binary", ":all:", requirement]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    for name, version in bounds().items():
        if has_wheel(f"{name}=={version}"):
            print(f"{name}=={version}")
        else:
            print(f"lowest: no wheel of {name} {version} here, so another version is tested", file=sys.stderr)
