"""Imports a module of this package right after the module of another library that it extends.

This file runs at each import of the package. It imports nothing that an interpreter does not load
at its start.
"""

import sys

TYPE_CHECKING = False  # as in typing, without importing it
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Watch:
    """A finder on sys.meta_path that waits for one module. It passes the spec that the other
    finders return and makes its loader import our module afterwards."""

    def __init__(self, name: str, ours: str) -> None:
        self.name, self.ours, self.asking = name, ours, False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        if name != self.name or self.asking:
            return None
        self.asking = True  # another finder of this kind asks all finders, this one included
        try:
            spec = self._ask_others(path, target)
        finally:
            self.asking = False
        if spec is None or spec.loader is None or isinstance(spec.loader, type):
            return spec  # the loader serves many modules: rely on the library's entry point
        execute = spec.loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            bring(self.name, self.ours)

        try:
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        except AttributeError:
            pass  # the loader has no place for it: rely on the library's entry point
        return spec

    def _ask_others(self, path: "Any", target: "Any") -> "ModuleSpec | None":
        """Returns the spec that the first of the other finders has."""
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(self.name, path, target)
            if spec is not None:
                return spec
        return None


def bring(name: str, ours: str) -> None:
    """Imports our module, and calls its function if one is named. A failure is a warning."""
    module, _, function = ours.partition(":")
    try:
        # Import the package first. An import of a submodule holds the submodule's lock while it
        # waits for the package, and the thread that imports the package may wait for that lock.
        __import__("usmbridge")
        __import__(module)
        if function:
            getattr(sys.modules[module], function)()
    except Exception as e:
        import warnings

        warnings.warn(f"{name} cannot handle Arrays: {type(e).__name__}: {e}", stacklevel=2)


def _importing(module: "ModuleType | None") -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def when_imported(name: str, ours: str) -> None:
    """Imports our module when the module called name has been imported, or now if it has been.
    With "module:function" the function is called afterwards."""
    if _importing(sys.modules.get(name)):
        # Wait for the thread that imports it. In that thread this returns immediately.
        try:
            __import__(name)
        except Exception:  # the import failed
            pass
    other = sys.modules.get(name)
    if other is None:
        if not any(isinstance(f, _Watch) and f.name == name for f in sys.meta_path):
            sys.meta_path.insert(0, _Watch(name, ours))
    elif not _importing(other):
        bring(name, ours)
    # Otherwise this thread is importing the other module, which imports this package. That
    # library loads our module by its entry point later.
