"""Files and metadata of the built-in package.

The importer runs this at the first use, with ROOT and INFO, the prefixes of the paths of files and
metadata.
"""

import io


class Resource:
    """A file or directory of the package; an importlib.resources.abc.Traversable."""

    def __init__(self, files, path):
        self._files, self._path = files, path

    @property
    def name(self):
        return self._path.rsplit("/", 1)[-1]

    def __str__(self):
        return ROOT + self._path

    def is_file(self):
        return self._path in self._files

    def is_dir(self):
        return any(name.startswith(self._path + "/") for name in self._files)

    def iterdir(self):
        start = self._path + "/"
        for part in sorted({name[len(start):].split("/", 1)[0] for name in self._files if name.startswith(start)}):
            yield Resource(self._files, start + part)

    def joinpath(self, *parts):
        return Resource(self._files, "/".join((self._path, *map(str, parts))))

    __truediv__ = joinpath

    def read_bytes(self):
        try:
            return self._files[self._path]
        except KeyError:
            raise FileNotFoundError(str(self)) from None

    def read_text(self, encoding="utf-8", errors="strict"):
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def open(self, mode="r", *args, **kwargs):
        if mode == "rb":
            return io.BytesIO(self.read_bytes())
        if mode != "r":
            raise ValueError(f"{self} can only be read, with mode 'r' or 'rb', not {mode!r}")
        return io.TextIOWrapper(io.BytesIO(self.read_bytes()), *args, **{"encoding": "utf-8", **kwargs})


class Reader:
    """The resource reader of one package."""

    def __init__(self, root):
        self._root = root

    def files(self):
        return self._root

    def open_resource(self, resource):
        return (self._root / resource).open("rb")

    def resource_path(self, resource):
        raise FileNotFoundError(f"{self._root / resource} is not a file of the file system")

    def is_resource(self, path):
        return (self._root / path).is_file()

    def contents(self):
        return (item.name for item in self._root.iterdir())


def reader(files, path):
    """Returns the resource reader of the package in a directory."""
    return Reader(Resource(files, path))


def distribution(files):
    """Returns the metadata of the distribution."""
    from importlib.metadata import Distribution

    class BuiltIn(Distribution):
        def read_text(self, filename):
            data = files.get(INFO + filename)
            return None if data is None else data.decode()

        def locate_file(self, path):
            return Resource(files, str(path))

    return BuiltIn()
