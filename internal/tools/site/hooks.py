"""Hooks of MkDocs: pages of the top level, and links to files that are no pages."""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[3]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "SECURITY.md": "SECURITY.md"}
CSS = ".md-grid {max-width: 84rem}"  # wide enough for lines of 120 characters
LINK = re.compile(r"(?ms)^ *```.*?^ *```$|\]\(([^)\s]+)\)")  # or a block of code
API = "# Python API\n\n" + "\n\n".join(f"::: {name}" for name in ("usmbridge", "usmbridge.share", "usmbridge.cute", "usmbridge.dask", "usmbridge.numba"))


def on_files(files, config):
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "api.md", content=API))
    files.append(File.generated(config, "wide.css", content=CSS))
    picture = ROOT / "examples/picture/doc/before-after.jpg"
    files.append(File.generated(config, "examples/picture/doc/before-after.jpg", content=picture.read_bytes()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Makes links relative to the site: to a page of it, or to the file in the repository."""
    folder = ROOT if page.file.src_uri in {*PAGES.values()} else ROOT / "docs"

    def target(match):
        file, anchor, name = (match[1] or "").partition("#")
        if not file or "://" in file:
            return match[0]
        path = (folder / file).resolve().relative_to(ROOT).as_posix()
        for uri in (PAGES.get(path), path.removeprefix("docs/"), path):
            if uri and files.get_file_from_path(uri):
                return f"]({uri}{anchor}{name})"
        return f"]({config.repo_url}/blob/main/{path}{anchor}{name})"

    return LINK.sub(target, markdown)
