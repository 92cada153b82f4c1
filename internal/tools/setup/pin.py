"""Rewrites the hashes in requirements files:

    .venv/bin/python internal/tools/setup/pin.py internal/tools/setup/requirements-*.txt

Edit the versions first. Each entry NAME==VERSION gets the SHA-256 of every wheel of that
release in the index that pip is configured with, for all systems and Python versions. Source
distributions are left out because pip runs with --only-binary=:all:. Review the difference:
the hashes of a version that was pinned before must not change, except that new files may
have been added to the release.

The index reader of pip lists the files. It is not a public interface of pip.
"""

import pathlib
import re
import sys

from pip._internal.commands import create_command
from pip._internal.index.collector import parse_links
from pip._internal.models.link import Link
from pip._vendor.packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from pip._vendor.packaging.version import Version


class Index:
    """The package index of pip's configuration."""

    def __init__(self):
        command = create_command("download")
        options, _ = command.parse_args([])
        session = command._build_session(options)
        self.finder = command._build_package_finder(options, session)
        self.releases = {}  # (name, version) -> hashes

    def hashes(self, name, version):
        """Returns the sorted hashes of the wheels of one release."""
        name = canonicalize_name(name)
        if name not in self.releases:
            self.releases[name] = self._read(name)
        return sorted(self.releases[name].get(Version(version), ()))

    def _read(self, name):
        found = {}
        for url in self.finder.search_scope.get_index_urls_locations(name):
            page = self.finder._link_collector.fetch_response(Link(url))
            for link in parse_links(page) if page else ():
                try:
                    _, version, *_ = parse_wheel_filename(link.filename)
                except InvalidWheelFilename:
                    continue  # a source distribution
                if link.hash_name == "sha256":
                    found.setdefault(version, set()).add(link.hash)
        return found


def main(files):
    command = re.compile(r"([A-Za-z0-9_.-]+)==([0-9A-Za-z.]+)(?: ; .*?)?(?=$| \\$)")
    index = Index()
    for file in map(pathlib.Path, files):
        out = []
        for line in file.read_text().splitlines():
            if line.startswith("    --hash="):
                continue
            entry = command.match(line)
            if not entry:
                out.append(line)
                continue
            hashes = index.hashes(*entry.groups())
            if not hashes:
                raise SystemExit(f"{file}: {entry[1]}=={entry[2]}: the index has no wheel with a SHA-256; check the version")
            out.append(" \\\n    ".join([entry[0], *(f"--hash=sha256:{h}" for h in hashes)]))
        file.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
