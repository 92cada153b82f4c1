"""Rewrites the hashes in requirements files:

    .venv/bin/python internal/tools/setup/pin.py internal/tools/setup/requirements-*.txt

Edit the versions first. Each entry NAME==VERSION gets the SHA-256 of every wheel of that release in PyPI, or in the
index that PIP_INDEX_URL names, for all systems and Python versions. Source distributions are left out because pip runs
with --only-binary=:all:. Review the difference: the hashes of a version that was pinned before must not change, except
that new files may have been added to the release.
"""

import functools
import json
import os
import pathlib
import re
import sys
import urllib.request

from packaging.utils import canonicalize_name, canonicalize_version

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


@functools.cache
def files(name):
    """Returns the files of all releases (PEP 691)."""
    request = urllib.request.Request(f"{INDEX}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["files"]


def pinned(entry):
    """Returns the entry of a requirements file with the hashes of its release."""
    wheels = [f for f in files(canonicalize_name(entry[1])) if f["filename"].endswith(".whl")]
    version = canonicalize_version(entry[2])
    hashes = [f["hashes"]["sha256"] for f in wheels if canonicalize_version(f["filename"].split("-")[1]) == version]
    if not hashes:
        raise SystemExit(f"{entry[1]}=={entry[2]}: the index has no wheel of this version")
    return " \\\n    ".join([entry[0], *(f"--hash=sha256:{h}" for h in sorted(hashes))])


for file in map(pathlib.Path, sys.argv[1:]):
    text = re.sub(r"( \\\n)? +--hash=\S+", "", file.read_text())
    file.write_text(re.sub(r"(?m)^([\w.-]+)==([\w.]+)(?: ;.*)?$", pinned, text))
