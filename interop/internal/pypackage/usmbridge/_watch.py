"""Modules of ours that belong to a module of others and are imported right after it.

This runs at each import of the package, so it imports nothing itself: what it needs of the
import machinery is in every interpreter from its start.
"""

import sys

TYPE_CHECKING = False  # typing's, without typing
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Watch:
    """A finder on sys.meta_path that finds nothing by itself, until the other has come."""

    def __init__(self, name: str, ours: str) -> None:
        self.name, self.ours, self.asking = name, ours, False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        if name != self.name or self.asking:
            return None
        self.asking = True  # others ask everybody too
        try:
            spec = self._of_others(path, target)
        finally:
            self.asking = False
        if spec is None or spec.loader is None or isinstance(spec.loader, type):
            return spec  # a loader that serves many: ours comes by the other's own means
        execute = spec.loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            bring(self.name, self.ours)

        try:
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        except AttributeError:
            pass  # a loader that cannot be told: ours comes by the other's own means
        return spec

    def _of_others(self, path: "Any", target: "Any") -> "ModuleSpec | None":
        """What the other finders say."""
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(self.name, path, target)
            if spec is not None:
                return spec
        return None


def bring(name: str, ours: str) -> None:
    module, _, function = ours.partition(":")
    try:
        # The package first. An import of a submodule holds the submodule's lock while it waits
        # for the package, and the thread that imports the package may wait for that lock.
        __import__("usmbridge")
        __import__(module)
        if function:
            getattr(sys.modules[module], function)()
    except Exception as e:
        import warnings

        warnings.warn(f"{name} does not know Arrays: {type(e).__name__}: {e}", stacklevel=2)


def _importing(module: "ModuleType | None") -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def when_imported(name: str, ours: str) -> None:
    """Imports our module as soon as the other has been imported: at once if it has. With
    "module:function" the function is then called."""
    if _importing(sys.modules.get(name)):
        # Waits for the thread that imports it. In that thread itself this returns at once.
        try:
            __import__(name)
        except Exception:  # that import failed
            pass
    other = sys.modules.get(name)
    if other is None:
        if not any(isinstance(f, _Watch) and f.name == name for f in sys.meta_path):
            sys.meta_path.insert(0, _Watch(name, ours))
    elif not _importing(other):
        bring(name, ours)
    # Else this thread imports the other, which imports us: its entry point is still to come.
