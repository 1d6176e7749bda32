"""Print pip constraints with the lowest version of each package that ``pyproject.toml`` allows.

``make lowest`` installs these versions and runs the tests.

* Only packages that a user installs are listed. Packages that only tests need get any version, because their old
  versions do not fit together.
* If the package index has no wheel of the lowest version for this Python, pip chooses the version. Standard error names
  the package, because its lowest version is then not tested.
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
    """Return the lowest version of each package that the project allows: {package: version}.

    Packages of the optional extras are included, except for the extra ``test``.
    """
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = (texts for name, texts in project["optional-dependencies"].items() if name != "test")
    texts = [*project["dependencies"], *(x for extra in extras for x in extra)]
    found = (re.match(r"([\w.-]+)(?:\[[\w,]*\])?>=([\d.]+)", text) for text in texts)
    return {match[1]: match[2] for match in found if match}


def has_wheel(requirement: str) -> bool:
    """Tell whether the package index has a wheel for this Python that meets the requirement.

    A requirement is a text such as ``numpy==1.24``.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    words = [*pip, "--dry-run", "--no-deps", "--ignore-installed", "--only-binary", ":all:", requirement]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    for name, version in bounds().items():
        if has_wheel(f"{name}=={version}"):
            print(f"{name}=={version}")
        else:
            print(f"lowest: no wheel of {name} {version} here, so another version is tested", file=sys.stderr)
