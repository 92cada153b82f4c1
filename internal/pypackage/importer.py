"""Importer of the built-in package: serves the sources that a Go program carries.

The program runs this file at the first import of `usmbridge` and calls install(). It provides what
an installed package has by its directory: submodules, their source text (inspect, tracebacks),
resources, and the metadata of the distribution with its entry points. The parts that an import does
not need are in resources.py, because both files are compiled each time.
"""

import sys

ModuleSpec = type(sys.__spec__)  # importing importlib.machinery takes longer

NAME = "usmbridge"
BESIDE = "_usmbridge_dask"  # the module of an entry point that must not load the package
ROOT = "<" + NAME + ">/"


class Importer:
    """Finder on sys.meta_path and loader of the package and its submodules."""

    def __init__(self, native, files):
        self._native, self._files, self._resources = native, files, None

    def _path(self, fullname):
        """Returns the path of a module's source; None for the C module and unknown names."""
        stem = fullname.replace(".", "/")
        for path in (stem + "/__init__.py", stem + ".py"):
            if path in self._files:
                return path
        return None

    # ---- finder

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in (NAME, BESIDE) and not fullname.startswith(NAME + "."):
            return None
        if fullname == self._native.__name__:
            return ModuleSpec(fullname, self, origin="built-in")
        source = self._path(fullname)
        if source is None:
            return None
        package = source.endswith("/__init__.py")
        spec = ModuleSpec(fullname, self, origin="built-in" if fullname == NAME else ROOT + source, is_package=package)
        return spec

    def invalidate_caches(self):
        pass

    def find_distributions(self, context=None):
        wanted = getattr(context, "name", None)
        if wanted is None or wanted.lower().replace("-", "_").replace(".", "_") == NAME:
            yield self._more()["distribution"](self._files)

    # ---- loader

    def create_module(self, spec):
        return self._native if spec.name == self._native.__name__ else None

    def exec_module(self, module):
        name = module.__spec__.name
        code = self.get_code(name)
        if code is not None:
            # Readers of source text ask for a file name. get_data accepts this one.
            module.__file__ = self.get_filename(name)
            exec(code, module.__dict__)

    def is_package(self, fullname):
        return (self._path(fullname) or "").endswith("/__init__.py")

    def get_filename(self, fullname):
        path = self._path(fullname)
        if path is None:
            raise ImportError(f"{fullname} has no source", name=fullname)
        return ROOT + path

    def get_source(self, fullname):
        path = self._path(fullname)
        return None if path is None else self._files[path].decode()

    def get_code(self, fullname):
        path = self._path(fullname)
        return None if path is None else compile(self._files[path], ROOT + path, "exec", dont_inherit=True)

    def get_data(self, path):
        try:
            return self._files[path.removeprefix(ROOT)]
        except KeyError:
            raise OSError(f"{path} is not in the package") from None

    def get_resource_reader(self, fullname):
        return self._more()["reader"](self._files, fullname.replace(".", "/")) if self.is_package(fullname) else None

    def _more(self):
        """Returns the names of resources.py, which runs at the first use."""
        if self._resources is None:
            names = {"__name__": NAME + "._resources", "ROOT": ROOT, "INFO": NAME + ".dist-info/"}
            exec(compile(self._files["resources.py"], ROOT + "resources.py", "exec", dont_inherit=True), names)
            self._resources = names
        return self._resources


def install(package, native, files):
    """Makes the built-in module the package. Each import of it calls this once."""
    importer = next((f for f in sys.meta_path if type(f).__name__ == "Importer" and getattr(f, "_native", None) is native), None)
    if importer is None:
        importer = Importer(native, files)
        sys.meta_path.insert(0, importer)
    # Keep the spec object: the import machinery marks it as initializing until the import ends,
    # and other threads wait because of that mark.
    spec = package.__spec__
    spec.loader, spec.submodule_search_locations = importer, []
    package.__loader__, package.__path__ = importer, spec.submodule_search_locations
    package.__package__ = NAME
    importer.exec_module(package)
